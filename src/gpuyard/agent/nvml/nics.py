"""The network devices of this machine as its kernel lists them under /sys, and where on PCI each lies.

Used by `library`, beside what NVML tells of the GPUs. Which GPUs a NIC is near to is `discovery`'s to say. What has no
PCI device of its own (bridges, tunnels, USB) is left out, and so are virtual functions: their NIC is told once.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable, Iterator
from typing import TypeVar

from gpuyard.agent.nvml.facts import FAILED, NOT_SUPPORTED, Count, Nic, NicClass, NotTold, Words

SYS = pathlib.Path("/sys")
_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_BUS = re.compile(r"virtio\d+")
"""What stands between a PCI device of a virtual machine and its NIC."""
_RATE = re.compile(r"(\d+(?:\.\d+)?) Gb/sec")
CLASSES: tuple[NicClass, ...] = ("infiniband", "net")
T = TypeVar("T")


def nics(sys: pathlib.Path = SYS) -> tuple[Nic, ...]:
    """Each by its name, those of RDMA first. A NIC that has both names is told under both, at one address."""
    return tuple(nic for kind in CLASSES for nic in _of_class(sys, kind))


def pci_path(sys: pathlib.Path, address: str) -> Words:
    """The bridges from the host down to a device, as `pci0000:17/0000:17:01.0/0000:18:00.0`."""
    path = sys / "bus" / "pci" / "devices" / address
    try:
        return "/".join(_pci_parts(path.resolve(strict=True)))
    except (OSError, RuntimeError) as error:
        return NotTold(FAILED, str(error))


def _of_class(sys: pathlib.Path, kind: NicClass) -> Iterator[Nic]:
    for place in sorted((sys / "class" / kind).glob("*")):
        device = _device(place)
        if device is not None:
            yield _nic(place, kind, device)


def _device(place: pathlib.Path) -> pathlib.Path | None:
    """The PCI device behind a name. None is an answer, an exception would cost the GPUs their facts."""
    try:
        device = (place / "device").resolve(strict=True)
        device = device.parent if _BUS.fullmatch(device.name) else device
        return device if _ADDRESS.fullmatch(device.name) and not (device / "physfn").exists() else None
    except (OSError, RuntimeError):  # nothing of hardware is behind it, or it has just gone
        return None


def _nic(place: pathlib.Path, kind: NicClass, device: pathlib.Path) -> Nic:
    link = _port(place) if kind == "infiniband" else place
    state, speed = ("state", "rate") if kind == "infiniband" else ("operstate", "speed")
    return Nic(
        name=place.name,
        kind=kind,
        bus=device.name,
        pci_path="/".join(_pci_parts(device)),
        numa=_read(device / "numa_node", int),
        state=_read(link / state, lambda text: text.rpartition(": ")[2].lower()),
        speed_mbps=_speed(link / speed, _rate if kind == "infiniband" else int),
    )


def _port(place: pathlib.Path) -> pathlib.Path:
    """The one that carries something, of those that it has; else the first."""
    ports = sorted((place / "ports").glob("*"))
    live = [port for port in ports if _read(port / "state", lambda text: "ACTIVE" in text) is True]
    return next(iter([*live, *ports]), place / "ports" / "1")


def _speed(path: pathlib.Path, reading: Callable[[str], int]) -> Count:
    """A link that is down has none: the kernel says -1, or refuses."""
    speed = _read(path, reading)
    return speed if isinstance(speed, NotTold) or speed > 0 else NotTold(NOT_SUPPORTED)


def _rate(text: str) -> int:
    found = _RATE.match(text)
    return int(float(found[1]) * 1000) if found else 0


def _read(path: pathlib.Path, reading: Callable[[str], T]) -> T | NotTold:
    try:
        return reading(path.read_text(encoding="ascii").strip())
    except FileNotFoundError:
        return NotTold(NOT_SUPPORTED)
    except (OSError, ValueError) as error:
        return NotTold(FAILED, str(error))


def _pci_parts(device: pathlib.Path) -> list[str]:
    """From the host's bridge on: what the kernel puts above it is no PCI."""
    parts = list(device.parts)
    first = next((at for at, part in enumerate(parts) if part.startswith("pci") and ":" in part), len(parts) - 1)
    return parts[first:]
