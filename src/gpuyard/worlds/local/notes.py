"""The small files by which a supervisor and the control plane know of each other, and who a process is.

Each is `key NUL value NUL ...`; keys may repeat. Light on purpose: it is loaded with every supervisor.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # what `typing` would say; importing it costs as much as all the rest
if TYPE_CHECKING:
    from collections.abc import Iterable

Pairs = list[tuple[str, str]]


def read_pairs(path: str) -> Pairs:
    """What a file says."""
    with open(path, "rb") as file:
        parts = os.fsdecode(file.read()).split("\0")
    return list(zip(parts[0::2], parts[1::2], strict=False))


def write_pairs(path: str, pairs: Iterable[tuple[str, str]]) -> None:
    """All of it or nothing: a reader never sees half a file."""
    fresh = f"{path}.{os.getpid()}"
    with open(fresh, "wb") as file:
        file.write(os.fsencode("".join(f"{key}\0{value}\0" for key, value in pairs)))
    os.replace(fresh, path)


def identity(pid: int) -> Pairs:
    """Who a process is: a pid alone is used again, its start time in this boot is not."""
    return [("pid", str(pid)), ("ticks", start_ticks(pid)), ("boot", boot_id())]


def start_ticks(pid: int) -> str:
    """When a process began, in ticks since boot; empty if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""


def boot_id() -> str:
    """The kernel's name for the time since the machine came up."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


class Order:
    """What to run, and how."""

    def __init__(self, pairs: Pairs) -> None:
        self.values = dict(pairs)
        self.command = [value for key, value in pairs if key == "arg"]
        self.env = dict(value.split("=", 1) for key, value in pairs if key == "env")

    def text(self, key: str) -> str:
        """A value, or nothing."""
        return self.values.get(key, "")

    def number(self, key: str) -> float:
        """A number, or 0."""
        return float(self.values.get(key) or 0)
