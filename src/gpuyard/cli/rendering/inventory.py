"""The snapshot as it stands: who holds which GPU, what is free, in which phase each job is.

Called by the listings and by `free`. It counts what the file says; what should happen next is the brain's business.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpuyard.model.job import Bundle, Job, Phase, Placement, TaskGroup
from gpuyard.model.node import Gpu, Node
from gpuyard.model.queue import ROOT, Queue
from gpuyard.model.resources import UNLIMITED, WHOLE, Request, mig_cost
from gpuyard.model.snapshot import Snapshot


@dataclass
class NodeUse:
    """What is taken of one node."""

    gpus: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """grains taken, by device."""
    cpu: int = 0
    memory: int = 0
    jobs: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Inventory:
    """Everything the tables count, added up once."""

    snapshot: Snapshot
    nodes: Mapping[str, Node]
    jobs: Mapping[str, Job]
    use: Mapping[str, NodeUse]
    held: Mapping[str, int]
    """grains held, by job."""

    def free(self, node: Node) -> int:
        """Whole devices that something new could have now; suspect ones count, sick and cut ones do not."""
        return 0 if node.closed else sum(self._is_free(node, gpu) for gpu in node.gpus)

    def is_held(self, node: Node, gpu: Gpu) -> bool:
        """Whether anybody has a part of the device."""
        return self.use[node.name].gpus.get(gpu.index, 0) > 0

    def used_by_queue(self) -> dict[str, int]:
        """grains held per queue; a parent holds what its children do."""
        parents = {queue.name: queue.parent for queue in self.snapshot.queues}
        used: dict[str, int] = defaultdict(int)
        for job in self.snapshot.jobs:
            for queue in lineage(job.queue, parents):
                used[queue] += self.held[job.name]
        return used

    def _is_free(self, node: Node, gpu: Gpu) -> bool:
        return gpu.usable and gpu.slices is None and not self.is_held(node, gpu)


def take(snapshot: Snapshot) -> Inventory:
    """Add up who holds what."""
    nodes = {node.name: node for node in snapshot.nodes}
    use: dict[str, NodeUse] = {name: NodeUse() for name in nodes}
    held: dict[str, int] = {}
    for job in snapshot.jobs:
        groups = {group.name: group for group in job.task_groups()}
        held[job.name] = 0
        for placement in job.placements:
            asked = groups[placement.group].request
            cost = placement_cost(asked, placement, nodes[placement.node])
            held[job.name] += sum(cost.values())
            _count(use[placement.node], job.name, asked, cost)
    return Inventory(snapshot, nodes, {job.name: job for job in snapshot.jobs}, use, held)


def placement_cost(asked: Request, placement: Placement, node: Node) -> dict[int, int]:
    """What one placed task costs on each of its devices (rule 5)."""
    cost: dict[int, int] = defaultdict(int)
    for position, gpu in enumerate(placement.gpus):
        cost[gpu] += _device_cost(asked, placement, position, node)
    return cost


def asked_gpus(job: Job, memory: int = 0) -> int:
    """What the job costs with every task running; `memory` is that of the card a part is taken from."""
    return sum(group.tasks * task_cost(group.request, memory) for group in job.task_groups())


def task_cost(asked: Request, memory: int) -> int:
    """What one unplaced task costs (rule 5)."""
    if asked.mig:
        return sum(count * mig_cost(profile) for profile, count in asked.mig)
    if asked.gpu_memory:
        return _memory_share(asked.gpu_memory, memory)
    return asked.gpus * WHOLE + asked.share


def phase(job: Job) -> Phase:
    """Where a job is in its life, as far as a snapshot tells."""
    living = [placement for placement in job.placements if not placement.terminating]
    if job.placements and not living:
        return Phase.STOPPING
    if living:
        # Some members but not enough: it was whole once if it has a start time, else it is still being assembled.
        return Phase.RUNNING if job.started is not None or is_whole(job) else Phase.STARTING
    return _phase_unplaced(job)


def is_whole(job: Job) -> bool:
    """Whether the members that live or succeeded reach every minimum."""
    living: dict[str, int] = defaultdict(int)
    for placement in job.placements:
        living[placement.group] += not placement.terminating
    return _group_is_whole(job.gang, living)


def lineage(queue: str, parents: Mapping[str, str]) -> Iterable[str]:
    """The queue, its parent, and so on below the root."""
    while queue and queue != ROOT:
        yield queue
        queue = parents.get(queue, ROOT)


def in_tree_order(queues: Iterable[Queue]) -> list[tuple[Queue, int]]:
    """Queues with their depth, children below their parent."""
    children: dict[str, list[Queue]] = defaultdict(list)
    known = {queue.name for queue in queues}
    for queue in sorted(queues, key=lambda queue: queue.name):
        is_top = queue.name == ROOT or queue.parent not in known
        children["" if is_top else queue.parent].append(queue)
    return list(_below("", 0, children))


def largest_memory(nodes: Iterable[Node]) -> int:
    """Memory of the largest card."""
    return max((node.gpu_memory for node in nodes), default=0)


def _below(name: str, depth: int, children: Mapping[str, list[Queue]]) -> Iterable[tuple[Queue, int]]:
    for queue in children.get(name, ()):
        yield queue, depth
        yield from _below(queue.name, depth + 1, children)


def _phase_unplaced(job: Job) -> Phase:
    if job.on_hold:
        return Phase.HELD
    groups = job.task_groups()
    if all(group.succeeded + group.failed >= group.tasks > 0 for group in groups):
        return Phase.FAILED if any(group.failed for group in groups) else Phase.SUCCEEDED
    return Phase.WAITING


def _group_is_whole(group: TaskGroup | Bundle, living: Mapping[str, int]) -> bool:
    if isinstance(group, Bundle):
        whole = sum(_group_is_whole(part, living) for part in group.groups)
        return whole >= group.min_groups
    return living.get(group.name, 0) + group.succeeded >= group.min


def _count(use: NodeUse, job: str, asked: Request, cost: Mapping[int, int]) -> None:
    use.jobs.add(job)
    use.cpu += asked.cpu
    use.memory += asked.memory
    for gpu, amount in cost.items():
        use.gpus[gpu] += amount


def _device_cost(asked: Request, placement: Placement, position: int, node: Node) -> int:
    if placement.mig:
        return mig_cost(placement.mig[position])
    if asked.gpu_memory:
        return _memory_share(asked.gpu_memory, node.gpu_memory)
    return asked.share or WHOLE


def _memory_share(wanted: int, memory: int) -> int:
    """A card of unknown memory counts whole: better too much than a card shared by mistake."""
    return WHOLE if not memory or memory >= UNLIMITED else min(WHOLE, -(-wanted * WHOLE // memory))
