"""Corners: tiny, crowded moments drawn from a number, with what the oracle does not judge laid on top.

Its moments are rich in borders (a queue at its quota, a gang at its minimum, the last free GPU); here they also have
policies of every kind, memories, drains, suspect GPUs, neighbours by labels, further resources and jobs that take
nothing. What is answered to them is kept (`answers`), not judged.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.oracle import moments
from tests.oracle.shapes import Document

COUNT = 240
FIRST = 50_000
"""Beyond the seeds that the oracle judges by itself."""
NOW_S = 1_767_225_600.0


def corner(number: int) -> Document:
    """The snapshot document of a number."""
    dice = Random(number)
    if number % 4 == 3:
        return _Scattered(dice).document()
    document = moments.draw(FIRST + number + dice.choice((0, 0, 0, moments.WIDER, moments.NAMED)))
    document["policy"] |= _policy(dice)
    for add in dice.sample(ADDITIONS, dice.randint(1, 3)):
        add(document, dice)
    return document


def _policy(dice: Random) -> Document:
    found: Document = {}
    for share, key, values in POLICIES:
        if dice.random() < share:
            found[key] = dice.choice(values)
    return found


POLICIES: tuple[tuple[float, str, tuple[object, ...]], ...] = (
    (0.3, "defragment", ("do", "propose")),
    (0.25, "pdb", ("last-resort",)),
    (0.06, "consolidate", (False,)),
    (0.04, "preempt", (False,)),
    (0.2, "reserve_after", ("5m", "1h")),
    (0.15, "reservations_per_pool", (2,)),
    (0.15, "preempt_across_queues", ("borrowed", "any")),
    (0.2, "critical_priority", (50, 60, 90)),
    (0.15, "move_factor", (0.5, 1)),
    (0.1, "deadlock", ("propose",)),
    (0.2, "eviction_grace", ("1m", "1h")),
    (0.1, "min_runtime", ("10m", "1h")),
    (0.1, "search_limit", (1, 2, 4)),
)
"""How often which knob is turned, and how."""


def _memories(document: Document, dice: Random) -> None:
    """Some were evicted today: just now, hours ago, nearly a day ago."""
    ago = (60.0, 3_000.0, 20_000.0, 86_000.0, 90_000.0)
    some = [job["name"] for job in document["jobs"] if dice.random() < 0.4]
    evicted = {name: sorted(NOW_S - s for s in dice.sample(ago, dice.randint(1, 3))) for name in some}
    document["memory"] = {"evictions": evicted} if evicted else {}


def _sickness(document: Document, dice: Random) -> None:
    """Suspect and sick GPUs, nodes that empty, nodes that are liked less."""
    for node in document["nodes"]:
        lot = dice.random()
        if lot < 0.4 and not node.get("unhealthy"):
            node["health"] = {str(dice.randrange(node["gpus"])): dice.choice(("suspect", "suspect", "sick"))}
        elif lot < 0.55:
            node["closed"] = {"by": "ada", "drains": dice.random() < 0.7}
        elif lot < 0.7:
            node["taints"] = [{"key": "spot", "effect": "PreferNoSchedule"}]


def _neighbours(document: Document, dice: Random) -> None:
    """Labels, and who asks for such neighbours, shuns them or wants to lie evenly among them."""
    levels = ("node", *document.get("topology", []))
    for job in document["jobs"]:
        job["labels"] = {"app": dice.choice("xy")}
        if dice.random() < 0.35:
            wish: Document = {"level": dice.choice(levels)}
            wish["matchExpressions"] = [{"key": "app", "operator": "In", "values": [dice.choice("xy")]}]
            job[dice.choice(("near", "apart", "apart", "even", "even"))] = [wish]


def _further(document: Document, dice: Random) -> None:
    """What else nodes have and tasks need."""
    for node in document["nodes"]:
        node["extras"] = {"adapters": dice.randint(0, 3)}
    for job in document["jobs"]:
        if dice.random() < 0.5 and "groups" not in job:
            job["extras"] = {"adapters": dice.randint(1, 2)}


def _meekness(document: Document, dice: Random) -> None:
    """Some take nothing; some end soon."""
    for job in document["jobs"]:
        if dice.random() < 0.3:
            job["takes"] = False
        if dice.random() < 0.4:
            job["time_limit"] = dice.choice(("30m", "1h", "2h", "5h"))


def _budgets(document: Document, dice: Random) -> None:
    """Budgets over what runs, of every kind, one of them over several jobs."""
    running = [job["name"] for job in document["jobs"] if "placements" in job]
    kinds: tuple[Document, ...] = ({"min_available": 1}, {"min_available": 2}, {"max_unavailable": 1})
    sets = [dice.sample(running, min(len(running), dice.randint(1, 3))) for _ in range(2)] if running else []
    document["budgets"] = [
        {"name": f"keep-{i}", "jobs": sorted(jobs), **dice.choice(kinds)} for i, jobs in enumerate(sets)
    ]


ADDITIONS: tuple[Callable[[Document, Random], None], ...] = (
    _memories,
    _sickness,
    _neighbours,
    _further,
    _meekness,
    _budgets,
)


class _Scattered:
    """Small jobs all over a few nodes, and others whose gangs would fit if they were packed: for defragmentation."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.racks = dice.random() < 0.6
        self.islands = dice.random() < 0.5
        self.load = dice.uniform(0.3, 0.7)

    def document(self) -> Document:
        """The moment."""
        dice = self.dice
        nodes = [self._node(i) for i in range(dice.randint(2, 5))]
        policy = {"defragment": dice.choice(("do", "propose")), "defrag_pays": dice.choice((0.2, 1, 4))}
        policy |= {"defrag_budget": dice.choice((1, 2, 8)), "defrag_horizon": dice.choice((600, 3600, 86400))}
        running = [job for node in nodes for job in self._tenants(node)]
        document: Document = {"apiVersion": "gpuyard.dev/v1", "kind": "Snapshot", "now": moments.NOW, "policy": policy}
        document |= {"topology": ["rack"]} if self.racks else {}
        document |= {"nodes": nodes, "jobs": [*running, *(self._wide(i) for i in range(dice.randint(1, 3)))]}
        document["queues"] = [
            {"name": "a", "quota": 4},
            {"name": "lab", "quota": 2, "limit": dice.choice((1, 1, 2, 40))},
        ]
        if dice.random() < 0.4:
            _budgets(document, dice)
        if dice.random() < 0.3:
            _sickness(document, dice)
        return document

    def _node(self, i: int) -> Document:
        gpus = self.dice.choice((4, 6, 8, 8))
        node: Document = {"name": f"n{i}", "gpus": gpus, "pool": self.dice.choice(("p", "p", "q")), "cpu": 4 * gpus}
        node |= {"domains": {"rack": self.dice.choice(("r0", "r1"))}} if self.racks else {}
        half = list(range(gpus // 2))
        return node | ({"islands": [half, list(range(gpus // 2, gpus))]} if self.islands else {})

    def _tenants(self, node: Document) -> list[Document]:
        """Jobs of one or two GPUs, or a part of one, anywhere on the node."""
        free = self.dice.sample(range(node["gpus"]), node["gpus"])
        found: list[Document] = []
        left = round(node["gpus"] * (1 - self.load))
        while len(free) > left:
            gpus = sorted(free.pop() for _ in range(min(len(free), self.dice.choice((1, 1, 1, 2)))))
            whole: Document = {"gpus": len(gpus)}
            ask = {"fraction": self.dice.choice((0.3, 0.5))} if len(gpus) == 1 and self.dice.random() < 0.2 else whole
            place = {"node": node["name"], "gpus": gpus}
            found.append({"name": f"{node['name']}-{len(found)}", "placements": [place], **ask, **self._traits()})
        return found

    def _traits(self) -> Document:
        dice = self.dice
        found: Document = {"queue": "a", "priority": dice.choice((25, 50)), "started": _ago(dice.choice((4, 30, 59)))}
        found |= {"cpu": dice.choice((1, 2, 4)), "warm_up": dice.choice(("0s", "10s", "2m", "3h"))}
        if dice.random() < 0.3:
            found["checkpoint"] = {"interval": "5m", "last": _ago(dice.choice((0, 3)))}
        if dice.random() < 0.2:
            found["time_limit"] = dice.choice(("1h", "2h"))
        if dice.random() < 0.1:
            found["preemptible"] = False
        return found

    def _wide(self, i: int) -> Document:
        """A gang that asks for what is not free in one piece; of a queue that often may not have it."""
        dice = self.dice
        level = dice.choice(("node", "nvlink", "rack", "rack", "") if self.racks else ("node", "nvlink", "nvlink", ""))
        found: Document = {"name": f"wide-{i}", "queue": "lab", "gpus": dice.choice((2, 3, 4, 4, 6, 8)), "cpu": 2}
        found |= {"tasks": dice.choice((1, 1, 2, 2, 3)), "submitted": _ago(dice.choice((1, 50)))}
        return found | ({"topology": {"required": level}} if level else {})


def _ago(minutes: int) -> str:
    return f"2025-12-31T23:{60 - minutes:02d}:00Z" if minutes else moments.NOW
