"""How it is kept which devices a pod has, for one request or for several. Pure; used by `seats` and `gangs`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from gpuyard.model.resources import Request
from gpuyard.worlds.kubernetes import pods

Held = tuple[tuple[int, ...], tuple[str, ...]]
"""Device numbers, and for slices the profile of each: "" for what is none beside them. Who holds several parts has a
number for each."""


def parted(held: Held, requests: Sequence[Request]) -> list[tuple[Request, Held]]:
    """Which of a pod's devices it has for which of its requests: slices are known by their profiles, and whole devices
    come before parts."""
    if len(requests) == 1:
        return [(requests[0], held)]
    sliced = [(index, profile) for index, profile in _one_by_one(held) if profile]
    others = iter([index for index, profile in _one_by_one(held) if not profile])
    return [
        (each, slices_held(sliced) if each.mig else (tuple(islice(others, pods.devices_wanted((each,)))), ()))
        for each in requests
    ]


def together(seats: Sequence[Held]) -> Held:
    """All that a pod has for its requests, in their order."""
    if len(seats) == 1:
        return seats[0]
    gpus, profiles = slices_held([each for held in seats for each in _one_by_one(held)])
    return gpus, profiles if any(profiles) else ()


def _one_by_one(held: Held) -> list[tuple[int, str]]:
    gpus, mig = held
    return list(zip(gpus, mig or ("",) * len(gpus), strict=True))


def slices_held(one_by_one: Sequence[tuple[int, str]]) -> Held:
    """Slices with their devices, as they are kept."""
    return tuple(index for index, _ in one_by_one), tuple(profile for _, profile in one_by_one)
