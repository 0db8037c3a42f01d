"""What is true about a task, read from its folder and from the kernel: after a crash, and when a supervisor dies.

Called by `launch`. A process is known by pid, start time and boot together: a pid alone may be somebody else's by now.
That a task is gone is never assumed: its supervisor said so last (`exit`, which it writes when the kernel has said so),
or it is proven here (`prove`), or it is in doubt, and its devices are kept from others for as long.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from math import inf

from gpuyard.model.answers.progress import Progress
from gpuyard.model.outside.ports import Clock
from gpuyard.worlds.local.supervising import descent
from gpuyard.worlds.local.supervising.confine import clear, path_of, removed
from gpuyard.worlds.local.supervising.notes import Order, read_pairs, start_ticks
from gpuyard.worlds.local.supervising.stopping import KILL

TOLD = ("ready", "running", "hindered", "progress")
"""What a supervisor tells while it lives, each in a file of that name."""
SUSPECTS_NAMED = 3
MANAGERS = ("systemd", "init")
"""Programs that inherit the orphans of others, besides process 1 and whoever started us."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A live supervisor: `descriptor` becomes readable when it is gone."""

    pid: int
    descriptor: int
    child: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """A task that was begun: watched if its supervisor lives, and what it has told so far."""

    watched: Watched | None
    told: tuple[str, ...] = ()


def read(path: pathlib.Path) -> dict[str, str]:
    """What a file of a task says; nothing if it is not there."""
    try:
        return dict(read_pairs(str(path)))
    except OSError:
        return {}


def moment(said: Mapping[str, str], clock: Clock, boot: str) -> float:
    """When a supervisor wrote a note, by our own time: the machine's may have been set since."""
    now = clock.now()
    ago = clock.monotonic() - float(said.get("monotonic") or inf)
    if ago >= 0.0 and said.get("boot", boot) == boot:
        return now - ago
    return float(said.get("at") or now)


def progress(said: Mapping[str, str], clock: Clock, boot: str) -> Progress | None:
    """What a supervisor noted of its task's progress, by our own time; nothing if it noted nothing in this boot."""
    if said.get("boot") != boot or "total" not in said:
        return None
    behind = clock.now() - clock.monotonic()
    at = {key: round(float(said[key]) + behind, 3) for key in ("first_at", "at", "saved") if key in said}
    done = {key: float(said[key]) for key in ("first_done", "done", "total")}
    return Progress(at["first_at"], done["first_done"], at["at"], done["done"], done["total"], at.get("saved"))


def look(folder: pathlib.Path, boot: str) -> Found | None:
    """How a task stands; None if nobody ever claimed it."""
    if not (folder / "claim").exists():
        return None
    watched = claimant(folder, boot)
    if watched is None:
        return Found(None)
    return Found(watched, tuple(kind for kind in TOLD if (folder / kind).exists()))


def claimant(folder: pathlib.Path, boot: str) -> Watched | None:
    """The supervisor that claimed the task, if it is alive; without its guard it is the second that claimed it."""
    return _alive(read(folder / "claim"), boot) or _alive(read(folder / "second"), boot)


def _alive(said: dict[str, str], boot: str) -> Watched | None:
    if not said.get("pid") or said.get("boot") != boot:
        return None
    pid = int(said["pid"])
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return None
    # Looked at after the descriptor is ours: from now on the pid cannot become somebody else's unnoticed.
    if start_ticks(pid) != said.get("ticks") or _is_zombie(pid):
        os.close(descriptor)
        return None
    return Watched(pid, descriptor)


def _is_zombie(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
    except (OSError, IndexError):
        return True


@dataclass(frozen=True, slots=True)
class Proof:
    """How a task ended whose supervisor is gone; `doubt` says what may be left of it, nothing once that is proven."""

    said: dict[str, str]
    doubt: str = ""


def prove(folder: pathlib.Path, boot: str, known: Container[int], contained: Callable[[Order], str]) -> Proof:
    """End what is left of a task whose supervisor is gone, and say whether all of it is. Never waits: ask again.

    `known` are live supervisors: what came of them is not this task's. `contained` ends its container, and says what
    stands in the way of that.
    """
    said = read(folder / "exit")
    if said.get("outcome"):
        return Proof(said)
    claim = read(folder / "claim")
    if claim and claim.get("boot") != boot:
        return Proof({"outcome": "lost", "told": "the machine was started anew while it ran"})
    alive = claimant(folder, boot)
    if alive is not None:  # it was to be watched and is not: it ends its task, and says so last
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(alive.descriptor, KILL)
        os.close(alive.descriptor)
        return Proof({"outcome": "lost"}, f"its supervisor, process {alive.pid}, lives")
    trouble = _trouble(folder)
    lost = {"outcome": "lost", "told": "its supervisor was killed" + (f": {trouble}" if trouble else "")}
    task = read(folder / "running")
    if not task:  # it was never let through the gate, so it never became the command
        return Proof(lost, _group_doubt(folder))
    return Proof(lost, _doubt(folder, task, boot, known, contained))


def _doubt(
    folder: pathlib.Path, task: dict[str, str], boot: str, known: Container[int], contained: Callable[[Order], str]
) -> str:
    """What may be left of a task that began; it is killed as far as it is known."""
    try:
        order = Order(read_pairs(str(folder / "order")))
    except OSError:
        return f"its order in {folder} cannot be read"
    survivor = _alive(task, boot)
    if survivor is not None:
        os.close(survivor.descriptor)
        with contextlib.suppress(OSError):
            os.killpg(survivor.pid, signal.SIGKILL)
    clear(order)
    if in_container := contained(order):
        return in_container
    if survivor is not None:
        return f"process {survivor.pid} was killed and is not gone"
    if (folder / "second").exists():
        return _branded_doubt(folder, int(order.text("uid") or os.getuid()), known)
    return "" if removed(path_of(order)) else "its control group is not empty yet"


def _branded_doubt(folder: pathlib.Path, uid: int, known: Container[int]) -> str:
    """Of a task without a control group whose supervisor and guard are both gone: who bears its brand is ended."""
    brand = int(read(folder / "second").get("brand") or 0)
    branded = [pid for pid in descent.parents() if brand and descent.brand_of(pid) == brand]
    for pid in branded:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    if branded:
        return f"process {branded[0]} ({_name(branded[0])}) was killed and is not gone"
    return _told(suspects(read(folder / "claim").get("ticks", ""), uid, brand or descent.UNLIMITED, known))


def _group_doubt(folder: pathlib.Path) -> str:
    """Of a task that never began there may be a control group, and in it who stood at the gate."""
    try:
        path = path_of(Order(read_pairs(str(folder / "order"))))
    except OSError:
        return ""
    return "" if not path or removed(path) else "its control group is not empty yet"


def _told(found: list[int]) -> str:
    if not found:
        return ""
    named = ", ".join(f"{pid} ({_name(pid)})" for pid in found[:SUSPECTS_NAMED])
    more = f" and {len(found) - SUSPECTS_NAMED} more" if len(found) > SUSPECTS_NAMED else ""
    return f"its supervisor and its guard were both killed, and it may be what runs as process {named}{more}"


def suspects(since: str, uid: int, brand: int, known: Container[int]) -> list[int]:
    """Processes that may have come of a task whose supervisor and guard are both gone, where there is no control group.

    An orphan of theirs is now a child of whoever inherits orphans: process 1, a manager, or somebody above us. So
    may be what somebody else of that user started in the background since. Who came of a process older than the task,
    or of a live supervisor, or bears a higher brand or none, is none: a brand can only be lowered.
    """
    begin, parents = int(since or 0), descent.parents()
    heirs = {1, 0, *_above(os.getpid(), parents), *(pid for pid in parents if _name(pid) in MANAGERS)}
    found = []
    for pid in parents:
        top = pid
        while parents.get(top, 0) not in heirs and top not in known and top != os.getpid():
            top = parents.get(top, 0)
        innocent = top in heirs or top in known or top == os.getpid()
        innocent = innocent or int(start_ticks(top) or 0) < begin or descent.brand_of(pid) > brand
        if not innocent and str(uid) in _uids(pid):
            found.append(pid)
    return sorted(found)


def _above(pid: int, parents: dict[int, int]) -> list[int]:
    found = []
    while (pid := parents.get(pid, 0)) > 0:
        found.append(pid)
    return found


def _name(pid: int) -> str:
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return "gone"


def _uids(pid: int) -> list[str]:
    try:
        lines = pathlib.Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return []
    return next((line.split()[1:] for line in lines if line.startswith("Uid:")), [])


def _trouble(folder: pathlib.Path) -> str:
    """The last line a supervisor wrote before it died of an error."""
    try:
        lines = (folder / "trouble").read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:200] if lines else ""
