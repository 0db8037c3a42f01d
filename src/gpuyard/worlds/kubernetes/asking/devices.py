"""Which GPUs a pod asks for: whole ones, slices, or a part of one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from gpuyard.kube.objects import Metadata, NodeTerm, PodSpec
from gpuyard.model.resources import MILLI, WHOLE
from gpuyard.worlds.kubernetes.asking.amounts import AMPLE, Needs
from gpuyard.worlds.kubernetes.asking.marks import (
    DIVIDED_GPU,
    FRACTION,
    GPU_MEMORY,
    KAI_FRACTION,
    KAI_MEMORY,
    MIG_PREFIX,
    PRODUCT,
    REPLICAS,
    SHARED_GPU,
    SHARING,
    WHOLE_GPUS,
    ReadingSettings,
)  # fmt: skip
from gpuyard.worlds.kubernetes.asking.refusals import Refusal, RefusalName

MIB = 1 << 20
MANY = 10_000
"""Devices that no node has; more of them need no counting."""
MANY_SLICES = 448
"""Seven of each device of the largest node."""
_PART = re.compile(r"[0-9./]{1,40}([eE][+-]?[0-9]{1,2})?")
"""No larger exponent: it would be written out, digit by digit."""
_SLICE = re.compile(r"[1-7]g\.[0-9]{1,4}gb(\+[a-z.]+)?")


@dataclass(frozen=True, slots=True)
class DevicesAsked:
    """What of the GPUs; `resource` is the name they are had by, which nodes must offer."""

    gpus: int = 0
    share: int = 0
    gpu_memory: int = 0
    mig: tuple[tuple[str, int], ...] = ()
    resource: str = ""


NONE = DevicesAsked()


PARTS = (FRACTION, KAI_FRACTION, GPU_MEMORY, KAI_MEMORY)
"""The annotations that are read here."""


def is_device(resource: str) -> bool:
    """Whether a resource is a GPU, or part of one."""
    return resource in WHOLE_GPUS or resource == SHARED_GPU or is_slice(resource)


def is_slice(resource: str) -> bool:
    """Whether it is a MIG slice of a size that is known; whatever else is called like one is counted as any other
    resource is, for nobody knows how much of a device it takes."""
    return resource.startswith(MIG_PREFIX) and _SLICE.fullmatch(profile_of(resource)) is not None


def profile_of(resource: str) -> str:
    """The MIG profile of a resource name: `nvidia.com/mig-1g.10gb.me` is `1g.10gb+me`."""
    slice_, _, media = resource.removeprefix(MIG_PREFIX).partition("gb")
    return f"{slice_}gb{media.replace('.', '+', 1)}"


def asked_for(needs: Needs, spec: PodSpec, metadata: Metadata, settings: ReadingSettings) -> DevicesAsked | Refusal:
    """The devices among a pod's needs, and what its annotations say of parts."""
    asked = {name: min(amount, MANY) for name, amount in sorted(needs.items()) if amount and is_device(name)}
    kinds = {MIG_PREFIX if is_slice(name) else name for name in asked}
    part = metadata.annotation(FRACTION) or metadata.annotation(KAI_FRACTION)
    memory = metadata.annotation(GPU_MEMORY) or metadata.annotation(KAI_MEMORY)
    if len(kinds) + bool(part) + bool(memory) > 1:
        names = [*asked, *(["a fraction of one"] if part else []), *(["memory of one"] if memory else [])]
        return Refusal(
            RefusalName.TWO_KINDS_OF_GPU, f"it asks for {' and '.join(names)}, and a pod has GPUs of one kind"
        )
    if part or memory:
        return _part(part, memory, settings)
    if not kinds:
        return NONE
    if MIG_PREFIX in kinds:
        return DevicesAsked(mig=_slices(asked))
    name, count = next(iter(asked.items()))
    divided = name == WHOLE_GPUS[0] and _means_divided(spec)
    if name != SHARED_GPU and not divided:
        return DevicesAsked(gpus=count, resource=name)
    if count > 1:
        told = f"it asks for {count} {name}, which would be parts of perhaps one device; ask for 1"
        return Refusal(RefusalName.SHARED_COUNT, told)
    return DevicesAsked(share=_replica(settings), resource=DIVIDED_GPU if divided else name)


def _means_divided(spec: PodSpec) -> bool:
    """Whether it may only go where devices are divided, for it names a label that is told of those alone. Whoever does
    not say so is given whole devices."""
    if any(_tells_of_parts(key, (value,)) for key, value in (spec.node_selector or {}).items()):
        return True
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    terms = (required.node_selector_terms or ()) if required else ()
    return bool(terms) and all(map(_asks_for_parts, terms))


def _asks_for_parts(term: NodeTerm) -> bool:
    return any(
        each.operator == "In" and _tells_of_parts(each.key, each.values or ()) for each in term.match_expressions or ()
    )


def _tells_of_parts(label: str, values: Iterable[str]) -> bool:
    return bool(values) and all(
        (label == REPLICAS and value.isdecimal() and value not in ("0", "1"))
        or (label == SHARING and value in ("time-slicing", "mps"))
        or (label == PRODUCT and value.endswith("-SHARED"))
        for value in values
    )


def held_by(needs: Needs, spec: PodSpec, metadata: Metadata, settings: ReadingSettings) -> tuple[DevicesAsked, ...]:
    """The same of a pod that has its node already. One that could not be had here holds devices all the same: whole
    ones, slices, and parts, each of them for itself, for which lie on one device is not told."""
    asked = asked_for(needs, spec, metadata, settings)
    if isinstance(asked, DevicesAsked):
        return (asked,)
    whole = min(sum(needs.get(name, 0) for name in WHOLE_GPUS), MANY)
    slices = _slices({name: amount for name, amount in needs.items() if amount and is_slice(name)})
    parts = min(needs.get(SHARED_GPU, 0), MANY)
    held = DevicesAsked(gpus=whole), DevicesAsked(mig=slices), *(DevicesAsked(share=_replica(settings)),) * parts
    return tuple(each for each in held if each != NONE) or (NONE,)


def _slices(asked: Needs) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((profile_of(name), min(count, MANY_SLICES)) for name, count in asked.items()))


def _replica(settings: ReadingSettings) -> int:
    """The part of a device that each of those is that share it."""
    return max(MILLI, WHOLE // max(1, settings.replicas))


def _part(part: str, memory: str, settings: ReadingSettings) -> DevicesAsked | Refusal:
    if not settings.fractions:
        told = "it asks for part of a GPU by annotation, and nobody on these nodes holds tasks to their part"
        return Refusal(RefusalName.SHARING_NOT_OFFERED, told)
    if memory:
        return DevicesAsked(gpu_memory=int(memory) * MIB) if _counts(memory) else _bad_part("gpu-memory", memory)
    share = _share(part)
    return DevicesAsked(share=share) if MILLI <= share <= WHOLE else _bad_part("gpu-fraction", part)


def _counts(text: str) -> bool:
    return text.isascii() and text.isdecimal() and 0 < int(text[:20]) <= AMPLE // MIB


def _share(text: str) -> int:
    found = _PART.fullmatch(text)
    try:
        return int(Fraction(found[0]) * WHOLE) if found else 0
    except (ValueError, ZeroDivisionError):
        return 0


def _bad_part(key: str, text: str) -> Refusal:
    return Refusal(RefusalName.SHARING_NOT_OFFERED, f"its annotation {key} is {text[:40]!r}, which is no part of a GPU")
