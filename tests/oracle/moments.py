"""Random moments for the oracle, from a number: tiny, crowded, and of every kind that the rules speak of.

Each seed has a flavour or two (shares, gangs that shrink, parts of GPUs, ...), so that most moments stay readable.
The oddities (members on their way out, half-placed gangs, reservations) are rare on purpose; where they are, fewer
verdicts can be given.
"""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Any

from tests.oracle import wider
from tests.oracle.places import Load, options
from tests.oracle.shapes import Document, Spot, read
from tests.oracle.shares import fair_shares, use

NOW = "2026-01-01T00:00:00Z"
FLAVOURS = (
    "plain", "plain", "plain", "elastic", "elastic", "elastic", "parts", "slices", "islands", "racks",
    "models", "groups", "half", "kept", "kept", "holes", "holes", "holes", "holes",
)  # fmt: skip
H100, A100 = ("H100-SXM5-80GB", "80Gi"), ("A100-SXM4-40GB", "40Gi")
MOST_GPUS, MOST_JOBS = 8, 8


WIDER = 100_000
"""From this seed on moments also have what `wider` adds; those before stay what they were."""


NAMED = 200_000
"""From this seed on quotas also name a model."""

ALIGNED = 300_000
"""From this seed on kubelets insist on NUMA nodes."""


def draw(seed: int) -> Document:
    """The snapshot document of a seed."""
    document = _Drawing(Random(seed)).document()
    if seed >= ALIGNED:
        return wider.insisting(document, Random(seed + WIDER))
    if seed >= NAMED:
        return wider.naming_a_model(document, Random(seed + WIDER))
    return document if seed < WIDER else wider.widened(document, Random(seed + WIDER))


def _minutes_ago(minutes: int) -> str:
    days, rest = divmod(minutes, 1440)
    past = 1440 - rest if rest else 0
    day = 31 - days if rest else 32 - days
    return NOW if not minutes else f"2025-12-{day:02d}T{past // 60:02d}:{past % 60:02d}:00Z"


class _Drawing:
    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.flavours = {dice.choice(FLAVOURS), dice.choice(FLAVOURS)}
        self.cpu = dice.random() < 0.08
        self.widest = 1
        self.racks = "racks" in self.flavours or dice.random() < 0.1

    def chance(self, share: float) -> bool:
        return self.dice.random() < share

    def pick(self, *menu: Any) -> Any:
        return self.dice.choice(menu)

    def document(self) -> Document:
        nodes = self.nodes()
        queues, leaves = self.queues()
        document: Document = {"apiVersion": "gpuyard.dev/v1", "kind": "Snapshot", "now": NOW}
        document |= {"topology": ["rack"]} if self.racks else {}
        document |= {"policy": self.policy()}
        document |= {"nodes": nodes, "queues": queues}
        self.widest = max(node["gpus"] for node in nodes)
        running = (
            self.dice.randint(2, 6) if "holes" not in self.flavours else min(6, sum(n["gpus"] for n in nodes) // 2)
        )
        document["jobs"] = [self.job(i, leaves) for i in range(running)]
        self.place(document)
        poorest = self.poorest(document, leaves)
        for i in range(running, self.dice.randint(running + 1, MOST_JOBS)):
            document["jobs"].append(self.claimant(i, leaves, poorest))
        document |= self.budgets(document["jobs"])
        if "kept" in self.flavours and self.chance(0.5):
            document |= self.reservations(document)
        return document

    def poorest(self, document: Document, leaves: list[str]) -> str:
        """The queue that is owed most."""
        moment = read(document)
        shares, used = fair_shares(moment), use(moment, moment.state)
        quotas = {q: min(moment.queues[q].quota[0] or Fraction(0), Fraction(8)) for q in leaves}
        return max(leaves, key=lambda q: max(quotas[q], shares[q][0]) - used[q][0])

    def claimant(self, i: int, leaves: list[str], poorest: str) -> Document:
        """A job that waits: often of the queue that is owed most, often large, often important."""
        job = self.job(i, leaves)
        if self.chance(0.6):
            job["queue"] = poorest
        if "gpus" in job and self.chance(0.9 if "holes" in self.flavours else 0.5):
            job["gpus"] = self.dice.randint(min(2, self.widest), self.widest)
            job["tasks"] = min(job["tasks"], 2)
            if "min" in job:
                job["min"] = 1
        if self.chance(0.3):
            job["priority"] = self.pick(60, 90)
        return job

    def policy(self) -> Document:
        policy: Document = {} if "kept" in self.flavours else {"reserve_after": "30d"}
        if self.chance(0.06):
            policy |= {"preempt_across_queues": self.pick("borrowed", "any"), "critical_priority": 90}
        if self.chance(0.08):
            policy |= {"min_runtime": "30m"}
        return policy

    # --- nodes --------------------------------------------------------------------------------------------------------

    def nodes(self) -> list[Document]:
        found: list[Document] = []
        left = MOST_GPUS
        for i in range(self.dice.randint(1, 3) if "holes" not in self.flavours else self.pick(2, 2, 3)):
            if not left:
                break
            count = min(left, self.pick(1, 2, 2, 3, 4, 4))
            left -= count
            found.append(self.node(f"n{i}", count))
        return found

    def node(self, name: str, count: int) -> Document:
        model, memory = self.pick(H100, A100) if "models" in self.flavours else A100
        node: Document = {"name": name, "pool": model[:4].lower(), "gpus": count, "model": model, "gpu_memory": memory}
        if "islands" in self.flavours and count > 1:
            cut = self.dice.randint(1, count - 1)
            node["islands"] = [list(range(cut)), list(range(cut, count))]
        if "slices" in self.flavours and self.chance(0.6):
            node["mig"] = {
                "0": self.pick(["3g.20gb", "3g.20gb"], ["1g.5gb", "1g.5gb", "3g.20gb"], ["2g.10gb", "1g.5gb"])
            }
        if self.racks:
            node["domains"] = {"rack": self.pick("r0", "r1")}
        if self.cpu:
            node["cpu"] = 2 * count + self.pick(0, 2)
        if self.chance(0.05):
            node["unhealthy"] = [self.dice.randrange(count)]
        return node

    # --- queues -------------------------------------------------------------------------------------------------------

    def queues(self) -> tuple[list[Document], list[str]]:
        shape = self.pick("one", "two", "two", "two", "three", "three", "tree", "tree", "forest")
        if shape == "one":
            return [self.queue("a")], ["a"]
        if shape in ("two", "three"):
            names = ["a", "b", "c"][: 2 if shape == "two" else 3]
            return [self.queue(name) for name in names], names
        inner = [("d", "root"), ("a", "d"), ("b", "d"), ("c", "root" if shape == "tree" else "e")]
        inner += [("e", "root")] if shape == "forest" else []
        return [self.queue(name, parent) for name, parent in inner], ["a", "b", "c"]

    def queue(self, name: str, parent: str = "root") -> Document:
        gpus = self.pick(0, 0, 1, 1, 2, 2, 3, 4, 6, "unlimited") if not self.chance(0.1) else self.pick(0.5, 1.5)
        quota: Any = {"gpu": gpus, "cpu": self.pick(0, 2, 4, 8)} if self.cpu else gpus
        queue: Document = {"name": name, "quota": quota}
        queue |= {} if parent == "root" else {"parent": parent}
        if self.chance(0.15):
            queue["limit"] = self.pick(1, 2, 3, 4, 5)
        if self.chance(0.15):
            queue["weight"] = self.pick(0, 2, 3)
        if self.chance(0.1):
            queue["priority"] = 1
        return queue

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def job(self, i: int, leaves: list[str]) -> Document:
        job: Document = {
            "name": f"j{i}",
            "queue": self.dice.choice(leaves),
            "submitted": _minutes_ago(self.dice.randint(1, 59)),
        }
        if "kept" in self.flavours:
            job["submitted"] = _minutes_ago(self.pick(2, 30, 61, 90, 200))
        if "groups" in self.flavours and self.chance(0.5):
            job["groups"] = [{"name": "lead", **self.ask()}, {"name": "work", **self.size(), **self.ask()}]
            if self.chance(0.3):
                job["groups"][1]["topology"] = {"required": self.pick("node", "nvlink")}
        else:
            job |= self.size() | self.ask()
        job |= self.traits()
        return job

    def size(self) -> Document:
        share = 0.5 if self.flavours & {"elastic", "half"} else 0.15
        if self.chance(share):
            tasks = self.pick(2, 2, 3, 3, 4)
            return {"tasks": tasks, "min": self.dice.randint(1, tasks - 1)}
        return {"tasks": self.pick(1, 1, 1, 1, 2, 2, 3) if "holes" not in self.flavours else 1}

    def ask(self) -> Document:
        if "holes" in self.flavours and self.chance(0.8):
            return {"gpus": 1}
        if "parts" in self.flavours and self.chance(0.6):
            part: Document = self.pick(
                {"fraction": 0.5}, {"fraction": 0.25}, {"fraction": 0.75}, {"gpu_memory": "20Gi"}
            )
            return part
        if "slices" in self.flavours and self.chance(0.5):
            return {"mig": self.pick("1g.5gb", "3g.20gb", "2g.10gb")}
        cpu = {"cpu": self.pick(1, 2, 3)} if self.cpu else {}
        if self.cpu and self.chance(0.1):
            return cpu
        return {"gpus": min(self.widest, self.pick(1, 1, 1, 2, 2, 3))} | cpu

    def traits(self) -> Document:
        job: Document = {}
        if self.chance(0.5):
            job["priority"] = self.pick(10, 30, 50, 60, 90)
        if self.chance(0.12):
            job["preemptible"] = False
        if self.chance(0.08):
            job["class"] = self.pick("batch", "interactive", "inference")
        if self.chance(0.12):
            job["min_runtime"] = self.pick("5m", "2h")
        if self.chance(0.15):
            job["warm_up"] = self.pick("1m", "10m")
        if self.chance(0.15):
            job["evictions"] = self.pick(1, 1, 2, 3)
        if self.chance(0.15):
            job["topology"] = {"required": self.pick("node", "nvlink", *(["rack"] if self.racks else []))}
        if "models" in self.flavours and self.chance(0.5):
            job["models"] = self.pick(["A100"], ["H100"], ["H100", "A100"])
        if "kept" in self.flavours and self.chance(0.6):
            job["time_limit"] = self.pick("30m", "3h", "8h")
        return job

    # --- what runs ----------------------------------------------------------------------------------------------------

    def place(self, document: Document) -> None:
        """Most jobs run, where there is room; the rules of sharing are not asked, so there is something to mend."""
        most = self.pick(0.6, 0.9, 1.0)
        for job in document["jobs"]:
            if not self.chance(most):
                continue
            found = self.somewhere(document, job)
            if found:
                job["placements"] = found
                job["started"] = _minutes_ago(self.pick(3, 20, 59, 90, 200))
                job["submitted"] = min(job["submitted"], job["started"])
                if self.chance(0.25):
                    job["checkpoint"] = {"interval": "10m", "last": _minutes_ago(self.pick(2, 9))}
                self.odd(job)

    def somewhere(self, document: Document, entry: Document) -> list[Document]:
        moment = read(document)
        job, load = moment.jobs[entry["name"]], Load.of(moment, moment.state)
        spots: list[Spot] = []
        for group in job.groups:
            for n in range(self.dice.randint(group.wanted, group.most)):
                menu = list(options(load, job, group, spots))
                if not menu:
                    if n < group.wanted:
                        return []
                    break
                spots.append(self.dice.choice(menu))
                load.put(job, spots[-1])
        return [_placement(spot) for spot in spots]

    def odd(self, job: Document) -> None:
        """Half-placed gangs and members on their way out."""
        held = job["placements"]
        if "half" not in self.flavours or "groups" in job:
            return
        if self.chance(0.25):
            held[self.dice.randrange(len(held))]["terminating"] = True
        if self.chance(0.4) and len(held) > 1:
            held.pop()
        least = int(job.get("min") or job["tasks"])
        if sum(not p.get("terminating") for p in held) < least and self.chance(0.7):
            job["stale_since"] = self.pick("2025-12-31T23:59:30Z", "2025-12-31T23:50:00Z")

    def budgets(self, jobs: list[Document]) -> Document:
        running = [job["name"] for job in jobs if "placements" in job]
        if not running or not self.chance(0.12):
            return {}
        names = self.dice.sample(running, min(len(running), self.pick(1, 2)))
        bound = self.pick({"min_available": 1}, {"max_unavailable": 1}, {"max_unavailable": 0})
        return {"budgets": [{"name": "keep", "jobs": sorted(names), **bound}]}

    def reservations(self, document: Document) -> Document:
        """What an earlier plan kept for somebody who still waits: all of one node."""
        waiting = [job for job in document["jobs"] if "placements" not in job and job.get("gpus")]
        if not waiting:
            return {}
        job = min(waiting, key=lambda job: job["submitted"])
        for node in document["nodes"]:
            room = [
                g
                for g in range(node["gpus"])
                if g not in node.get("unhealthy", []) and str(g) not in node.get("mig", {})
            ]
            if job["gpus"] * job["tasks"] <= len(room):
                each = job["gpus"]
                kept = [{"node": node["name"], "gpus": room[t * each : (t + 1) * each]} for t in range(job["tasks"])]
                until = self.pick({}, {"until": "2026-01-01T01:00:00Z"})
                return {"reservations": [{"job": job["name"], "placements": kept, **until}]}
        return {}


def _placement(spot: Spot) -> Document:
    written: Document = {"node": spot.node, "gpus": list(spot.gpus)}
    written |= {} if spot.group == "main" else {"group": spot.group}
    return written | ({"mig": list(spot.mig)} if spot.mig else {})
