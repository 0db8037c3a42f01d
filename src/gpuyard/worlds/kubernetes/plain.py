"""API objects in the model's words: whole GPUs, CPU and memory; pods by themselves and Indexed Jobs as gangs.

Called by `cache` and `observe`; pure. A node is managed if it has GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuyard.kube.objects import NodeObject, PodObject, moment
from gpuyard.kube.owners import JobObject
from gpuyard.kube.quantities import milli, whole
from gpuyard.model.job import Job, Placement, TaskGroup, Toleration, one_group
from gpuyard.model.node import Closure, Effect, Gpu, Node, Taint
from gpuyard.model.resources import Request

GPU = "nvidia.com/gpu"
PRODUCT = "nvidia.com/gpu.product"
GPU_MEMORY = "nvidia.com/gpu.memory"
INDEX = "batch.kubernetes.io/job-completion-index"
TASK = "gpuyard.dev/task"
GANG = "gpuyard.dev/gang"
ENDED = ("Succeeded", "Failed")
MAIN = "main"


@dataclass(frozen=True, slots=True)
class Described:
    """A gang as the brain is to see it, and which pod each number means."""

    job: Job
    numbers: Mapping[int, str]
    """Uids of pods that could be placed now, by task number."""


# --- nodes -----------------------------------------------------------------------------------------


def node_of(seen: NodeObject) -> Node | None:
    """The node, if it has GPUs."""
    capacity, allocatable = seen.status.capacity or {}, seen.status.allocatable or {}
    count = whole(capacity.get(GPU))
    if not count:
        return None
    labels = seen.metadata.labels or {}
    return Node(
        name=seen.metadata.name,
        model=labels.get(PRODUCT, "GPU"),
        gpu_memory=whole(labels.get(GPU_MEMORY)) << 20,
        gpus=tuple(Gpu(index) for index in range(count)),
        cpu=milli(allocatable.get("cpu")),
        memory=whole(allocatable.get("memory")),
        labels=tuple(sorted(labels.items())),
        taints=tuple(Taint(t.key, t.value, Effect(t.effect)) for t in seen.spec.taints or () if t.effect in EFFECTS),
        closed=_closed(seen, whole(allocatable.get(GPU))),
    )


EFFECTS = {effect.value for effect in Effect}


def _closed(seen: NodeObject, gpus: int) -> Closure | None:
    if seen.spec.unschedulable:
        return Closure("cordoned with kubectl")
    ready = next((each for each in seen.status.conditions or () if each.type == "Ready"), None)
    if ready is None or ready.status != "True":
        return Closure(f"not ready: {ready.reason if ready is not None else 'its kubelet has not reported'}")
    return None if gpus else Closure("its device plugin is away")


# --- pods ------------------------------------------------------------------------------------------


def request_of(pod: PodObject) -> Request:
    """What it asks for in all."""
    totals = {"cpu": 0, "memory": 0, GPU: 0}
    for container in pod.spec.containers or ():
        asked = (container.resources.requests or {}) if container.resources is not None else {}
        totals["cpu"] += milli(asked.get("cpu"))
        totals["memory"] += whole(asked.get("memory"))
        totals[GPU] += whole(asked.get(GPU))
    return Request(gpus=totals[GPU], cpu=totals["cpu"], memory=totals["memory"])


def owner_key(pod: PodObject) -> str:
    """The Job that made it; "" if none did."""
    owner = pod.metadata.controller
    return f"{pod.metadata.namespace}/{owner.name}" if owner is not None and owner.kind == "Job" else ""


def is_gang(job: JobObject) -> bool:
    """Whether its pods start together or not at all."""
    spec = job.spec
    return spec.completion_mode == "Indexed" and (spec.parallelism or 0) == spec.completions != 1


def gang_of(pod: PodObject, job: JobObject | None) -> str:
    """The name of its job; "" while it is not known yet who made it."""
    if not (key := owner_key(pod)):
        return pod.metadata.key
    if job is None:
        return ""
    return key if is_gang(job) else pod.metadata.key


# --- gangs -----------------------------------------------------------------------------------------


def described(
    name: str, pods: Sequence[PodObject], owner: JobObject | None, places: Mapping[str, Placement]
) -> Described | None:
    """A gang from its pods; None when nothing of it is left to place or to account for.

    `places` has where its pods are or will be, by uid.
    """
    alive = [pod for pod in pods if pod.status.phase not in ENDED]
    if not alive:
        return None
    gang = owner is not None and is_gang(owner)
    numbers = _numbers(pods)
    done = {numbers[pod.metadata.uid] for pod in pods if pod.status.phase == "Succeeded"} if gang else set()
    free = {
        numbers[pod.metadata.uid]: pod.metadata.uid for pod in alive if is_free(pod) and pod.metadata.uid not in places
    }
    placed = tuple(places[pod.metadata.uid] for pod in alive if pod.metadata.uid in places)
    tasks = (owner.spec.parallelism or 1) if gang and owner is not None else 1
    here = sum(not place.terminating for place in placed)
    absent = max(0, tasks - len(done) - here - len(free))
    group = _group(alive[0], tasks, len(done), absent, tuple(sorted(done)))
    return Described(_job(name, alive, owner if gang else None, group, placed), free)


def is_free(pod: PodObject) -> bool:
    """Whether it waits for a place, and nothing else."""
    return not (pod.spec.node_name or pod.metadata.deletion_timestamp or pod.status.phase in ENDED)


def number_of(pod: PodObject) -> int:
    """Its number, as whoever made it or whoever bound it says; 0 where nobody does."""
    said = pod.metadata.annotation(INDEX) or pod.metadata.annotation(TASK)
    return int(said) if said.isdigit() else 0


def _numbers(pods: Sequence[PodObject]) -> dict[str, int]:
    """Its index, the number it was bound with, or the lowest that is free; by uid."""
    told: dict[str, int] = {}
    for pod in pods:
        said = pod.metadata.annotation(INDEX) or pod.metadata.annotation(TASK)
        if said.isdigit():
            told[pod.metadata.uid] = int(said)
    taken = set(told.values())
    free = (number for number in range(len(pods) + len(taken)) if number not in taken)
    rest = sorted((pod for pod in pods if pod.metadata.uid not in told), key=lambda pod: pod.metadata.name)
    return told | {pod.metadata.uid: number for pod, number in zip(rest, free, strict=False)}


def _group(pod: PodObject, tasks: int, done: int, absent: int, ended: tuple[int, ...]) -> TaskGroup:
    return TaskGroup(
        name=MAIN,
        tasks=tasks,
        min=tasks,
        request=request_of(pod),
        node_selector=tuple(sorted((pod.spec.node_selector or {}).items())),
        tolerations=tuple(
            Toleration(each.key, each.operator or "Equal", each.value, each.effect)
            for each in pod.spec.tolerations or ()
        ),
        succeeded=done,
        absent=absent,
        ended=ended,
    )


def _job(
    name: str, alive: Sequence[PodObject], owner: JobObject | None, group: TaskGroup, placed: tuple[Placement, ...]
) -> Job:
    pod = alive[0]
    made = owner.metadata if owner is not None else pod.metadata
    running = [moment(each.status.start_time) for each in alive if each.status.phase == "Running"]
    return Job(
        name=name,
        gang=one_group(group),
        priority=pod.spec.priority if pod.spec.priority_class_name else None,
        preemptible=False,
        submitted=moment(made.creation_timestamp),
        started=min(running, default=None) if placed else None,
        placements=tuple(sorted(placed, key=lambda place: (place.task, place.uid))),
        on_hold=any(each.spec.scheduling_gates for each in alive),
    )
