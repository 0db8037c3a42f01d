"""How much a pod needs, by the rules of kubelet and scheduler: containers, init containers, sidecars, overhead, resize.

Amounts by resource name, CPU in milli-cores, the rest whole; nothing negative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from gpuyard.kube.objects import Amounts, Container, ContainerStatus, PodObject, PodSpec, Resources
from gpuyard.kube.quantities import milli, whole

Needs = dict[str, int]
COUNTED_MAX = 10_000
_encode = msgspec.msgpack.Encoder().encode

CPU, MEMORY = "cpu", "memory"
AMPLE = 1 << 56
"""More than any machine has, and little enough that sums of it stay within 64 bits."""

_POD_LEVEL = (CPU, MEMORY)
_HUGE = "hugepages-"


class _Counted:
    """Amounts that were added up before: pods of one template ask for the same."""

    def __init__(self) -> None:
        self._known: dict[bytes, Needs] = {}

    def of(self, parts: tuple[object, ...], count: Callable[[], Needs]) -> Needs:
        """Read-only: others get the same."""
        key = _encode(parts)
        if key not in self._known:
            if len(self._known) >= COUNTED_MAX:
                self._known.clear()
            self._known[key] = count()
        return self._known[key]


_NEEDED, _HELD = _Counted(), _Counted()


def needs_of(spec: PodSpec) -> Needs:
    """What one pod takes of a node once it is bound there."""
    parts = spec.containers, spec.init_containers, spec.overhead, spec.resources
    return _NEEDED.of(parts, lambda: _needs(spec, lambda each: _asked(each.resources), _pod_level(spec.resources)))


def held_by(pod: PodObject) -> Needs:
    """What a bound pod holds: while it is resized the most of what it asks for, was given, and still uses."""
    spec, status = pod.spec, pod.status
    asked = spec.containers, spec.init_containers, spec.overhead, spec.resources
    given = status.container_statuses, status.init_container_statuses, status.allocated_resources, status.resources
    return _HELD.of((*asked, *given, _resize_is_infeasible(pod)), lambda: _held_by(pod))


def given_to(pod: PodObject) -> tuple[object, ...]:
    """What is told of a resize: as much of a pod's status as what it holds rests on."""
    status = pod.status
    each = [(one.name, one.allocated_resources, one.resources) for one in _statuses(pod)]
    return each, status.allocated_resources, status.resources, _resize_is_infeasible(pod)


def _statuses(pod: PodObject) -> list[ContainerStatus]:
    return [*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ())]


def _held_by(pod: PodObject) -> Needs:
    given = {status.name: status for status in _statuses(pod)}
    hopeless = _resize_is_infeasible(pod)

    def holds(container: Container) -> Needs:
        status = given.get(container.name)
        return _most(_given(status), {} if status and hopeless else _asked(container.resources))

    held = _needs(pod.spec, holds, _held_as_a_whole(pod))
    return _most(held, _amounts(pod.status.allocated_resources)) if pod.spec.resources else held


def _held_as_a_whole(pod: PodObject) -> Needs:
    """The same of what it asks for as a whole. kube-scheduler takes what is told of that for being without overhead."""
    asked, told = _pod_level(pod.spec.resources), pod.status.resources
    given = _most(_amounts(pod.status.allocated_resources), _amounts(told.requests if told else {}))
    wanted = {} if told and _resize_is_infeasible(pod) else asked
    return {name: max(wanted.get(name, 0), given.get(name, 0)) for name in asked}


def _resize_is_infeasible(pod: PodObject) -> bool:
    return any(c.type == "PodResizePending" and c.reason == "Infeasible" for c in pod.status.conditions or ())


def _needs(spec: PodSpec, of: Callable[[Container], Needs], as_a_whole: Needs) -> Needs:
    """All containers and sidecars together, or while it starts an init container and the sidecars so far; what the pod
    has as a whole takes the place of that."""
    running, peak = total(map(of, spec.containers or ())), Needs()
    sidecars: Needs = {}
    for init in spec.init_containers or ():
        if is_sidecar(init):
            sidecars = total((sidecars, of(init)))
            peak = _most(peak, sidecars)
        else:
            peak = _most(peak, total((sidecars, of(init))))
    needs = _most(total((running, sidecars)), peak)
    return total((needs | as_a_whole, _amounts(spec.overhead)))


def is_sidecar(init: Container) -> bool:
    """Whether an init container stays beside the others."""
    return init.restart_policy == "Always"


def _pod_level(resources: Resources | None) -> Needs:
    """What a pod asks for as a whole; only these resources can be asked for so."""
    asked = _asked(resources)
    return {name: amount for name, amount in asked.items() if name in _POD_LEVEL or name.startswith(_HUGE)}


def _asked(resources: Resources | None) -> Needs:
    """A limit without a request is a request."""
    return _amounts({**(resources.limits or {}), **(resources.requests or {})}) if resources else {}


def _given(status: ContainerStatus | None) -> Needs:
    if status is None:
        return {}
    return _most(_amounts(status.allocated_resources), _amounts(status.resources.requests if status.resources else {}))


def _amounts(amounts: Amounts | None) -> Needs:
    return {name: amount_of(name, amounts) for name in amounts or ()}


def amount_of(name: str, amounts: Amounts | None) -> int:
    """One amount in the unit of its resource; 0 if it is not there."""
    found = (amounts or {}).get(name)
    return max(0, min(AMPLE, milli(found) if name == CPU else whole(found)))


def total(parts: Iterable[Mapping[str, int]]) -> Needs:
    """All of them together."""
    added: Needs = {}
    for part in parts:
        for name, amount in part.items():
            added[name] = min(AMPLE, added.get(name, 0) + amount)
    return added


def _most(one: Mapping[str, int], other: Mapping[str, int]) -> Needs:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}
