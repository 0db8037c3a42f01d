"""Nothing of a task outlives it: control groups where the system has them, process groups and marks where not.

Used by `supervisor` while it watches, and by `adopt` for what a dead supervisor left behind. Light on purpose: it is
loaded with every supervisor.
"""

from __future__ import annotations

import os
import signal

from gpuyard.worlds.local.notes import Order


def signal_group(pid: int, number: int) -> None:
    """To all processes of a group, if any are left."""
    try:
        os.killpg(pid, number)
    except OSError:
        return


class CGroup:
    """A control group for the task, where the system lets us make one: nothing forks its way out of it."""

    def __init__(self, order: Order) -> None:
        parent = order.text("cgroup")
        self.path = f"{parent}/gpuyard-{order.text('key').replace(' ', '-')}" if parent else ""
        try:
            if self.path:
                os.mkdir(self.path)
                self._write("memory.max", order.text("memory"))
        except OSError:
            self.path = ""

    def _write(self, name: str, value: str) -> None:
        try:
            if value:
                with open(f"{self.path}/{name}", "w", encoding="ascii") as file:
                    file.write(value)
        except OSError:
            pass

    def join(self) -> None:
        """The calling process goes in."""
        if self.path:
            self._write("cgroup.procs", "0")

    def kill(self) -> None:
        """Everything in it ends."""
        if self.path:
            self._write("cgroup.kill", "1")

    def end(self) -> None:
        """It is gone with the task."""
        self.kill()
        try:
            if self.path:
                os.rmdir(self.path)
        except OSError:
            pass


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
