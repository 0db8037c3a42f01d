"""Nothing of a task outlives it: control groups where the system has them, process groups and marks where not.

Used by `supervisor` while it watches, and by `adopt` for what a dead supervisor left behind. Light on purpose: it is
loaded with every supervisor.
"""

from __future__ import annotations

import os

from gpuyard.worlds.local.supervising.notes import Order

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # the same without its enums, which take as long as Python's own start

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CANNOT_RUN = 127
"""The exit code of shells for a command that is not there."""


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
                _write(self.path, "cpu.max", order.text("cpu"))
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


def enforced(parent: str) -> frozenset[str]:
    """Of `cpu` and `memory` what groups below this one are kept to, once it was asked of the system."""
    found = set()
    for name in ("cpu", "memory") if parent else ():
        _write(parent, "cgroup.subtree_control", f"+{name}")
        try:
            with open(f"{parent}/cgroup.subtree_control", encoding="ascii") as file:
                found |= {name} & set(file.read().split())
        except OSError:
            continue
    return frozenset(found)


def clear(order: Order) -> None:
    """Kill what a task left behind whose supervisor is gone; a container is its engine's to end."""
    path = path_of(order)
    if path:
        _write(path, "cgroup.kill", "1")
    sweep(order)


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
