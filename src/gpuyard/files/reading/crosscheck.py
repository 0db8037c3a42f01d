"""The second look at a snapshot: do names refer to something, and is every GPU held by those who fit on it?

Called by `snapshots` once all entries are the model's values. CPU and memory may be over-committed, because the world
may be; a GPU may not, because then the file contradicts itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpuyard.files.problems import Path, Problems, inside_of
from gpuyard.files.reading.fleet import check_level, gpus_there
from gpuyard.model.job import Bundle, Job, Placement, TaskGroup
from gpuyard.model.node import Node
from gpuyard.model.queue import DEFAULT
from gpuyard.model.resources import WHOLE, Request, as_gpus
from gpuyard.model.topology import NODE, NVLINK


@dataclass(frozen=True)
class Known:
    """Every name in the document, those of faulty entries too: one mistake must not make others out of good lines."""

    levels: tuple[str, ...]
    nodes: Mapping[str, Node | None]
    queues: frozenset[str]
    inner_queues: frozenset[str]
    priorities: frozenset[str]
    jobs: Mapping[str, Job | None]


# --- names ---------------------------------------------------------------------------------------


def check_job(job: Job, at: Path, known: Known, problems: Problems) -> None:
    """Queue, priority, levels and the queues it avoids."""
    _check_queue(job, at, known, problems)
    if isinstance(job.priority, str) and job.priority not in known.priorities:
        told = f"has priority {job.priority}, which the policy does not name"
        problems.blame((*at, "priority"), told, job.priority, known.priorities)
    _check_topology(job.gang, at, (*known.levels, NODE, NVLINK), problems)
    for group in job.task_groups():
        for key in ("near", "apart", "even"):
            for term in getattr(group, key):
                check_level(term.level, (*known.levels, NODE), (*at, key), problems)
    if job.avoid is not None:
        check_level(job.avoid.level, (*known.levels, NODE), (*at, "avoid", "level"), problems)
        for queue in job.avoid.queues:
            if queue not in known.queues:
                problems.blame(
                    (*at, "avoid", "queues"), f"avoids queue {queue}, which does not exist", queue, known.queues
                )


def _check_queue(job: Job, at: Path, known: Known, problems: Problems) -> None:
    if not job.queue:
        return
    if job.queue in known.inner_queues:
        problems.blame(
            (*at, "queue"), f"stands in queue {job.queue}, which has queues below it; jobs stand in leaf queues"
        )
    elif job.queue not in known.queues:
        implied = " (it names none)" if job.queue == DEFAULT else ""
        told = f"stands in queue {job.queue}{implied}, which does not exist"
        problems.blame((*at, "queue"), told, job.queue, known.queues)


def _check_topology(group: Bundle | TaskGroup, at: Path, levels: tuple[str, ...], problems: Problems) -> None:
    for key, level in (("required", group.topology.required), ("preferred", group.topology.preferred)):
        if level not in levels:
            check_level(level, levels, (*at, "topology", key), problems)
    if isinstance(group, Bundle):
        # A job without groups has one all the same, and it says nothing of its own.
        for place, inner in enumerate(group.groups):
            _check_topology(inner, (*at, "groups", place), levels, problems)


# --- GPUs ----------------------------------------------------------------------------------------


@dataclass
class Devices:
    """Who holds what, filled placement by placement; the first to hold a GPU is right, the second is the problem."""

    known: Known
    problems: Problems
    _used: dict[tuple[str, int], int] = field(default_factory=dict)
    _holders: dict[tuple[str, int], str] = field(default_factory=dict)
    _slices: dict[tuple[str, int, str], int] = field(default_factory=dict)

    def hold(self, job: Job, at: Path) -> None:
        """Put a running job on its GPUs."""
        requests = {group.name: group.request for group in job.task_groups()}
        for place, placement in enumerate(job.placements):
            here = (*at, "placements", place)
            request = requests[placement.group]
            node = self.find(placement, request, here)
            if node is None:
                continue
            if request.mig:
                self._hold_slices(job.name, placement, node, here)
            elif placement.gpus:
                self._hold_devices(job.name, placement, _share(request, node), here)

    def find(self, placement: Placement, request: Request, at: Path) -> Node | None:
        """The node of a placement, if it exists and has GPUs of that number and kind."""
        if placement.node not in self.known.nodes:
            told = f"{inside_of(at)} names node {placement.node}, which does not exist"
            self.problems.add((*at, "node"), told, placement.node, self.known.nodes)
        node = self.known.nodes.get(placement.node)
        if node is None or not placement.gpus:
            return node
        before = self.problems.count
        for index in placement.gpus:
            self._check_device(index, node, request, (*at, "gpus"))
        if request.gpu_memory:
            self._check_memory(request, node, at)
        return node if self.problems.count == before else None

    def _check_device(self, index: int, node: Node, request: Request, at: Path) -> None:
        if index >= len(node.gpus):
            self.problems.tell(at, f"names GPU {index} of node {node.name}, which does not exist: "
                               f"{gpus_there(len(node.gpus))}")  # fmt: skip
        elif request.mig and node.gpus[index].slices is None:
            self.problems.tell(at, f"names GPU {index} of node {node.name}, which is not cut into MIG slices")
        elif not request.mig and node.gpus[index].slices is not None:
            self.problems.tell(at, f"names GPU {index} of node {node.name}, which is cut into MIG slices; "
                               "it can be had by the slice only")  # fmt: skip

    def _check_memory(self, request: Request, node: Node, at: Path) -> None:
        if not node.gpu_memory:
            self.problems.tell(at, f"is a part of a GPU by memory, but node {node.name} does not say its gpu_memory")
        elif request.gpu_memory > node.gpu_memory:
            self.problems.tell(at, f"holds more memory than a GPU of node {node.name} has")

    def _hold_devices(self, job: str, placement: Placement, share: int, at: Path) -> None:
        for index in placement.gpus:
            device = (placement.node, index)
            used = self._used.get(device, 0)
            if used + share > WHOLE:
                other = self._holders[device]
                beside = (
                    "" if share == WHOLE == used else f" ({as_gpus(used)} of it is taken, {as_gpus(share)} is asked)"
                )
                whose = "this job" if other == job else f"job {other}"
                told = f"takes GPU {index} of node {placement.node}, which {whose} holds already{beside}"
                self.problems.tell((*at, "gpus"), told)
                continue
            self._used[device] = used + share
            self._holders.setdefault(device, job)

    def _hold_slices(self, job: str, placement: Placement, node: Node, at: Path) -> None:
        for index, profile in zip(placement.gpus, placement.mig, strict=False):
            there = (node.gpus[index].slices or ()).count(profile)
            used = self._slices.get((node.name, index, profile), 0) + 1
            self._slices[node.name, index, profile] = used
            if used > there:
                number = f"only {there}" if there else "no"
                told = f"takes slice {profile} of GPU {index} of node {node.name}, which has {number} such slice"
                self.problems.tell((*at, "mig"), f"{told}{'s' if there > 1 else ''}{' left' if there else ''}")


def _share(request: Request, node: Node) -> int:
    if request.gpu_memory:
        return request.gpu_memory * WHOLE // node.gpu_memory
    return request.share or WHOLE


def check_names(names: Iterable[object], section: str, problems: Problems) -> None:
    """No two entries of a section have one name."""
    first: dict[str, int] = {}
    for place, name in enumerate(names):
        if not isinstance(name, str):
            continue
        if name in first:
            problems.add((section, place, "name"), f"the name is taken: {section}[{first[name]}] has it already")
        first.setdefault(name, place)
