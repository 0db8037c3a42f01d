"""Runs one task and outlives the control plane: a program of its own, standard library only, started in milliseconds.

`launch` starts it in its own session with one argument, the folder of the task, where `order` says what to do. It
claims the task (`claim`, an exclusive link, so no task is ever run twice), tells that it is ready, waits for `go` where
all ranks must start together, runs the command in a process group of its own, copies its output into segments named by
their offset, enforces the time limit, stops the task when `stop` appears, and leaves `exit`. Nothing is imported here
but its own few neighbours and the light end of the standard library: that is what keeps the start short.
"""

from __future__ import annotations

import os
import select
import time

from gpuyard.worlds.local.confine import CANNOT_RUN, CGroup, give_up_rights, remove_container, signal_group, sweep
from gpuyard.worlds.local.notes import Order, Pairs, identity, read_pairs, write_pairs

TYPE_CHECKING = False  # what `typing` would say; importing it costs as much as all the rest
if TYPE_CHECKING:
    import signal

    from gpuyard.worlds.local.terminal import Terminal
else:
    import _signal as signal  # the same without its enums, which take as long as Python's own start

READ_MAX = 65536
LOOK_S = 0.25
"""How often `go` and `stop` are looked for where no signal came: signals can be lost, files cannot."""
PATIENCE_S = 600.0
"""A gang that has not got its word by then never will."""
FULL_S = 1.0
"""How often a disk that took no last word is asked again."""
DRAIN_S = 0.5
"""How long output is read on after the task is gone: something it left behind may hold the pipe open."""
SEGMENT_BYTES = 16 << 20
SEGMENTS = 4
"""So much output is kept: whoever writes more is somebody's disk filling up."""
ENGINE_FAILED = 125
"""The exit code of podman and docker for what is wrong with themselves, such as an image that is not there."""


def main(folder: str) -> int:
    """Claim the task and see it through; somebody who comes second goes away quietly."""
    os.chdir(folder)
    order = Order(read_pairs("order"))
    if not claim():
        return 0
    supervisor = Supervisor(order)
    try:
        supervisor.run()
    except OSError as error:
        supervisor.end("failed", CANNOT_RUN, f"the supervisor could not go on: {error}")
    return 0


# --- files ---------------------------------------------------------------------------------------


def claim() -> bool:
    """Whether the task is ours: the link is made whole or not at all, and only once."""
    fresh = f"claim.{os.getpid()}"
    write_pairs(fresh, identity(os.getpid()))
    try:
        os.link(fresh, "claim")
    except FileExistsError:
        return False
    finally:
        os.unlink(fresh)
    return True


class Log:
    """The task's output in segments, each named by the offset of its first byte."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        os.makedirs(folder, mode=0o700, exist_ok=True)
        last = max(os.listdir(folder), default="")
        self.at = int(last) + os.path.getsize(f"{folder}/{last}") if last else 0
        self.size = 0
        self.file = -1

    def write(self, content: bytes) -> None:
        """Keep it; a full disk loses output, never the task."""
        if self.file < 0 or self.size >= SEGMENT_BYTES:
            self._next()
        try:
            while content:
                written = os.write(self.file, content)
                self.at, self.size, content = self.at + written, self.size + written, content[written:]
        except OSError:
            pass

    def _next(self) -> None:
        if self.file >= 0:
            os.close(self.file)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        self.file, self.size = os.open(f"{self.folder}/{self.at:020d}", flags, 0o600), 0
        for old in sorted(os.listdir(self.folder))[:-SEGMENTS]:
            os.unlink(f"{self.folder}/{old}")


# --- the task ------------------------------------------------------------------------------------


class Supervisor:
    """One task from claim to exit."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.pid = 0
        self.status: int | None = None
        self.why = ""
        self.told_to_stop: Pairs = []
        self.stages: list[tuple[float, int]] = []
        """What is still to come of a stop: (when, signal)."""
        self.group = CGroup(order)
        self.terminal: Terminal | None = None
        self.wake, self._wake_end = os.pipe()
        os.set_blocking(self._wake_end, False)
        os.set_blocking(self.wake, False)
        signal.set_wakeup_fd(self._wake_end)
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])  # `launch` holds words back until somebody listens

    def run(self) -> None:
        """Wait for the others if need be, run, watch, tell."""
        if self.order.text("gang") and not self._together():
            return
        if os.path.exists("stop"):
            self.end("stopped", 0, "stopped before it began")
            return
        self.log = Log(self.order.text("log"))
        output = self._spawn()
        if output < 0:
            return
        write_pairs("running", [*identity(self.pid), ("at", repr(time.time()))])
        self.notify("running")
        self._watch(output)
        if self.order.text("container") and (self.why or os.WIFSIGNALED(self.status or 0)):
            remove_container(self.order)
        elif not self.group.path:
            sweep(self.order)
        self.end(*self._verdict())

    def notify(self, kind: str) -> None:
        """A word to the control plane, if one is there; if not, it will read our files."""
        try:
            fifo = os.open(self.order.text("notify"), os.O_WRONLY | os.O_NONBLOCK)
            os.write(fifo, f"{self.order.text('key')} {kind}\n".encode())
            os.close(fifo)
        except OSError:
            pass

    def end(self, outcome: str, code: int, told: str) -> None:
        """The last word; also of a task that never began, whose control group is there all the same."""
        self.group.end()
        written = [("outcome", outcome), ("exit", str(code)), ("told", told), ("at", repr(time.time()))]
        while not self._written(written):
            self._sleep(FULL_S)
        self.notify("ended")

    def _written(self, pairs: Pairs) -> bool:
        """Whether the last word is on disk: while that is full it waits, or what succeeded would be run again."""
        try:
            write_pairs("exit", pairs)
        except FileNotFoundError:
            return True  # the folder is gone, and with it whoever would read it
        except OSError:
            return False
        return True

    # --- before ----------------------------------------------------------------------------------

    def _together(self) -> bool:
        """Be ready, and wait until all are: True is `go`, else it is over before it began."""
        wrong = self._asked_as_submitter()
        if wrong:
            self.end("failed", CANNOT_RUN, wrong)
            return False
        write_pairs("ready", identity(os.getpid()))
        self.notify("ready")
        until = time.monotonic() + PATIENCE_S
        while not os.path.exists(self.order.text("go")):
            if os.path.exists("stop") or time.monotonic() > until:
                self.end("stopped", 0, "the other ranks did not come up")
                return False
            self._sleep(LOOK_S)
        return True

    def _asked_as_submitter(self) -> str:
        """What is wrong with the order, found out with the submitter's rights: what others have is not told to them."""
        answer, answering = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                give_up_rights(self.order)
                os.write(answering, os.fsencode(self._cannot_run()))
            finally:
                os._exit(0)
        os.close(answering)
        with open(answer, "rb") as pipe:
            wrong = os.fsdecode(pipe.read())
        os.waitpid(pid, 0)
        return wrong

    def _cannot_run(self) -> str:
        """What is wrong with the order, as far as one can see without running it."""
        program, workdir = self.order.command[0], self.order.text("workdir")
        if workdir and not os.path.isdir(workdir):
            return f"the working folder {workdir} does not exist"
        if not program.startswith(".") and not any(map(os.path.exists, programs(self.order))):
            return f"there is no program {program}"
        return ""

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
        """Start the command; the descriptor its output comes from, or -1 if it could not be started."""
        if self.order.text("tty"):
            from gpuyard.worlds.local.terminal import Terminal  # read only by those who have one

            self.terminal = Terminal(self.order.text("tty"), int(self.order.text("uid") or -1))
            output, child_end = self.terminal.ends()
        else:
            output, child_end = os.pipe()
        failed, failing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._become(child_end, failing)
        self.began = time.monotonic()
        os.close(child_end)
        os.close(failing)
        with open(failed, "rb") as pipe:
            wrong = pipe.read().decode()
        if wrong:
            os.waitpid(self.pid, 0)
            self.end("failed", CANNOT_RUN, wrong)
            return -1
        return output

    def _become(self, output: int, failing: int) -> None:
        """The child: turn into the command, or say what stands in the way."""
        doing = f"use the working folder {self.order.text('workdir')}"
        try:
            self._dress(output)
            doing = f"run {self.order.command[0]}"
            self._execute()
        except (OSError, ValueError) as error:
            os.write(failing, f"cannot {doing}: {getattr(error, 'strerror', None) or error}".encode(errors="replace"))
        finally:
            os._exit(CANNOT_RUN)

    def _execute(self) -> None:
        """Not `execvpe`: that imports a module, which the submitter may have no right to read."""
        wrong: OSError = FileNotFoundError(2, "No such file or directory")
        for path in programs(self.order):
            try:
                os.execve(path, self.order.command, self.order.env)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                wrong = error
        raise wrong

    def _dress(self, output: int) -> None:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGPIPE, signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        self.group.join()
        if self.terminal is not None:
            self.terminal.take(output)
            source = output
        else:
            os.setpgid(0, 0)
            source = os.open("/dev/null", os.O_RDONLY)
        for target, descriptor in enumerate((source, output, output)):
            os.dup2(descriptor, target)
        give_up_rights(self.order)
        os.umask(0o022)
        if self.order.text("workdir"):
            os.chdir(self.order.text("workdir"))

    # --- meanwhile -------------------------------------------------------------------------------

    def _watch(self, output: int) -> None:
        """Copy output, keep the limit, stop when told, until the task is gone and has said all."""
        drained = 0.0
        limit = self.order.number("limit")
        while output >= 0 or self.status is None:
            self._reap()
            if self.status is not None:
                drained = drained or time.monotonic() + DRAIN_S
                if output < 0 or time.monotonic() > drained:
                    break
            self._look(limit)
            extra = self.terminal.descriptors() if self.terminal is not None else []
            readable, _, _ = select.select(
                [self.wake, *([output] if output >= 0 else []), *extra], [], [], self._patience(limit, drained)
            )
            if self.wake in readable:
                self._clear()
            if self.terminal is not None:
                self.terminal.serve(readable, output)
            if output in readable:
                output = self._copy(output)

    def _copy(self, output: int) -> int:
        try:
            content = os.read(output, READ_MAX)
        except OSError:  # a terminal whose other end is gone says EIO
            content = b""
        if not content:
            os.close(output)
            return -1
        self.log.write(content)
        if self.terminal is not None:
            self.terminal.show(content)
        return output

    def _reap(self) -> None:
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = status
                self._signal(signal.SIGKILL)

    def _look(self, limit: float) -> None:
        """Has the time run out, has somebody asked us to stop, is the next step of a stop due?"""
        now = time.monotonic()
        told = read_pairs("stop") if os.path.exists("stop") else []
        if told != self.told_to_stop:
            self.told_to_stop = told
            self._begin_stop(Order(told), now)
        elif not self.why and limit and now - self.began >= limit:
            self.why = "timeout"
            self._stage(now, self.order.text("warn"), self.order.number("grace"), self.order.number("term"))
        while self.stages and self.stages[0][0] <= now:
            self._signal(self.stages.pop(0)[1])

    def _begin_stop(self, order: Order, now: float) -> None:
        """Also a second time: who was to save its work in an hour may be told to go at once."""
        self.why = order.text("why") or "stopped"
        self.stages = []
        self._stage(now, order.text("signal"), order.number("grace"), order.number("term"))

    def _stage(self, now: float, warning: str, grace: float, term: float) -> None:
        """Its checkpoint signal and time to save, then SIGTERM and a moment, then SIGKILL."""
        begin = now
        if warning:
            self.stages.append((now, int(getattr(signal, warning, signal.SIGUSR1))))
            begin = now + grace
        self.stages += [(begin, int(signal.SIGTERM)), (begin + term, int(signal.SIGKILL))]

    def _signal(self, number: int) -> None:
        """To every process of the task."""
        signal_group(self.pid, number)
        if number == signal.SIGKILL:
            self.group.kill()

    def _patience(self, limit: float, drained: float) -> float | None:
        """Until the next thing that is due; a stop is told by signal, and looked for rarely besides."""
        now = time.monotonic()
        due = [self.stages[0][0]] if self.stages else []
        if limit and not self.why:
            due.append(self.began + limit)
        if drained:
            due.append(drained)
        return max(0.0, min([30.0, *(moment - now for moment in due)]))

    def _verdict(self) -> tuple[str, int, str]:
        code = os.waitstatus_to_exitcode(self.status or 0)
        told = f"ended by signal {-code}" if code < 0 else ""
        if self.order.text("container") and code == ENGINE_FAILED:
            told = (
                f"{os.path.basename(self.order.text('engine'))} could not run the image; what it says is in the output"
            )
        if self.why == "timeout":
            return "timeout", code, f"ran into its time limit of {self.order.number('limit'):g} s"
        if self.why:
            return "stopped", code, told
        return ("failed" if code else "succeeded"), code, told


def programs(order: Order) -> list[str]:
    """Where the command may be: as it is written, or in the folders of the task's own PATH."""
    name = order.command[0]
    return [name] if "/" in name else [f"{folder}/{name}" for folder in order.env.get("PATH", "").split(":")]
