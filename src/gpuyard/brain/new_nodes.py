"""What those are told who wait where nodes can be bought: the sentence of `yard why`, and whether new nodes would help.

Called by the scheduler of a cluster, beside its turns. Whether new nodes would help is tried, on nodes like those there
are but empty, open and well, as many as the job has tasks. Where no node is of a kind that the job could use, nobody
can know what a kind that is not there yet would do, and it is not denied.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace

from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.placing import gang
from gpuyard.brain.engine.queueing import admission
from gpuyard.brain.foresee import Foresight, afresh, restored
from gpuyard.model.node import Node
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.snapshot import Snapshot

MOST_KINDS = 64
MOST_OF_A_KIND = 1024
UNKNOWN_KINDS = frozenset((Code.NODES_EXCLUDED, Code.MODEL_UNAVAILABLE))
"""Why a job can use no node that there is, though it might use one of another kind."""


@dataclass(frozen=True, slots=True)
class WaitingTold:
    """What one job is told."""

    reason: Reason
    new_nodes: bool
    """Whether it would start if there were more nodes."""
    budget: str = ""
    """The disruption budget but for which others would give way to it now."""


def told(snapshot: Snapshot) -> dict[str, WaitingTold]:
    """Of everybody who waits after the plan, by name."""
    foresight = Foresight(snapshot)
    grown = _GrownFleets(foresight)
    anyway = _waiting_anyway(snapshot, foresight)
    found: dict[str, WaitingTold] = {}
    for rows in foresight.alike():
        reasons = foresight.reasons(rows)
        first = next(iter(rows))
        helps = grown.would_start(first, reasons[first.name])
        budget = "" if first.name in anyway else foresight.keeping(first)
        found |= {name: WaitingTold(reason, helps, budget) for name, reason in reasons.items()}
    return found


def _waiting_anyway(snapshot: Snapshot, foresight: Foresight) -> Container[str]:
    """Those who would wait if no budget forbade anything."""
    if not snapshot.budgets:
        return foresight.fleet.rolls.short
    return Foresight(replace(snapshot, budgets=())).fleet.rolls.short


class _GrownFleets:
    """Fleets of new nodes alone, by how many there are of each kind."""

    def __init__(self, foresight: Foresight) -> None:
        self._foresight = foresight
        self._kinds = _kinds(foresight.fleet.columns.nodes)
        self._drafts: dict[int, Draft] = {}

    def would_start(self, row: JobRow, reason: Reason) -> bool:
        """Whether the job, for which there is such a reason to wait, would start with new nodes."""
        draft = self._foresight.draft
        if admission.refuses(draft, row, draft.fleet.shortfall(row)) is not None:
            return False  # whatever there is, it is not its turn
        if not self._kinds or reason.code in UNKNOWN_KINDS:
            return True
        tasks = sum(group.tasks for group in row.groups)
        grown = self._of(1 << (min(tasks, MOST_OF_A_KIND) - 1).bit_length())
        job = replace(row.job, placements=(), gang=afresh(row.job.gang))
        requests = tuple(grown.fleet.request(job, group) for group in job.task_groups())
        with grown.trial():
            return gang.place(grown, JobRow(job, requests, row.queue, grown.fleet.policy))

    def _of(self, count: int) -> Draft:
        if count not in self._drafts:
            fleet, now = self._foresight.fleet, self._foresight.now
            nodes = tuple(new for k, kind in enumerate(self._kinds) for new in _new(kind, k, count))
            pools = tuple(fleet.pools.values())
            bare = Snapshot(now, fleet.topology, fleet.policy, pools, nodes, fleet.queues)
            self._drafts[count] = Draft(Fleet(bare), self._foresight.memory, now)
        return self._drafts[count]


def _kinds(nodes: Iterable[Node]) -> list[Node]:
    """An example of each kind, its largest; what only tells a node from its sisters does not make a kind."""
    found: dict[object, Node] = {}
    for node in sorted(nodes, key=lambda node: (-node.memory, -node.cpu, node.name)):
        labels = tuple((key, value) for key, value in node.labels if node.name not in value)
        shape = (node.pool, node.model, len(node.gpus), node.taints, node.workloads)
        if len(found) < MOST_KINDS:
            found.setdefault((shape, labels), replace(node, labels=labels))
    return list(found.values())


def _new(kind: Node, number: int, count: int) -> Iterable[Node]:
    """In a domain of their own at every level: nobody knows where they would stand, and together is possible."""
    domains = tuple((level, f"new {number}") for level, _ in kind.domains)
    return (replace(restored(kind), name=f"new-{number}-{i}", domains=domains) for i in range(count))
