"""The one door to NVIDIA's management library: what GPUs this machine has and how they are linked.

Called by `discovery`. The library is loaded on the first question; where there is no driver there are no GPUs, which is
no error. Everything else NVML knows (health, use) has its own modules later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

LINKS_MAX = 18
"""NVLink ports of the largest GPUs (Hopper, Blackwell)."""

SWITCH = "switch"
"""What a link leads to when it leads to an NVSwitch: all GPUs behind one are joined."""

ARCHITECTURES = {
    2: "kepler", 3: "maxwell", 4: "pascal", 5: "volta", 6: "turing", 7: "ampere", 8: "ada", 9: "hopper",
    10: "blackwell",
}  # fmt: skip
"""NVML_DEVICE_ARCH_* of nvml.h."""

REMOTE_SWITCH = 2
"""NVML_NVLINK_DEVICE_TYPE_SWITCH of nvml.h."""


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU as the driver describes it. `links` has the bus ids of its NVLink peers, or `switch`."""

    index: int
    uuid: str
    name: str
    memory: int
    bus: str
    architecture: str = ""
    links: frozenset[str] = frozenset()
    slices: tuple[str, ...] | None = None
    slice_uuids: tuple[str, ...] = ()
    """The MIG devices' own UUIDs, in the order of `slices`: CUDA knows a slice by no other name."""


def devices(library: Any = None) -> list[Device]:
    """Every GPU of this machine; none where there is no driver."""
    with _opened(library) as nvml:
        if nvml is None:
            return []
        return [_device(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]


@contextlib.contextmanager
def _opened(library: Any) -> Iterator[Any]:
    nvml = library or _driver()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def _driver() -> Any:
    import pynvml

    return pynvml


def _device(nvml: Any, index: int) -> Device:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    slices = _slices(nvml, handle)
    return Device(
        index=index,
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        name=_text(nvml.nvmlDeviceGetName(handle)),
        memory=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        bus=_bus(nvml.nvmlDeviceGetPciInfo(handle)),
        architecture=_architecture(nvml, handle),
        links=frozenset(_links(nvml, handle)),
        slices=None if slices is None else tuple(profile for profile, _ in slices),
        slice_uuids=tuple(uuid for _, uuid in slices or ()),
    )


def _architecture(nvml: Any, handle: Any) -> str:
    try:
        return ARCHITECTURES.get(int(nvml.nvmlDeviceGetArchitecture(handle)), "")
    except nvml.NVMLError:
        return ""


def _links(nvml: Any, handle: Any) -> Iterator[str]:
    for link in range(LINKS_MAX):
        try:
            if not nvml.nvmlDeviceGetNvLinkState(handle, link):
                continue
            if nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link) == REMOTE_SWITCH:
                yield SWITCH
            else:
                yield _bus(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link))
        except nvml.NVMLError:  # no such port, or a card without NVLink
            continue


def _slices(nvml: Any, handle: Any) -> list[tuple[str, str]] | None:
    """Profile and UUID of each slice that a GPU is cut into; None where it is whole."""
    try:
        if not nvml.nvmlDeviceGetMigMode(handle)[0]:
            return None
        most = nvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except nvml.NVMLError:
        return None
    found = []
    for index in range(most):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            profile = _text(nvml.nvmlDeviceGetName(part)).rpartition("MIG ")[2]
            found.append((profile, _text(nvml.nvmlDeviceGetUUID(part))))
        except nvml.NVMLError:
            continue
    return sorted(found)


def _bus(info: Any) -> str:
    return _text(info.busId).lower()


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
