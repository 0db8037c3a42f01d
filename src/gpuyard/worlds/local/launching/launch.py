"""Starts supervisors, hears from them, and stops them: the `Launcher` that runs real processes.

Called by `world`. One folder per task holds all there is to know about it (`supervisor` describes the files); nothing
here is remembered that could not be read back from those folders by `adopt` after a crash.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import resource
import select
import shutil
import signal
import socket
import stat
import sys
from collections.abc import Sequence

from gpuyard.model.outside.ports import Clock
from gpuyard.worlds.local.launching import adopt
from gpuyard.worlds.local.launching.adopt import Watched
from gpuyard.worlds.local.launching.burials import Burials
from gpuyard.worlds.local.ports import (
    DeviceKeeper,
    FaultPoint,
    NoKeeper,
    Report,
    StopOrder,
    Stray,
    TaskKey,
    TaskOrder,
    TaskWarning,
    no_fault,
)
from gpuyard.worlds.local.supervising.confine import enforced
from gpuyard.worlds.local.supervising.notes import ENV, Order, boot_id, read_pairs, write_pairs
from gpuyard.worlds.local.supervising.removal import WITHIN_S
from gpuyard.worlds.local.supervising.stopping import KILL, STOP_GENTLY, STOP_NOW, VOUCHED, WORDS

DESCRIPTORS = resource.getrlimit(resource.RLIMIT_NOFILE)
"""As this process was started with: the yard raises its own, and tasks get this one back."""

BOOT = (
    f"import resource, sys; sys.path.append({str(pathlib.Path(__file__).parents[4])!r}); "
    f"resource.setrlimit(resource.RLIMIT_NOFILE, {DESCRIPTORS!r}); "
    "from gpuyard.worlds.local.supervising import supervisor; sys.exit(supervisor.main(sys.argv[1]))"
)
"""Imported and not run as a script, so that its compiled form is kept: that halves the start."""

TERM_GRACE_S = 10.0
PROGRESS = "progress"
"""The folder with the pipes by which tasks tell how far they are."""


class Supervisors:
    """Real processes. One thread asks and waits; `wake` may come from any."""

    def __init__(self, folder: pathlib.Path, clock: Clock, fault: FaultPoint = no_fault, cgroup: str = "") -> None:
        self.folder = folder
        self.boot = boot_id()
        self._clock = clock
        self._fault = fault
        self._cgroup = cgroup
        self.enforces = enforced(cgroup)
        """Of `cpu` and `memory` what tasks are kept to here."""
        self.keeper: DeviceKeeper = NoKeeper()
        self._watched: dict[TaskKey, Watched] = {}
        self._by_descriptor: dict[int, TaskKey] = {}
        self._reports: list[Report] = []
        self._hindered: dict[TaskKey, str] = {}
        """Tasks that ended and whose supervisors wait for somebody else's word that nothing is left."""
        self.removal_s = WITHIN_S
        self._burials = Burials(clock, self.boot, self.task_folder)
        self._ending: set[TaskKey] = set()
        """What a start finds and ends, until it has been seen off."""
        for name in ("runs", "tty", PROGRESS):
            (folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fifo = _fifo(folder / "notify")
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._waker, False)
        self._poll = select.epoll()
        self._poll.register(self._fifo, select.EPOLLIN)
        self._poll.register(self._woken, select.EPOLLIN)

    # --- starting --------------------------------------------------------------------------------

    def prepare(self, orders: Sequence[TaskOrder]) -> None:
        """Bring up a supervisor for each; a second call for the same key does nothing more."""
        try:
            for order in orders:
                folder = self.task_folder(order.key)
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_pairs(str(folder / "order"), self._pairs(order))
            self._fault("before-spawn")
            for order in orders:
                if order.key not in self._watched:
                    self._spawn(order.key)
                self._fault("spawned")
        except OSError as error:
            # No room on the disk, no more processes: not the job's fault, and told like any other loss.
            now, told = self._clock.now(), f"it could not be started: {error}"
            failed = [o.key for o in orders if o.key not in self._watched and o.key not in self._burials]
            self._reports += [Report(key, "ended", now, 0, "lost", None, told) for key in failed]

    def _pairs(self, order: TaskOrder) -> list[tuple[str, str]]:
        run = self.folder / "runs" / str(order.key.job)
        workdir = order.workdir or str(self._own_folder(run / "work", order))
        pairs = {
            "key": " ".join(map(str, order.key)), "log": str(run / "log" / str(order.rank)), "workdir": workdir,
            "notify": str(self.folder / "notify"), "gang": "1" if order.gang else "",
            "go": str(run / str(order.key.attempt) / f"go-{order.wave}"), "limit": repr(order.time_limit),
            "warn": order.warn_signal, "grace": repr(order.warn_grace), "term": repr(TERM_GRACE_S),
            "uid": str(order.uid) if order.uid >= 0 else "", "gid": str(order.gid), "user": order.user,
            "memory": str(order.memory or ""), "cpu": f"{order.cpu * 100} 100000" if order.cpu else "",
            "cgroup": self._cgroup, "container": order.container,
            "engine": order.command[0] if order.container else "", "home": order.home,
            "within": repr(self.removal_s),
            "tty": str(self.terminal(order.key)) if order.tty else "",
            "progress": str(self.folder / PROGRESS / order.key.file) if order.progress else "",
        }  # fmt: skip
        args = [("arg", word) for word in order.command]
        return [*pairs.items(), *args, *((ENV + name, value) for name, value in order.env)]

    def _own_folder(self, folder: pathlib.Path, order: TaskOrder) -> pathlib.Path:
        """Where a job that names no folder works: its submitter's home, where it runs as its submitter."""
        if order.uid >= 0:
            home = pathlib.Path(order.home)
            return home if home.is_dir() else pathlib.Path("/")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def _spawn(self, key: TaskKey) -> None:
        folder = self.task_folder(key)
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(folder / "trouble"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        argv = [sys.executable, "-I", "-S", "-c", BOOT, str(folder)]
        pid = os.posix_spawn(
            sys.executable, argv, {}, file_actions=actions, setsid=True, setsigdef=[signal.SIGPIPE],
            setsigmask=[signal.SIGUSR1, *WORDS],  # a word that comes before it listens must not end it
        )  # fmt: skip
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:  # out of descriptors: nobody runs unwatched
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            self._burials.begin(key)
            raise
        self._watch(key, Watched(pid, descriptor, child=True))

    def _watch(self, key: TaskKey, watched: Watched) -> None:
        if key in self._watched:
            self._let_go(self._watched[key])
        self._watched[key] = watched
        self.keeper.watched(key.name, watched.pid)
        self._by_descriptor[watched.descriptor] = key
        self._poll.register(watched.descriptor, select.EPOLLIN)

    def go(self, keys: Sequence[TaskKey]) -> None:
        """All ranks are ready: one file for all of them, so that all go or none does."""
        for path in sorted({adopt.read(self.task_folder(key) / "order").get("go", "") for key in keys} - {""}):
            write_pairs(path, [])
            self._fault("go")
        for key in keys:
            self._poke(key)

    def _poke(self, key: TaskKey, word: int = signal.SIGUSR1) -> None:
        watched = self._watched.get(key)
        if watched is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(watched.descriptor, word)

    # --- stopping --------------------------------------------------------------------------------

    def stop(self, key: TaskKey, order: StopOrder) -> None:
        """Tell a task to stop; harmless if it has ended. Where a disk takes no file a signal says it."""
        folder = self.task_folder(key)
        if not folder.is_dir():
            return
        pairs = {"why": order.why, "signal": order.signal, "grace": repr(order.grace), "term": repr(order.term_grace)}
        pairs |= {"told": order.told} if order.told else {}
        try:
            write_pairs(str(folder / "stop"), pairs.items())
            self._poke(key)
        except OSError:
            self._poke(key, STOP_GENTLY if order.signal else STOP_NOW)

    def warn(self, keys: Sequence[TaskKey], warning: TaskWarning) -> None:
        """Tell tasks something and let them go on. A disk that is full keeps them from hearing, and nothing worse."""
        with contextlib.suppress(OSError):
            for key in keys:
                pairs = [("told", warning.told), ("signal", warning.signal)]
                write_pairs(str(self.task_folder(key) / "warning"), pairs)
                self._poke(key)

    def kill(self, *keys: TaskKey) -> None:
        """End tasks at once, as a lost node would; their supervisors say when nothing is left."""
        for key in keys:
            self._poke(key, KILL)

    # --- after a crash ---------------------------------------------------------------------------

    def adopt(self, keys: Sequence[TaskKey]) -> list[TaskKey]:
        """Take over tasks of an earlier control plane; returns those that nobody ever began."""
        unbegun = []
        for key in keys:
            found = adopt.look(self.task_folder(key), self.boot)
            if found is None:
                unbegun.append(key)
            elif found.watched is not None:
                self._watch(key, found.watched)
                self._reports += [self._report(key, kind) for kind in found.told]
            else:
                self._burials.begin(key)
        self._settle()
        return unbegun

    def see_off(self, seconds: float) -> None:
        """Wait until what is being ended is gone, but no longer than this: what hangs in a driver stays withheld."""
        until = self._clock.monotonic() + seconds
        while (left := until - self._clock.monotonic()) > 0 and any(key in self._burials for key in self._ending):
            self._listen(left)
        self._ending.clear()

    def bury(self, keys: Sequence[TaskKey], told: str) -> None:
        """End whatever is left of tasks of an earlier control plane; each is reported lost when it is proven gone."""
        for key in keys:
            watched = adopt.claimant(self.task_folder(key), self.boot)
            self._burials.begin(key, told)
            self._ending.add(key)
            if watched is not None:
                self._watch(key, watched)
                self._poke(key, KILL)
        self._settle()

    def doubts(self) -> dict[TaskKey, str]:
        """Tasks that are over but for what may be left of them, and what that is."""
        return self._hindered | self._burials.doubts()

    def vouch(self, key: TaskKey) -> None:
        """An operator says that nothing is left of it."""
        self._burials.vouch(key)
        self._poke(key, VOUCHED)
        self.wake()

    def forget(self, job: int, attempt: int) -> None:
        """The attempt is over and written down; its output stays."""
        for left in (self.folder / PROGRESS).glob(f"{job}-{attempt}-*"):  # by supervisors that were killed
            left.unlink(missing_ok=True)
        shutil.rmtree(self.folder / "runs" / str(job) / str(attempt), ignore_errors=True)

    def strays(self) -> list[pathlib.Path]:
        """What stands among the folders of jobs and is none."""
        ours = set(_numbered(self.folder / "runs"))
        return [path for path in (self.folder / "runs").iterdir() if path not in ours]

    def clear_away(self, live: set[tuple[int, int]], old: set[int]) -> list[Stray]:
        """Remove what attempts left behind that are over, and everything of jobs that are long over.

        Returns tasks that nobody knows of any more, as after a backup was restored, and that are still being ended:
        what they hold is theirs until they are reported.
        """
        strays: list[Stray] = []
        for job in _numbered(self.folder / "runs"):
            for attempt in _numbered(job):
                if (int(job.name), int(attempt.name)) not in live:
                    keys = [TaskKey(int(job.name), int(attempt.name), int(t.name)) for t in _numbered(attempt)]
                    self.bury(keys, "")
                    strays += [stray(key, self.task_folder(key)) for key in keys if key in self._burials]
                    if not any(key in self._burials for key in keys):
                        self.forget(int(job.name), int(attempt.name))
            if int(job.name) in old and not any(each.key.job == int(job.name) for each in strays):
                shutil.rmtree(job, ignore_errors=True)
        return strays

    # --- hearing ---------------------------------------------------------------------------------

    def wait(self, timeout: float | None) -> None:
        """Until something happened, somebody woke us, or the time is up."""
        if not self._reports:
            self._listen(timeout)

    def _listen(self, timeout: float | None) -> None:
        # What a supervisor told comes before its end: a task that ran for a moment did run.
        for descriptor, _ in sorted(
            self._poll.poll(self._burials.patience(timeout)),
            key=lambda ready: ready[0] not in (self._fifo, self._woken),
        ):
            if descriptor == self._woken:
                _drain(self._woken)
            elif descriptor == self._fifo:
                self._hear(_drain(self._fifo))
            else:
                self._gone(self._by_descriptor[descriptor])
        self._settle()

    def wake(self) -> None:
        """End a wait; may be called from any thread."""
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._waker, b"!")

    def reports(self) -> list[Report]:
        """What happened since the last call."""
        taken, self._reports = self._reports, []
        return taken

    def _hear(self, words: bytes) -> None:
        for line in words.decode(errors="replace").splitlines():
            parts = line.split()
            if len(parts) == 4 and all(part.isdigit() for part in parts[:3]) and parts[3] in adopt.TOLD:
                key = TaskKey(*map(int, parts[:3]))
                if key in self._watched:
                    self._reports.append(self._report(key, parts[3]))

    def _report(self, key: TaskKey, kind: str) -> Report:
        """What a live supervisor has told, by its own file."""
        said, now = adopt.read(self.task_folder(key) / kind), self._clock.now()
        if kind == "progress":
            return Report(key, kind, now, progress=adopt.progress(said, self._clock, self.boot))
        if kind != "hindered":
            at = adopt.moment(said, self._clock, self.boot) if kind == "running" else now
            return Report(key, kind, at, int(said.get("pid") or 0))
        told = said.get("told", "its container could not be ended")
        if not said.get("withheld"):
            return Report(key, kind, now, told=told)
        self._hindered[key] = told
        return Report(key, "doubted", now, told=told)

    def _gone(self, key: TaskKey) -> None:
        """A supervisor is gone: with its last word, or without."""
        watched = self._watched.pop(key)
        self._hindered.pop(key, None)
        self._let_go(watched)
        if watched.child:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(watched.pid, 0)
        other = adopt.claimant(self.task_folder(key), self.boot)
        if other is not None and other.pid != watched.pid:
            self._watch(key, other)  # an earlier one had claimed the task; ours went away quietly
        else:
            self._burials.begin(key)

    def _settle(self) -> None:
        """Whoever is proven gone by now is reported so."""
        known = {watched.pid for watched in self._watched.values()}
        self._reports += self._burials.settle(known, set(self._watched))

    def _let_go(self, watched: Watched) -> None:
        self._poll.unregister(watched.descriptor)
        del self._by_descriptor[watched.descriptor]
        os.close(watched.descriptor)

    # --- places ----------------------------------------------------------------------------------

    def task_folder(self, key: TaskKey) -> pathlib.Path:
        """Where everything about one task is."""
        return self.folder / "runs" / str(key.job) / str(key.attempt) / str(key.serial)

    def terminal(self, key: TaskKey) -> pathlib.Path:
        """The socket of a task's terminal; its path is short, because sockets allow no long ones."""
        return self.folder / "tty" / key.file

    def terminal_of(self, job: int, attempt: int, serial: int) -> pathlib.Path:
        """The same, for those who know no keys."""
        return self.terminal(TaskKey(job, attempt, serial))

    def output(self, job: int, rank: int) -> pathlib.Path:
        """The folder of a rank's output."""
        return self.folder / "runs" / str(job) / "log" / str(rank)

    def free_port(self) -> int:
        """A port for the ranks of a gang to meet at; free a moment ago."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    def close(self) -> None:
        """Let go of everything; tasks run on."""
        for watched in self._watched.values():
            self._let_go(watched)
        self._watched = {}
        self._poll.close()
        for descriptor in (self._fifo, self._woken, self._waker):
            os.close(descriptor)


def stray(key: TaskKey, folder: pathlib.Path) -> Stray:
    """Where a task stands of which only its folder is known."""
    try:
        env = Order(read_pairs(str(folder / "order"))).env
    except OSError:
        return Stray(key)
    gpus = tuple(int(index) for index in env.get("GPUYARD_GPUS", "").split(",") if index.isdigit())
    return Stray(key, env.get("GPUYARD_NODE", ""), gpus)


def _numbered(folder: pathlib.Path) -> list[pathlib.Path]:
    """The folders that are ours: named by a number, as we write it."""
    return [path for path in folder.iterdir() if is_number(path.name) and path.is_dir() and not path.is_symlink()]


def is_number(name: str) -> bool:
    """Whether a name is a number as we write it."""
    return name.isascii() and name.isdecimal() and name == str(int(name))


def _fifo(path: pathlib.Path) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)
    if not stat.S_ISFIFO(path.stat().st_mode):
        raise FileExistsError(errno.EEXIST, "it is in the way of a pipe of that name", str(path))
    # Also opened for writing, or it would read as ended whenever no supervisor has it open.
    return os.open(path, os.O_RDWR | os.O_NONBLOCK)


def _drain(descriptor: int) -> bytes:
    words = b""
    with contextlib.suppress(BlockingIOError):
        while part := os.read(descriptor, 65536):
            words += part
    return words
