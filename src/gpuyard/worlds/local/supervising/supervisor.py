"""Runs one task and outlives the control plane: a program of its own, standard library only, started in milliseconds.

`launch` starts it in its own session with one argument, the folder of the task, where `order` says what to do. It
claims the task (`claim`, an exclusive link, so no task is ever run twice), tells that it is ready, waits for `go` where
all ranks must start together, runs the command in a process group of its own, copies its output into segments named by
their offset, enforces the time limit, stops the task when `stop` appears or a signal says so, and leaves `exit` when
the kernel has said that nothing of the task is left. Nothing in it blocks, but for its own disk.

Where there are no control groups a guard stands above the one that runs the task (`second`): should that be killed, the
guard inherits and ends what the task left; should both be, what came of them still bears their brand. Nothing is
imported here but its own few neighbours and the light end of the standard library: that is what keeps the start short.
"""

from __future__ import annotations

import os
import select
import time

from gpuyard.worlds.local.supervising import descent
from gpuyard.worlds.local.supervising.becoming import ChildEnds, become, cannot_run
from gpuyard.worlds.local.supervising.confine import (
    CANNOT_RUN,
    CGroup,
    give_up_rights,
    signal_group,
    sweep,
)
from gpuyard.worlds.local.supervising.mouth import Mouth
from gpuyard.worlds.local.supervising.notes import (
    Order,
    Pairs,
    boot_id,
    claim,
    identity,
    is_written,
    keep_spare_room,
    put_pairs,
    read_pairs,
    write_pairs,
)
from gpuyard.worlds.local.supervising.output import Log
from gpuyard.worlds.local.supervising.progress_pipe import ProgressPipe
from gpuyard.worlds.local.supervising.stopping import WORDS, Stopping

TYPE_CHECKING = False  # what `typing` would say; importing it costs as much as all the rest
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable

    from gpuyard.worlds.local.supervising.removal import Removal
    from gpuyard.worlds.local.supervising.terminal import Terminal
else:
    import _signal as signal  # the same without its enums, which take as long as Python's own start

READ_MAX = 65536
LOOK_S = 0.25
"""How often `go` and `stop` are looked for where no signal came: signals can be lost, files cannot."""
PATIENCE_S = 600.0
"""A gang that has not got its word by then never will."""
FULL_S = 1.0
"""How often a disk that took no last word is asked again, and a control plane that took no word at all."""
DRAIN_S = 0.5
"""How long output is read on after the task is gone: something it left behind may hold the pipe open."""
BURY_S = 0.5
"""How often, in the end, those are asked for again that were killed and are still there."""
ENGINE_FAILED = 125
"""The exit code of podman and docker for what is wrong with themselves, such as an image that is not there."""

HEARD = (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD, signal.SIGHUP, signal.SIGINT)


def main(folder: str) -> int:
    """Claim the task and see it through; somebody who comes second goes away quietly."""
    os.chdir(folder)
    order = Order(read_pairs("order"))
    if not claim():
        return 0
    descent.inherit_orphans()
    group = CGroup(order)
    if not group.path:
        pid = os.fork()
        if pid:
            return guard(order, pid)
        descent.inherit_orphans()
        write_pairs("second", [*identity(os.getpid()), ("brand", str(descent.brand()))])
    supervisor = Supervisor(order, group)
    try:
        supervisor.run()
    except OSError as error:  # no room for a note, no more processes: not the job's fault, and it is tried again
        supervisor.end("lost", 0, f"its supervisor could not go on: {error}")
    return 0


def moment() -> Pairs:
    """When it is: for people, and for those who count on time that nobody sets."""
    return [("at", repr(time.time())), ("monotonic", repr(time.monotonic())), ("boot", boot_id())]


def guard(order: Order, pid: int) -> int:
    """Stand above the one that runs the task, pass words on to it, and be its heir should it be killed."""
    heeded = (*HEARD, *WORDS)
    signal.pthread_sigmask(signal.SIG_SETMASK, heeded)
    while True:
        ended, _ = descent.reap()
        if pid in ended:
            break
        word = signal.sigwait(heeded)
        if word != signal.SIGCHLD:
            os.kill(pid, word)
    if not os.path.exists("exit"):
        heir = Supervisor(order, CGroup(Order([])))
        heir.has_container = os.path.exists("running")
        heir.end("lost", 0, "its supervisor was killed")
    return 0


# --- the task ------------------------------------------------------------------------------------


class Supervisor:
    """One task from claim to exit."""

    def __init__(self, order: Order, group: CGroup) -> None:
        self.order = order
        self.group = group
        self.pid = 0
        self.began = 0.0
        self.status: int | None = None
        self.stopping = Stopping(order, self._tell, self._signal)
        self.log: Log | None = None
        self.has_container = False
        self.hindrance = ""
        self.mouth = Mouth(order.text("notify"), order.text("key"))
        self.terminal: Terminal | None = None
        self.progress = ProgressPipe("")
        self.wake, self._wake_end = os.pipe()
        os.set_blocking(self._wake_end, False)
        os.set_blocking(self.wake, False)
        signal.set_wakeup_fd(self._wake_end)
        for number in HEARD:
            signal.signal(number, lambda *_: None)
        for word in WORDS:
            signal.signal(word, self.stopping.hear)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])  # `launch` holds words back until somebody listens

    def run(self) -> None:
        """Wait for the others if need be, run, watch, tell."""
        if self.order.text("gang") and not self._together():
            return
        if self.stopping.is_asked_for():
            self.end("stopped", 0, "stopped before it began")
            return
        keep_spare_room()
        self.log = Log(self.order.text("log"))
        self.progress = ProgressPipe(self.order.text("progress"), int(self.order.text("uid") or -1))
        output = self._spawn()
        if output < 0:
            return
        self.has_container = True
        self.mouth.say("running")
        self._watch(output)
        self.has_container = bool(self.stopping.why) or os.WIFSIGNALED(
            self.status or 0
        )  # else it ended before its client
        if not self.group.path:
            sweep(self.order)
        self._bury()  # before the verdict: it may be the first to hear how the task ended
        self.end(*self._verdict())

    def end(self, outcome: str, code: int, told: str) -> None:
        """The last word, after which the task's GPU is somebody else's: so nothing of the task is left by then."""
        self._bury()
        if self.terminal is not None:
            self.terminal.close()
        self.progress.close(time.monotonic())
        self._keep_progress()
        written = [("outcome", outcome), ("exit", str(code)), ("told", told), *moment()]
        while not is_written(written):
            self._sleep(FULL_S)
        self.mouth.say("ended")

    def _bury(self) -> None:
        """End all that came of the task, however long that takes; one that hangs in a driver is not gone."""
        if self.has_container and self.order.text("container"):
            self._end_container()
        self._insist(lambda: self._all_gone() and self.group.remove())

    def _insist(self, is_done: Callable[[], bool]) -> None:
        pause = 0.002
        while not is_done():
            self._sleep(pause)
            pause = min(2 * pause, BURY_S)

    def _end_container(self) -> None:
        """What podman runs came of us and ends with us in any case; what docker runs is gone when docker says so."""
        from gpuyard.worlds.local.supervising.removal import Removal  # read only by those who have one

        removal = Removal(self.order)
        is_ours = self.order.text("engine").endswith("/podman")
        self._insist(lambda: self._asked_to_end(removal, is_ours))
        self.has_container = False
        sweep(self.order)

    def _asked_to_end(self, removal: Removal, is_ours: bool) -> bool:
        """Whether nobody has to be asked any more; what stands in the way is told, each thing once."""
        is_gone = removal.ask(time.monotonic())
        if removal.told not in ("", self.hindrance):
            self.hindrance = removal.told
            put_pairs("hindered", [("told", removal.told), ("withheld", "" if is_ours else "1")])
            self.mouth.say("hindered")
        return is_gone or self.stopping.is_vouched or bool(is_ours and self.hindrance)

    def _all_gone(self) -> bool:
        if self.pid and self.status is None:
            signal_group(self.pid, signal.SIGKILL)
        self.group.kill()
        ended, nothing_left = descent.end_all()
        self._note(ended)
        return nothing_left

    # --- before ----------------------------------------------------------------------------------

    def _together(self) -> bool:
        """Be ready, and wait until all are: True is `go`, else it is over before it began."""
        wrong = self._asked_as_submitter()
        if wrong:
            self.end("failed", CANNOT_RUN, wrong)
            return False
        write_pairs("ready", identity(os.getpid()))
        self.mouth.say("ready")
        until = time.monotonic() + PATIENCE_S
        while not os.path.exists(self.order.text("go")):
            if self.stopping.is_asked_for() or time.monotonic() > until:
                self.end("stopped", 0, "the other ranks did not come up")
                return False
            self._sleep(LOOK_S)
        return True

    def _asked_as_submitter(self) -> str:
        """What is wrong with the order, found out with the submitter's rights: what others have is not told to them."""
        answer, answering = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setpgid(0, 0)
                give_up_rights(self.order)
                os.write(answering, os.fsencode(cannot_run(self.order)))
            finally:
                os._exit(0)
        os.close(answering)
        wrong = self._heard_out(answer, 0.0)
        self._insist(self._all_gone)  # the control group stays: the task is still to come
        self.pid, self.status = 0, None
        return wrong

    def _sleep(self, seconds: float) -> None:
        select.select([self.wake], [], [], seconds)
        self._clear()

    def _clear(self) -> None:
        try:
            while os.read(self.wake, 512):
                pass
        except BlockingIOError:
            pass

    def _spawn(self) -> int:
        """Start the command; the descriptor its output comes from, or -1 if it could not be started.

        The child is on record before it is let through the gate: one whose supervisor dies first never becomes the
        command, so whatever runs can be found.
        """
        output, child_end = self._ends()
        failed, failing = os.pipe()
        gate, opening = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(opening)
            become(self.order, ChildEnds(child_end, failing, gate), self.group, self.terminal)
        self.began = time.monotonic()
        for descriptor in (failing, gate, *([child_end] if self.terminal is None else [])):
            os.close(descriptor)
        write_pairs("running", [*identity(self.pid), *moment()])
        self._open_gate(opening)
        wrong = self._heard_out(failed, self.order.number("limit"))
        if wrong:
            self.end("failed", CANNOT_RUN, wrong)
            return -1
        return output

    def _open_gate(self, opening: int) -> None:
        try:
            os.write(opening, b"!")
        except OSError:
            return  # it did not come so far, and has said why
        finally:
            os.close(opening)

    def _ends(self) -> tuple[int, int]:
        """Where output comes out, and where the task puts it in."""
        if not self.order.text("tty"):
            return os.pipe()
        from gpuyard.worlds.local.supervising.terminal import Terminal  # read only by those who have one

        self.terminal = Terminal(self.order.text("tty"), int(self.order.text("uid") or -1))
        return self.terminal.ends()

    def _heard_out(self, answer: int, limit: float) -> str:
        """What a child says on its way. Folders and programs may lie on a disk that hangs: a limit or a stop holds
        meanwhile."""
        os.set_blocking(answer, False)
        told = b""
        while True:
            try:
                part = os.read(answer, READ_MAX)
                if not part:
                    os.close(answer)
                    return os.fsdecode(told)
                told += part
            except BlockingIOError:
                self._look(limit)
                select.select([self.wake, answer], [], [], self._patience(limit, 0.0))
                self._clear()

    # --- meanwhile -------------------------------------------------------------------------------

    def _watch(self, output: int) -> None:
        """Copy output, keep the limit, stop when told, until the task is gone and has said all."""
        drained = 0.0
        limit = self.order.number("limit")
        while output >= 0 or self.status is None or self._somebody_is_behind():
            self._reap()
            if self.status is not None:
                drained = drained or time.monotonic() + DRAIN_S
                if time.monotonic() > drained:
                    break
            self._look(limit)
            if self.progress.hear(time.monotonic()):
                self._keep_progress()
                self.mouth.say("progress")
            output = self._serve(output, self._patience(limit, drained))

    def _serve(self, output: int, patience: float) -> int:
        """Wait for whoever has something for us or takes something from us; where output comes from next."""
        reading, writing = [self.wake, *([output] if output >= 0 else [])], []
        reading += self.progress.readable(time.monotonic())
        if self.terminal is not None:
            reading += self.terminal.readable()
            writing = self.terminal.writable(output)
        readable, writable, _ = select.select(reading, writing, [], patience)
        if self.wake in readable:
            self._clear()
        if self.terminal is not None:
            self.terminal.serve(readable, writable, output)
        return self._copy(output) if output in readable else output

    def _keep_progress(self) -> None:
        if told := self.progress.pairs():
            put_pairs("progress", [*told, ("boot", boot_id())])

    def _somebody_is_behind(self) -> bool:
        return self.terminal is not None and bool(self.terminal.writable(-1))

    def _copy(self, output: int) -> int:
        try:
            content = os.read(output, READ_MAX)
        except BlockingIOError:
            return output
        except OSError:  # a terminal whose other end is gone says EIO
            content = b""
        if not content:
            os.close(output)
            return -1
        self._show(content)
        return output

    def _show(self, content: bytes) -> None:
        if self.log is not None:
            self.log.write(content)
        if self.terminal is not None:
            self.terminal.show(content)

    def _tell(self, told: str) -> None:
        """A line of ours in the task's own output."""
        if told and self.log is not None:
            self._show(self.log.line(told, b"\r\n" if self.terminal is not None else b"\n"))

    def _reap(self) -> None:
        ended, _ = descent.reap()
        self._note(ended)
        if self.pid in ended:
            self._signal(signal.SIGKILL)

    def _note(self, ended: dict[int, int]) -> None:
        """How the task ended; what it left behind ends unnoted."""
        self.status = ended.get(self.pid, self.status)
        if self.terminal is not None and self.status is not None:
            self.terminal.let_go()

    def _look(self, limit: float) -> None:
        """Is there anything to say again, has the time run out, has somebody asked us to stop?"""
        self.mouth.say_again()
        if self.status is None:  # else it ended by itself, and nothing that is said now changes how
            self.stopping.look(time.monotonic(), self.began + limit if limit else 0.0)

    def _signal(self, number: int) -> None:
        """To every process of the task."""
        signal_group(self.pid, number)
        if number == signal.SIGKILL:
            self.group.kill()

    def _patience(self, limit: float, drained: float) -> float:
        """Until the next thing that is due; a stop is told by signal, and looked for rarely besides."""
        now = time.monotonic()
        due = self.stopping.due()
        if limit and not self.stopping.why:
            due.append(self.began + limit)
        if drained:
            due.append(drained)
        due += self.progress.due(now)
        longest = FULL_S if self.mouth.untold else 30.0
        return max(0.0, min([longest, *(moment - now for moment in due)]))

    def _verdict(self) -> tuple[str, int, str]:
        code = os.waitstatus_to_exitcode(self.status or 0)
        told = ""
        if self.order.text("container") and code == ENGINE_FAILED:
            told = (
                f"{os.path.basename(self.order.text('engine'))} could not run the image; what it says is in the output"
            )
        why = self.stopping.why
        if self.stopping.warned_by and code == -self.stopping.warned_by:
            return "timeout", code, "ended by the signal that warned it of its time limit"
        if why == "timeout":
            return "timeout", code, f"ran into its time limit of {self.order.number('limit'):g} s"
        if why == "killed":
            return "lost", code, "it was killed with all it had"
        if why:
            return "stopped", code, told
        return ("failed" if code else "succeeded"), code, told
