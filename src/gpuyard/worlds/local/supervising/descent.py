"""Everything that came of a process, and the kernel's own word that it is gone.

Used by `supervisor`. A subreaper inherits whatever below it loses its parent: leaving the session, the process group or
the environment leads nobody out of its descent. So "no children" proves that nothing is left. Light on purpose: it is
loaded with every supervisor.

Should the subreapers themselves be killed, a brand tells whom they would have inherited: a resource limit that limits
nothing (how long a real-time thread may compute without a pause: thousands of years) and that every fork and every
program inherits. Whoever sets out to can lower it; nobody but root raises it.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # the same without its enums, which take as long as Python's own start

PR_SET_CHILD_SUBREAPER = 36
UNLIMITED = 1 << 62
WALL = 0x40000000
"""__WALL of wait.h: children of every kind, also those that tell nobody of their end."""


def inherit_orphans() -> None:
    """From now on whatever below us loses its parent becomes our child. A fork does not pass this on."""
    import ctypes

    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this kernel knows no subreapers")


def brand() -> int:
    """Burn a number into ourselves and all that will come of us; 0 where such a limit is in use."""
    import resource

    _, now = resource.getrlimit(resource.RLIMIT_RTTIME)
    most = now if now >= 0 else UNLIMITED
    if most < UNLIMITED >> 16:
        return 0
    number = most // 2 + int.from_bytes(os.urandom(8), "little") % (most // 2)
    resource.setrlimit(resource.RLIMIT_RTTIME, (number, number))
    return number


def brand_of(pid: int) -> int:
    """The number a process bears; `UNLIMITED` for none, 0 if that cannot be known."""
    try:
        with open(f"/proc/{pid}/limits", encoding="ascii") as file:
            hard = next((line.split()[4] for line in file if line.startswith("Max realtime timeout")), "0")
    except (OSError, IndexError):
        return 0
    return UNLIMITED if hard == "unlimited" else int(hard)


def end_all() -> tuple[dict[int, int], bool]:
    """Kill all that came of us; those reaped with their status, and whether nothing is left. Never waits."""
    for pid in below(os.getpid()):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue
    return reap()


def reap() -> tuple[dict[int, int], bool]:
    """The children that have ended, with their status, and whether there are no others."""
    found: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG | WALL)
        except ChildProcessError:
            return found, True
        if not pid:
            return found, False
        found[pid] = status


def below(top: int) -> list[int]:
    """All descendants, those nearest to the top first: killed in this order, none is born behind our back for long."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found = list(children.get(top, ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def parents() -> dict[int, int]:
    """Every process of the machine and its parent; those that are dead but not buried are left out."""
    found: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = stat(int(name))
            if fields and fields[0] != "Z":
                found[int(name)] = int(fields[1])
    return found


def stat(pid: int) -> list[str]:
    """/proc/PID/stat from the state on: state, parent, ...; empty if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode().split()
    except OSError:
        return []
