"""One pod in the model's words. Pure: API objects in, values out.

`task_of(pod, settings, storage)` gives the task group of one task that the pod is (equal groups are pods alike to the
brain) or a `Refusal`; `load_of(pods)` what pods that are not ours take of a node; `is_ours`, `is_over`, `is_bound`,
`is_gated` tell a pod's condition, and `submitted` when it was made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import msgspec

from gpuyard.kube.objects import Metadata, PodObject, PodSpec, moment
from gpuyard.model.job import TaskGroup
from gpuyard.model.node import NO_LOAD, Load
from gpuyard.model.resources import PORT, WHOLE, Extras, Request
from gpuyard.worlds.kubernetes.asking import amounts, company, devices, readable, terms, volumes
from gpuyard.worlds.kubernetes.asking.amounts import CPU, MEMORY
from gpuyard.worlds.kubernetes.asking.marks import DEFAULTS, GPUS, ReadingSettings
from gpuyard.worlds.kubernetes.asking.refusals import Refusal
from gpuyard.worlds.kubernetes.asking.selectors import label_key
from gpuyard.worlds.kubernetes.asking.volumes import Storage

_encode = msgspec.msgpack.Encoder().encode
POD_SLOT = "pods"
"""The resource of which every pod takes one."""
GRACE_S = 30
"""As the API has it where a pod says nothing."""


def is_ours(pod: PodObject, settings: ReadingSettings = DEFAULTS) -> bool:
    """Whether it asked for us."""
    return pod.spec.scheduler_name in settings.scheduler_names


def is_over(pod: PodObject) -> bool:
    """Whether it ended by itself and holds nothing any more."""
    return pod.status.phase in ("Succeeded", "Failed")


def is_bound(pod: PodObject) -> bool:
    """Whether it has its node."""
    return bool(pod.node_name)


def is_gated(pod: PodObject) -> bool:
    """Whether somebody keeps it from being scheduled."""
    return bool(pod.spec.scheduling_gates)


def is_leaving(pod: PodObject) -> bool:
    """Whether it was told to go."""
    return pod.metadata.deletion_timestamp is not None


def grace_of(pod: PodObject) -> int:
    """How long it may take to go. Whoever tells it to may give it more or less than it asks for."""
    given, asked = pod.metadata.deletion_grace_period_seconds, pod.spec.termination_grace_period_seconds
    return next((grace for grace in (given, asked) if grace is not None), GRACE_S)


def is_to_begin(pod: PodObject) -> bool:
    """Whether it has its node and no container of it runs or ran; one that prepares the others counts."""
    if not is_bound(pod) or is_leaving(pod) or pod.status.phase not in ("", "Pending"):
        return False
    statuses = (*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ()))
    return not any(each.state is not None and (each.state.running or each.state.terminated) for each in statuses)


def tells_holding(pod: PodObject) -> bool:
    """Whether its kubelet says which devices it gave."""
    return any(status.allocated_resources_status for status in pod.status.container_statuses or ())


def submitted(pod: PodObject) -> float:
    """When it was made."""
    return moment(pod.metadata.creation_timestamp)


def task_of(pod: PodObject, settings: ReadingSettings = DEFAULTS) -> TaskGroup | Refusal:
    """The pod as a task group of one."""
    return group_of(pod.spec, pod.metadata, settings)


def likeness(pod: PodObject, settings: ReadingSettings = DEFAULTS) -> bytes | None:
    """Pods of the same likeness are the same task; None: it has claims, and is read for itself."""
    spec, metadata = pod.spec, pod.metadata
    if spec.resource_claims or any(map(volumes.is_claimed, spec.volumes or ())):
        return None
    known = settings.label_keys or spec.affinity or spec.topology_spread_constraints
    parts = [metadata.annotation(key) for key in devices.PARTS]
    bare = msgspec.structs.replace(spec, node_name="", volumes=None)
    return _encode((bare, metadata.namespace, metadata.labels if known else None, parts))


def group_of(spec: PodSpec, metadata: Metadata, settings: ReadingSettings = DEFAULTS) -> TaskGroup | Refusal:
    """The same for a pod, or for the template of one."""
    needs = amounts.needs_of(spec)
    asked = devices.asked_for(needs, spec, metadata, settings)
    borne = terms.tolerations(spec)
    neighbours = company.company_of(spec, metadata, settings)
    reached = volumes.reach(spec, metadata, settings.storage)
    if isinstance(asked, Refusal):
        return asked
    if isinstance(borne, Refusal):
        return borne
    if isinstance(neighbours, Refusal):
        return neighbours
    if isinstance(reached, Refusal):
        return reached
    selector = {label_key(key): value for key, value in (spec.node_selector or {}).items()}
    if asked.resource:
        selector[GPUS] = asked.resource
    found = TaskGroup(
        request=_request(needs | volumes.attached_by(spec, metadata, settings.storage), asked, spec),
        node_selector=tuple(sorted(selector.items())),
        terms=terms.node_terms(spec, reached),
        likes=terms.node_likes(spec),
        labels=neighbours.labels,
        near=neighbours.near,
        apart=neighbours.apart,
        even=neighbours.even,
        tolerations=borne,
    )
    return readable.values(found)


def _request(needs: amounts.Needs, asked: devices.DevicesAsked, spec: PodSpec) -> Request:
    return Request(
        gpus=asked.gpus,
        share=asked.share,
        gpu_memory=asked.gpu_memory,
        mig=asked.mig,
        cpu=needs.get(CPU, 0),
        memory=needs.get(MEMORY, 0),
        extras=_extras(needs, spec),
    )


def _extras(needs: amounts.Needs, spec: PodSpec | None = None) -> Extras:
    """Whatever else it needs of its node, a slot for a pod and ports of the host among it."""
    rest = {name: amount for name, amount in needs.items() if amount and not _is_counted_apart(name)}
    return tuple(sorted({**rest, **dict.fromkeys(_ports(spec), 1), POD_SLOT: 1}.items()))


def _is_counted_apart(name: str) -> bool:
    return name in (CPU, MEMORY) or devices.is_device(name)


def _ports(spec: PodSpec | None) -> Iterator[str]:
    """Ports of the host by protocol; whichever of its addresses is asked for, to be safe. An init container that is no
    sidecar is over when they count."""
    if spec is None:
        return
    for container in (*(spec.containers or ()), *filter(amounts.is_sidecar, spec.init_containers or ())):
        for port in container.ports or ():
            if port.host_port:
                yield f"{PORT}{port.protocol or 'TCP'}/{port.host_port}"


def taken_by(pod: PodObject) -> amounts.Needs:
    """What one pod takes of its node, ports of the host among it."""
    return amounts.total((amounts.held_by(pod), dict.fromkeys(_ports(pod.spec), 1)))


def attached_by(pod: PodObject, storage: Storage) -> amounts.Needs:
    """Volumes that its node attaches for it, where only so many can be."""
    return volumes.attached_by(pod.spec, pod.metadata, storage)


def load_of(pods: Iterable[PodObject], taken_by: Callable[[PodObject], amounts.Needs] = taken_by) -> Load:
    """What these pods, bound to one node and not over, take of it beside GPUs."""
    there = [pod for pod in pods if not is_over(pod)]
    held = amounts.total(map(taken_by, there))
    rest = {name: amount for name, amount in held.items() if amount and not _is_counted_apart(name)}
    slots = {POD_SLOT: len(there)} if there else {}
    return Load(held.get(CPU, 0), held.get(MEMORY, 0), tuple(sorted({**rest, **slots}.items())))


def excess_of(pod: PodObject) -> Load:
    """What a bound pod of ours holds above what its group asks for, because it is being resized."""
    status = pod.status
    of_containers = status.container_statuses or status.init_container_statuses
    if not (of_containers or status.allocated_resources or status.resources):
        return NO_LOAD
    held, asked = amounts.held_by(pod), amounts.needs_of(pod.spec)
    cpu, memory = (max(0, held.get(name, 0) - asked.get(name, 0)) for name in (CPU, MEMORY))
    return Load(cpu, memory)


def held_by(pod: PodObject, settings: ReadingSettings) -> Request:
    """What a bound pod of ours asks its node for, whatever else of it could not be had here. As a member of its gang it
    has one request: GPUs of one kind, and several parts are parts of one device."""
    needs = amounts.needs_of(pod.spec)
    held = devices.held_by(needs, pod.spec, pod.metadata, settings)
    parts = min(WHOLE, sum(each.share for each in held)) if held[0].share else 0
    return _request(needs, replace(held[0], share=parts), pod.spec)


def standing(pod: PodObject, settings: ReadingSettings) -> TaskGroup:
    """A bound pod as far as it concerns others: what it holds, how it is known, and whom it keeps off."""
    known = company.known_as(pod.spec, pod.metadata, settings)
    return readable.values(TaskGroup(request=held_by(pod, settings), labels=known.labels, apart=known.apart))


def devices_of(pod: PodObject, settings: ReadingSettings) -> tuple[Request, ...]:
    """The GPUs of that alone; of others all that they hold, which may be more than one request can say."""
    if is_ours(pod, settings):
        return (devices_alone(held_by(pod, settings)),)
    needs = amounts.needs_of(pod.spec)
    found = devices.held_by(needs, pod.spec, pod.metadata, settings)
    return tuple(Request(each.gpus, each.share, each.gpu_memory, each.mig) for each in found)


def devices_alone(request: Request) -> Request:
    """The GPUs of a request and nothing else."""
    return Request(gpus=request.gpus, share=request.share, gpu_memory=request.gpu_memory, mig=request.mig)


def devices_wanted(requests: Iterable[Request]) -> int:
    """How many devices, slices or parts of one a pod is to have."""
    return sum(each.gpus + bool(each.shared) + sum(count for _, count in each.mig) for each in requests)


def with_devices(request: Request, gpus: tuple[int, ...], mig: tuple[str, ...]) -> Request:
    """The request of a pod that has these devices, which may be fewer than it asks for."""
    if mig:
        slices = tuple(sorted(Counter(mig).items()))
        return replace(request, gpus=0, share=0, gpu_memory=0, mig=slices)
    if request.shared and gpus:
        return replace(request, gpus=0, mig=())
    return replace(request, gpus=len(gpus), share=0, gpu_memory=0, mig=())
