"""One node in the model's words. Pure: API objects in, values out.

`is_managed(node)` tells whether it is kept at all; `node_of(node, load, before, settings, holding)` gives the model's
node: its inventory from labels and allocatable, taints, what others take, and why it is closed, if it is. `before` is
what was told of it last: a kubelet that restarts forgets its GPUs for a moment, and we do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import msgspec

from gpuyard.files.data.gpu_models import architecture_of, memory_of
from gpuyard.kube.definitions.gpu_nodes import GpuNodeObject
from gpuyard.kube.objects import Amounts, Metadata, NodeObject, NodeTaint, Projection
from gpuyard.kube.quantities import whole
from gpuyard.model.node import CORDONED, NO_LOAD, Alignment, Closure, Effect, Gpu, Health, Load, Node, Taint
from gpuyard.worlds.kubernetes.asking import levels
from gpuyard.worlds.kubernetes.asking.amounts import AMPLE, CPU, MEMORY, amount_of
from gpuyard.worlds.kubernetes.asking.devices import MIB, is_device, is_slice, profile_of
from gpuyard.worlds.kubernetes.asking.marks import (
    DEFAULTS,
    DIVIDED_GPU,
    DRAIN,
    GPUS,
    POOL,
    PRODUCT,
    REPLICAS,
    SHARED_GPU,
    WHOLE_GPUS,
    ReadingSettings,
)  # fmt: skip
from gpuyard.worlds.kubernetes.asking.selectors import label_key
from gpuyard.worlds.kubernetes.asking.volumes import attachable_on

COUNT, GPU_MEMORY, FAMILY = (f"nvidia.com/gpu.{name}" for name in ("count", "memory", "family"))
DEVICES_MAX = 62
"""More devices of one node than this are not told apart; the rest is left idle."""
SLICES = 7

_LIFECYCLE = "node.kubernetes.io/"
_TOLD_OTHERWISE = {_LIFECYCLE + name for name in ("not-ready", "unreachable", "unschedulable")}
"""Taints that only repeat what closes the node."""
_DRAINERS = {
    "ToBeDeletedByClusterAutoscaler": "the cluster autoscaler",
    "karpenter.sh/disrupted": "Karpenter",
}
"""Taints by which others tell that a node is to be emptied."""
_FAMILIES = {"ada-lovelace": "ada"}
_DECORATION = re.compile(r"^(?:NVIDIA-)?(?:Tesla-)?|-SHARED$")


@dataclass(frozen=True, slots=True)
class Holding:
    """Who holds what of its GPUs now: device numbers, and how many of those held are known to be sick."""

    held: frozenset[int] = frozenset()
    sick_held: int = 0


NOBODY = Holding()


def is_managed(node: NodeObject) -> bool:
    """Whether we look after it: it has GPUs, or bears the label of a pool."""
    known = {**(node.status.capacity or {}), **(node.status.allocatable or {})}
    return any(is_device(name) for name in known) or _has_count(node) or POOL in (node.metadata.labels or {})


def node_of(
    node: NodeObject,
    load: Load = NO_LOAD,
    before: Node | None = None,
    settings: ReadingSettings = DEFAULTS,
    holding: Holding = NOBODY,
) -> Node:
    """The node as the brain sees it."""
    labels = node.metadata.labels or {}
    resource = _resource(node)
    gpus, away = _inventory(node, resource, before, holding, settings.replicas)
    model = _DECORATION.sub("", labels.get(PRODUCT, "")) if gpus else ""
    seen = {label_key(key): value for key, value in labels.items()} | ({GPUS: resource} if resource else {})
    closed = _closed(node) or _two_kinds(node) or away
    return Node(
        name=node.metadata.name,
        pool=labels.get(POOL, ""),
        model=model,
        architecture=_architecture(labels, model),
        gpu_memory=min(AMPLE, max(0, whole(labels.get(GPU_MEMORY))) * MIB) or memory_of(model),
        gpus=gpus,
        cpu=amount_of(CPU, node.status.allocatable),
        memory=amount_of(MEMORY, node.status.allocatable),
        domains=levels.domains_of(labels, settings.levels),
        labels=tuple(sorted(seen.items())),
        taints=tuple(_taint(taint) for taint in node.spec.taints or () if _repels(taint, closed)),
        closed=closed,
        taken=load,
        extras=tuple(sorted((*_extras(node), *attachable_on(node.metadata.name, settings.storage)))),
    )


def _extras(node: NodeObject) -> Iterator[tuple[str, int]]:
    """Whatever else it offers."""
    for name in node.status.allocatable or ():
        if name not in (CPU, MEMORY) and not is_device(name):
            yield name, amount_of(name, node.status.allocatable)


def _architecture(labels: dict[str, str], model: str) -> str:
    family = labels.get(FAMILY, "").lower()
    return architecture_of(model) or _FAMILIES.get(family, family)


# --- GPUs ----------------------------------------------------------------------------------------


def _has_count(node: NodeObject) -> bool:
    return whole(node.metadata.label(COUNT)) > 0


def _resource(node: NodeObject) -> str:
    """The name by which its GPUs are had; slices have names of their own."""
    there = _kinds(node)
    sliced = any(map(is_slice, {**(node.status.allocatable or {}), **(node.status.capacity or {})}))
    name = there[0] if there else WHOLE_GPUS[0] if _has_count(node) and not sliced else ""
    return DIVIDED_GPU if name == WHOLE_GPUS[0] and _parts_of(node) > 1 else name


def _kinds(node: NodeObject) -> list[str]:
    known = {**(node.status.allocatable or {}), **(node.status.capacity or {})}
    return [name for name in (*WHOLE_GPUS, SHARED_GPU) if whole(known.get(name))]


def _parts_of(node: NodeObject) -> int:
    return whole(node.metadata.label(REPLICAS))


def _two_kinds(node: NodeObject) -> Closure | None:
    """Devices of only one kind are told apart on a node, and whoever has others would be taken to have those."""
    there = " and ".join(_kinds(node))
    return Closure(reason=f"it offers {there}, and GPUs of one kind are had on a node") if " and " in there else None


def _inventory(
    node: NodeObject, resource: str, before: Node | None, holding: Holding, parts: int
) -> tuple[tuple[Gpu, ...], Closure | None]:
    """Its devices, and whether whoever advertises them is away."""
    status = node.status
    there, usable = _devices(status.capacity, resource, parts), _devices(status.allocatable, resource, parts)
    slices = _sliced(node, there)
    if there and not usable and not slices:
        return _kept(before, there), PLUGIN_AWAY
    if there or slices:
        sick = max(0, there - usable - holding.sick_held)
        return (_sound(there) if not sick else tuple(_plain(there, sick, holding))) + slices, None
    if before is not None and before.gpus:
        return before.gpus, PLUGIN_AWAY
    count = min(whole(node.metadata.label(COUNT)), DEVICES_MAX)
    return _sound(count), PLUGIN_AWAY if count else None


PLUGIN_AWAY = Closure(reason="its GPUs are not offered: the device plugin is away")


def _kept(before: Node | None, count: int) -> tuple[Gpu, ...]:
    if before is not None and len(before.gpus) == count:
        return before.gpus
    return _sound(count)


@cache
def _sound(count: int) -> tuple[Gpu, ...]:
    """Devices of which nothing is told: the same for all nodes of so many."""
    return tuple(map(Gpu, range(count)))


def _devices(amounts: Amounts | None, resource: str, parts: int) -> int:
    """How many there are; of those that are divided so many parts stand for one device. Where a node divides its own
    into more, they are as many more: what counts is that no part is there twice."""
    name = WHOLE_GPUS[0] if resource == DIVIDED_GPU else resource
    count = whole((amounts or {}).get(name)) if name else 0
    if resource in (SHARED_GPU, DIVIDED_GPU):
        count //= max(1, parts)
    return max(0, min(count, DEVICES_MAX))


def replicas_of(node: NodeObject) -> int | None:
    """Into how many parts each of its devices is divided; 0 where none is, None while it offers no devices."""
    if not _kinds(node):
        return None
    return max(1, _parts_of(node)) if _resource(node) in (SHARED_GPU, DIVIDED_GPU) else 0


def withheld(node: NodeObject) -> int:
    """How many of its devices its kubelet does not offer."""
    resource, parts = _resource(node), max(1, replicas_of(node) or 0)
    there = _devices(node.status.capacity, resource, parts)
    return max(0, there - _devices(node.status.allocatable, resource, parts))


def _plain(there: int, sick: int, holding: Holding) -> list[Gpu]:
    """Whole devices; so many of those that nobody holds are sick, the last first, until an agent tells which."""
    idle = [index for index in range(there) if index not in holding.held]
    bad = set(idle[len(idle) - min(sick, len(idle)) :])
    return [Gpu(index, health=Health.SICK if index in bad else Health.HEALTHY) for index in range(there)]


def _sliced(node: NodeObject, first: int) -> tuple[Gpu, ...]:
    """MIG slices laid on devices: which slice is on which is not told, only that no device has more than it can."""
    amounts = node.status.allocatable or {}
    slices = [profile_of(name) for name in sorted(amounts) if is_slice(name) for _ in _each(amounts[name])]
    laid: list[list[str]] = []
    room: list[int] = []
    for profile in sorted(slices, key=lambda profile: (-_width(profile), profile)):
        place = next((i for i, free in enumerate(room) if free >= _width(profile)), len(room))
        if place == len(room):
            laid.append([])
            room.append(SLICES)
        laid[place].append(profile)
        room[place] -= _width(profile)
    room_left = max(0, DEVICES_MAX - first)
    return tuple(Gpu(first + i, slices=tuple(sorted(on))) for i, on in enumerate(laid[:room_left]))


def _each(amount: object) -> range:
    return range(min(whole(str(amount)), SLICES * DEVICES_MAX))


def _width(profile: str) -> int:
    head = profile.split("g.", 1)[0]
    return min(SLICES, int(head)) if head.isdecimal() else 1


# --- what its agent tells ---------------------------------------------------------------------------

_HEALTH = {"sick": Health.SICK, "suspect": Health.SUSPECT, "unknown": Health.SUSPECT}
"""What its agent does not know it does not vouch for: such a GPU is used last."""


_ALIGNMENTS = {each.value: each for each in Alignment}
"""Other policies only prefer."""


def with_agent(node: Node, found: GpuNodeObject | None, settings: ReadingSettings = DEFAULTS) -> Node:
    """With what its agent tells: its clique; of the very devices UUIDs, islands and health."""
    if found is None:
        return node
    return _in_clique(_with_devices(node, found), found.spec.clique, settings)


def _with_devices(node: Node, found: GpuNodeObject) -> Node:
    """Where its agent tells of as many devices as there are.

    Devices that the kubelet holds back and the agent vouches for stay sick: whichever they are, so many are missing.
    """
    plain = [gpu for gpu in node.gpus if gpu.slices is None]
    facts = [gpu for gpu in sorted(found.spec.gpus, key=lambda gpu: gpu.index) if not gpu.mig]
    if len(facts) != len(plain) or not facts:
        return node
    health = {each.uuid: _HEALTH.get(each.health, Health.HEALTHY) for each in found.status.gpus}
    told = {
        gpu.index: replace(
            gpu, uuid=fact.uuid, island=fact.island, switch=fact.switch, numa=fact.numa,
            health=health.get(fact.uuid, Health.SUSPECT),
        )
        for gpu, fact in zip(plain, facts, strict=True)
    }  # fmt: skip
    missing = sum(gpu.sick for gpu in plain) - sum(gpu.sick for gpu in told.values())
    for gpu in [gpu for gpu in plain if gpu.sick and not told[gpu.index].sick][: max(0, missing)]:
        told[gpu.index] = replace(told[gpu.index], health=Health.SICK)
    insists = _ALIGNMENTS.get(found.spec.topology_policy, Alignment.NONE)
    return replace(node, gpus=tuple(told.get(gpu.index, gpu) for gpu in node.gpus), alignment=insists)


def _in_clique(node: Node, clique: str, settings: ReadingSettings) -> Node:
    """With the other nodes that its GPUs reach over NVLink, also where nobody has copied that to a label."""
    known = dict(node.labels)
    if not clique or known.get(levels.GPU_CLIQUE):
        return node
    told = {**known, levels.GPU_CLIQUE: clique}
    return replace(node, domains=levels.domains_of(told, settings.levels))


def keeps_devices(before: Node, now: Node) -> bool:
    """Whether it has the very devices that it had."""
    return before.gpus is now.gpus or _known_by(before) == _known_by(now)


def _known_by(node: Node) -> list[tuple[object, ...]]:
    return [(gpu.index, gpu.slices, gpu.uuid) for gpu in node.gpus]


# --- conditions ----------------------------------------------------------------------------------


def _closed(node: NodeObject) -> Closure | None:
    """Why nothing new goes there: somebody cordoned or drains it, or its kubelet does not answer for it."""
    if node.spec.unschedulable:
        return drain_of(node.metadata) or CORDONED
    for taint in node.spec.taints or ():
        if taint.key in _DRAINERS:
            return Closure(by=_DRAINERS[taint.key], drains=True)
    if node.metadata.deletion_timestamp is not None:
        return Closure(reason="it is being deleted")
    ready = next((c for c in node.status.conditions or () if c.type == "Ready"), None)
    if ready is None or ready.status != "True":
        word = "not reachable" if ready is not None and ready.status == "Unknown" else "not ready"
        return Closure(reason=f"{word}: {ready.message}" if ready is not None and ready.message else word)
    return None


class _Drain(Projection, frozen=True):
    reason: str = ""
    by: str = ""
    force: bool = False


def drain_of(metadata: Metadata) -> Closure | None:
    """How `yard drain` closed it; a mark that cannot be read drains nothing."""
    told = metadata.annotation(DRAIN)
    try:
        drain = msgspec.json.decode(told, type=_Drain) if told else None
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    return Closure(drain.reason, drain.by, drains=True, force=drain.force) if drain is not None else None


def drain_mark(closure: Closure) -> str:
    """The same as it is written."""
    return msgspec.json.encode(_Drain(closure.reason, closure.by, closure.force)).decode()


def drained_by_others(node: Node) -> Node:
    """The node cordoned by somebody who has begun to evict pods from it: whoever may be disturbed goes with them."""
    return replace(node, closed=Closure(by="whoever cordoned it", drains=True)) if node.closed == CORDONED else node


def _repels(taint: NodeTaint, closed: Closure | None) -> bool:
    return closed is None or taint.key not in _TOLD_OTHERWISE


def _taint(taint: NodeTaint) -> Taint:
    """An effect that nobody knows keeps off: rather too careful."""
    known = {effect.value: effect for effect in Effect}
    return Taint(taint.key, taint.value, known.get(taint.effect, Effect.NO_SCHEDULE))


def avoided(node: Node, reason: str, since: float) -> Node:
    """The node closed by us for a while: it refused a pod, or let one not start."""
    return node if node.closed is not None else replace(node, closed=Closure(reason=reason, since=since))
