"""Nothing of a task outlives it: control groups where the system has them, process groups and marks where not.

Used by `supervisor` while it watches, and by `adopt` for what a dead supervisor left behind. Light on purpose: it is
loaded with every supervisor.
"""

from __future__ import annotations

import os
import sys
import time

from gpuyard.worlds.local.supervising.notes import Order

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence
else:
    import _signal as signal  # the same without its enums, which take as long as Python's own start

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CANNOT_RUN = 127
"""The exit code of shells for a command that is not there."""
REMOVE = (
    f"import sys; sys.path.append({os.path.abspath(__file__ + '/../../../../..')!r}); "
    "from gpuyard.worlds.local.supervising import confine; confine.remove_as_submitter(*sys.argv[1:5], sys.argv[5:])"
)
REMOVE_S = 0.01
REMOVE_CONTAINER_TRIES = 3000
"""An engine that takes longer than half a minute hangs."""


def signal_group(pid: int, number: int) -> None:
    """To all processes of a group, if any are left."""
    try:
        os.killpg(pid, number)
    except OSError:
        return


class CGroup:
    """A control group for the task, where the system lets us make one: nothing forks its way out of it."""

    def __init__(self, order: Order) -> None:
        self.path = path_of(order)
        try:
            if self.path:
                os.mkdir(self.path)
                _write(self.path, "memory.max", order.text("memory"))
        except OSError:
            self.path = ""

    def join(self) -> None:
        """The calling process goes in, or there is an `OSError`: that the group is empty is proof that it is gone."""
        if self.path:
            with open(f"{self.path}/cgroup.procs", "w", encoding="ascii") as file:
                file.write("0")

    def kill(self) -> None:
        """Everything in it ends."""
        if self.path:
            _write(self.path, "cgroup.kill", "1")

    def remove(self) -> bool:
        """Whether it is gone, which it is when nothing is in it."""
        return not self.path or removed(self.path)


def path_of(order: Order) -> str:
    """Where the task's control group would be; nothing where there can be none."""
    parent = order.text("cgroup")
    return f"{parent}/gpuyard-{order.env.get('GPUYARD_MARK', '')}" if parent else ""


def _write(path: str, name: str, value: str) -> None:
    try:
        if value:
            with open(f"{path}/{name}", "w", encoding="ascii") as file:
                file.write(value)
    except OSError:
        return


def removed(path: str) -> bool:
    """Whether a control group is gone; the kernel keeps one as long as anything is in it."""
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def own_cgroup() -> str:
    """The control group (version 2) that this process is in, if groups can be made below it; else nothing."""
    try:
        with open("/proc/self/cgroup", encoding="ascii") as file:
            lines = file.read().splitlines()
    except OSError:
        return ""
    inside = next((line[3:] for line in lines if line.startswith("0::")), "")
    for mount in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        path = f"{mount}{inside}".rstrip("/")
        if inside and os.path.exists(f"{path}/cgroup.procs") and os.access(path, os.W_OK):
            return path
    return ""


def clear(order: Order) -> None:
    """Kill what a task left behind whose supervisor is gone."""
    path = path_of(order)
    if path:
        _write(path, "cgroup.kill", "1")
    remove_container(order)


def remove_container(order: Order) -> None:
    """End the task's container, which lives on where only its client was ended; then whatever it left behind."""
    if order.text("engine") and order.text("container"):
        person = [order.text(key) for key in ("uid", "gid", "user", "home", "engine", "container")]
        silent = [(os.POSIX_SPAWN_OPEN, n, os.devnull, os.O_RDWR, 0) for n in range(3)]
        argv = [sys.executable, "-I", "-S", "-c", REMOVE, *person]
        _wait_for(os.posix_spawn(sys.executable, argv, {}, file_actions=silent, setpgroup=0))
    sweep(order)


def remove_as_submitter(uid: str, gid: str, user: str, home: str, words: Sequence[str]) -> None:
    """A program of its own, because only one thread may give up rights: with those of the submitter, who alone sees
    what podman runs for them, and with nothing of the job's environment."""
    engine, container = words
    now = ["--time=0"] if engine.endswith("/podman") else []
    give_up_rights(Order([("uid", uid), ("gid", gid), ("user", user)]))
    os.chdir("/")
    env = {"PATH": SYSTEM_PATH, "HOME": home or "/", "USER": user, "LOGNAME": user}
    os.execve(engine, [engine, "rm", "--force", *now, container], env)


def give_up_rights(order: Order) -> None:
    """The calling process is the submitter from now on, where tasks run as their submitters."""
    if order.text("uid"):
        uid, gid = int(order.text("uid")), int(order.text("gid"))
        os.setgroups(_groups(order.text("user"), uid, gid))
        os.setgid(gid)
        os.setuid(uid)


def _groups(user: str, uid: int, gid: int) -> list[int]:
    """Those of the submitter; none but the first where the name has been given to somebody else since."""
    import pwd

    try:
        same = pwd.getpwnam(user).pw_uid == uid
    except KeyError:
        same = False
    return os.getgrouplist(user, gid) if same else [gid]


def _wait_for(pid: int) -> None:
    for _ in range(REMOVE_CONTAINER_TRIES):
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
        time.sleep(REMOVE_S)
    signal_group(pid, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def sweep(order: Order) -> None:
    """End what left the process group: it still carries the task's mark in its environment."""
    mark = f"GPUYARD_MARK={order.env.get('GPUYARD_MARK', '')}".encode()
    whose = (0, int(order.text("uid") or os.getuid()))
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                if os.stat(f"/proc/{name}").st_uid not in whose:
                    continue  # a mark says little of another user's process, and reading it is up to them
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark in file.read().split(b"\0"):
                        os.kill(int(name), signal.SIGKILL)
            except OSError:
                continue
