"""Nothing of a task outlives it: control groups where the system has them, process groups and marks where not.

Used by `supervisor` while it watches, and by `adopt` for what a dead supervisor left behind. Light on purpose: it is
loaded with every supervisor.
"""

from __future__ import annotations

import os
import time

from gpuyard.worlds.local.notes import Order

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # the same without its enums, which take as long as Python's own start

REMOVE_TRIES = 50
REMOVE_S = 0.01


def signal_group(pid: int, number: int) -> None:
    """To all processes of a group, if any are left."""
    try:
        os.killpg(pid, number)
    except OSError:
        return


class CGroup:
    """A control group for the task, where the system lets us make one: nothing forks its way out of it."""

    def __init__(self, order: Order) -> None:
        self.path = _path(order)
        try:
            if self.path:
                os.mkdir(self.path)
                _write(self.path, "memory.max", order.text("memory"))
        except OSError:
            self.path = ""

    def join(self) -> None:
        """The calling process goes in."""
        if self.path:
            _write(self.path, "cgroup.procs", "0")

    def kill(self) -> None:
        """Everything in it ends."""
        if self.path:
            _write(self.path, "cgroup.kill", "1")

    def end(self) -> None:
        """It is gone with the task."""
        self.kill()
        _remove(self.path)


def _path(order: Order) -> str:
    parent = order.text("cgroup")
    return f"{parent}/gpuyard-{order.env.get('GPUYARD_MARK', '')}" if parent else ""


def _write(path: str, name: str, value: str) -> None:
    try:
        if value:
            with open(f"{path}/{name}", "w", encoding="ascii") as file:
                file.write(value)
    except OSError:
        return


def _remove(path: str) -> None:
    """The kernel needs a moment to bury what was in it."""
    for _ in range(REMOVE_TRIES if path else 0):
        try:
            os.rmdir(path)
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(REMOVE_S)


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
    """End what a task left behind whose supervisor is gone."""
    path = _path(order)
    if path:
        _write(path, "cgroup.kill", "1")
        _remove(path)
    sweep(order)


def sweep(order: Order) -> None:
    """End what left the process group: it still carries the task's mark in its environment."""
    mark = f"GPUYARD_MARK={order.env.get('GPUYARD_MARK', '')}".encode()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark in file.read().split(b"\0"):
                        os.kill(int(name), signal.SIGKILL)
            except OSError:
                continue
