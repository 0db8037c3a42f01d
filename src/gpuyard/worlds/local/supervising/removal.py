"""A task's container is ended by asking its engine, which may hang: asked, and asked again, and never waited for.

Used by `supervisor` for its own task and by `launching.burials` for those whose supervisor is gone. A container lives
on where only its client was ended, and one of docker's is nobody's child here: that it is gone only its engine can say.
Read only by those who have a container.
"""

from __future__ import annotations

import os
import sys

from gpuyard.worlds.local.supervising.confine import SYSTEM_PATH, give_up_rights, signal_group
from gpuyard.worlds.local.supervising.notes import Order

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence
else:
    import _signal as signal  # the same without its enums, which take as long as Python's own start

WITHIN_S = 30.0
"""An engine that takes longer hangs."""
AGAIN_S = 1.0
AGAIN_MAX_S = 60.0
"""How soon it is asked again, first and in the end."""
WORDS_MAX = 4096
GONE = "no such container"
"""What engines say of one that has ended by itself meanwhile; some of them call that a failure."""
REMOVE = (
    f"import sys; sys.path.append({os.path.abspath(__file__ + '/../../../../..')!r}); "
    "from gpuyard.worlds.local.supervising import removal; removal.remove_as_submitter(*sys.argv[1:5], sys.argv[5:])"
)


class Removal:
    """One container, until its engine has said that it is gone."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._engine = os.path.basename(order.text("engine"))
        self._within = order.number("within") or WITHIN_S
        self._pid = 0
        self._words = -1
        self._until = self._again_at = 0.0
        self._pause = AGAIN_S
        self.is_over = not (order.text("engine") and order.text("container"))
        self.told = ""
        """What the engine did instead, last time."""

    @property
    def doubt(self) -> str:
        """Why it may not be gone."""
        return self.told or f"{self._engine} has not said yet that its container {self._order.text('container')} is"

    def ask(self, now: float) -> bool:
        """Whether the container is gone. An engine that failed or hung is asked again after a while."""
        if self._pid:
            self._hear(now)
        elif not self.is_over and now >= self._again_at:
            self._begin(now)
        return self.is_over

    def _begin(self, now: float) -> None:
        person = [self._order.text(key) for key in ("uid", "gid", "user", "home", "engine", "container")]
        self._until = now + self._within
        try:
            self._words, saying = os.pipe()
            os.set_blocking(self._words, False)
            silent = [(os.POSIX_SPAWN_OPEN, n, os.devnull, os.O_RDWR, 0) for n in range(2)]
            ends = [*silent, (os.POSIX_SPAWN_DUP2, saying, 2)]
            argv = [sys.executable, "-I", "-S", "-c", REMOVE, *person]
            self._pid = os.posix_spawn(sys.executable, argv, {}, file_actions=ends, setpgroup=0)
            os.close(saying)
        except OSError as error:
            self._fail(f"{self._engine} could not be asked to end its container: {error}", now)

    def _hear(self, now: float) -> None:
        ended, status = _reaped(self._pid)
        if not ended and now >= self._until:
            signal_group(self._pid, signal.SIGKILL)
            self.told = f"{self._engine} has not ended its container within {self._within:g} s"
        if not ended:
            return
        self._pid = 0
        said = self._last_words()
        if status == 0 or GONE in said.lower():
            self.is_over, self.told = True, ""
        else:
            told = said.strip().rpartition("\n")[2][:200] or f"exit code {os.waitstatus_to_exitcode(status)}"
            hung = self.told if now >= self._until else ""
            self._fail(hung or f"{self._engine} could not end its container: {told}", now)

    def _last_words(self) -> str:
        try:
            return os.read(self._words, WORDS_MAX).decode(errors="replace")
        except OSError:
            return ""
        finally:
            os.close(self._words)

    def _fail(self, told: str, now: float) -> None:
        self.told, self._again_at = told, now + self._pause
        self._pause = min(2 * self._pause, AGAIN_MAX_S)


def _reaped(pid: int) -> tuple[bool, int]:
    """Whether a child has ended, and how."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return True, 1
    return bool(ended), status


def remove_as_submitter(uid: str, gid: str, user: str, home: str, words: Sequence[str]) -> None:
    """A program of its own, because only one thread may give up rights: with those of the submitter, who alone sees
    what podman runs for them, and with nothing of the job's environment."""
    engine, container = words
    now = ["--time=0"] if engine.endswith("/podman") else []
    give_up_rights(Order([("uid", uid), ("gid", gid), ("user", user)]))
    os.chdir("/")
    env = {"PATH": SYSTEM_PATH, "HOME": home or "/", "USER": user, "LOGNAME": user}
    os.execve(engine, [engine, "rm", "--force", *now, container], env)
