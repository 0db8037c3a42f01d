"""Keeps a machine's real GPUs for whoever has them: claimed for one yard, and in a shared one open to their holder.

Used by the embedded yard's engine, and told by the local world who has what; virtual GPUs have no keeper.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuyard.agent.claims import Claims, GpuClaim, common_folder
from gpuyard.agent.device_nodes import REOPENS, DeviceNodes, minors, reopens

NOTICES_MAX = 20


@dataclass(frozen=True, slots=True)
class Machine:
    """Where things are on a machine; tests bring their own."""

    claims: pathlib.Path | None = None
    """None: the folder common to all users."""
    dev: pathlib.Path = pathlib.Path("/dev")
    driver: pathlib.Path = pathlib.Path("/proc/driver/nvidia")


@dataclass(slots=True)
class TaskGpus:
    """What one task has."""

    uid: int
    uuids: tuple[str, ...]
    pid: int = 0


class Keeper:
    """The GPUs of one yard, from the time it comes up until it lets go."""

    def __init__(self, machine: Machine, state: pathlib.Path, mark: str, uuids: Sequence[str]) -> None:
        self._about_claims: list[str] = []
        self._about_nodes: list[str] = []
        self.refused: dict[str, GpuClaim] = {}
        self._machine = machine
        self._state = state
        self._uuids = tuple(uuids)
        self._tasks: dict[str, TaskGpus] = {}
        self._pids: dict[str, int] = {}
        self._nodes: DeviceNodes | None = None
        folder = machine.claims or common_folder()
        self._claims = Claims(folder, str(state), mark) if folder is not None else None
        if self._claims is None:
            told = "no folder of this machine is open to all and root's"
            self._about_claims.append(f"GPUs are not claimed against other yards: {told} (/run/lock, /tmp)")
        self.claim()

    def claim(self) -> list[str]:
        """Claim what others had until now; which GPUs are ours only since this call."""
        before = set(self.refused)
        if self._claims is not None:
            wanted = self._uuids if not before else sorted(before)
            self.refused = self._claims.claim(wanted)
        gained = sorted(before - set(self.refused))
        if gained and self._nodes is not None:
            self.separate()
        return gained

    def separate(self) -> None:
        """Open nodes only to those who have the GPU, from now on; what stands in the way is noted."""
        self._about_nodes, known = [], minors(self._machine.driver)
        paths = {uuid: self._machine.dev / f"nvidia{known[uuid]}" for uuid in self._uuids if uuid in known}
        missing = [uuid for uuid in self._uuids if uuid not in paths or not paths[uuid].exists()]
        if missing:
            told = f"the device node of {', '.join(missing)} is not known"
            self._about_nodes.append(f"GPUs are kept apart between users by variables only: {told}")
        paths = {uuid: path for uuid, path in paths.items() if uuid not in missing and uuid not in self.refused}
        self._nodes = DeviceNodes(paths, self._state / "device-nodes")
        users = {uuid: self._users(uuid) for uuid in paths}
        self._about_nodes += self._nodes.begin(users)
        if paths and reopens(self._machine.driver):
            self._about_nodes.append(REOPENS)

    def notices(self) -> list[str]:
        """What is not offered and what could not be kept, in sentences."""
        others = [f"{uuid} is not offered here: {claim} has it" for uuid, claim in sorted(self.refused.items())]
        return [*others, *self._about_claims, *self._about_nodes]

    def look_again(self) -> list[str]:
        """Which nodes somebody had opened; they are closed again."""
        return self._nodes.check() if self._nodes is not None else []

    # --- tasks -----------------------------------------------------------------------------------

    def take(self, task: str, uid: int, uuids: Iterable[str]) -> None:
        """A task is about to have them."""
        held = TaskGpus(uid if uid >= 0 else os.getuid(), tuple(uuids), self._pids.get(task, 0))
        self._tasks[task] = held
        for uuid in held.uuids:
            self._let_in(uuid, held.uid)
        self._hold(task, held)

    def _let_in(self, uuid: str, uid: int) -> None:
        try:
            if self._nodes is not None:
                self._nodes.open(uuid, uid)
        except OSError as error:  # the task will say more than we can
            told = f"the node of {uuid} could not be opened to uid {uid}: {error.strerror or error}"
            self._about_nodes = [*self._about_nodes[-NOTICES_MAX:], told]

    def watched(self, task: str, pid: int) -> None:
        """The process that sees a task through."""
        self._pids[task] = pid
        if task in self._tasks:
            self._tasks[task].pid = pid
            self._hold(task, self._tasks[task])

    def _hold(self, task: str, held: TaskGpus) -> None:
        if self._claims is not None and held.pid:
            self._claims.hold(task, held.uuids, held.pid)

    def leave(self, task: str) -> None:
        """A task is proven gone from them."""
        self._pids.pop(task, None)
        held = self._tasks.pop(task, None)
        if held is None:
            return
        if self._claims is not None:
            self._claims.drop(task, held.uuids)
        for uuid in held.uuids:
            if self._nodes is not None and held.uid not in self._users(uuid):
                with contextlib.suppress(OSError):  # looked after again soon
                    self._nodes.shut(uuid, held.uid)

    def _users(self, uuid: str) -> set[int]:
        return {held.uid for held in self._tasks.values() if uuid in held.uuids}

    def close(self) -> None:
        """Let go of what no task has any more."""
        if self._nodes is not None:
            self._nodes.end()
        if self._claims is not None:
            self._claims.drop("yard", self._uuids)
