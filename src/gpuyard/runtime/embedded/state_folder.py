"""What a yard holds of its machine: its state folder, known by a lock that dies with its process, and real GPUs.

Used by the embedded yard. The folder is private to its user; GPUs are claimed against other yards of the machine, and
offered once they are ours. The agent knows the machine, the local world who has what: here they are brought together.
"""

from __future__ import annotations

import fcntl
import os
import pathlib
from collections.abc import Mapping

from gpuyard.agent.keeper import Keeper, Machine
from gpuyard.model.errors import Refused
from gpuyard.model.node import Place
from gpuyard.worlds.local.world import LocalWorld

LOOK_S = 10.0
"""How often claims of others and the nodes of our own GPUs are looked at again, while the loop turns anyhow."""


class FolderHeld(Refused):
    """Somebody else has the folder; the message says who and since when."""


def default_folder(environ: Mapping[str, str]) -> pathlib.Path:
    """`$XDG_STATE_HOME/gpuyard`, as the base directory specification has it."""
    base = environ.get("XDG_STATE_HOME", "")
    home = pathlib.Path(environ.get("HOME", "/"))
    return (pathlib.Path(base) if base.startswith("/") else home / ".local" / "state") / "gpuyard"


class Holder:
    """Holds a folder until `release` or the end of the process; the local `worlds.base.Leadership`."""

    def __init__(self, folder: pathlib.Path, pid: int, since: str) -> None:
        self.folder = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
            self._file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            what = f" ({error.filename})" if error.filename != str(folder) else ""
            told = f"the state folder {folder} cannot be written: {error.strerror}{what}"
            told += "; give rights to it, or name another"
            raise Refused(told) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            told = os.read(self._file, 200).decode(errors="replace").strip() or "somebody"
            os.close(self._file)
            raise FolderHeld(f"{folder} is held by {told}; stop it with `yard down`, or use another --state") from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"process {pid}, up since {since}\n".encode(), 0)

    def held(self) -> bool:
        """Whether the lock in the folder is still the one that we hold: who removed or replaced it may lead now."""
        try:
            there, ours = os.stat(self.folder / "lock"), os.fstat(self._file)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)

    def release(self) -> None:
        """Let go."""
        os.close(self._file)


class RealGpus:
    """The keeper of a yard's GPUs, and which place in the fleet each of them is."""

    def __init__(self, world: LocalWorld, machine: Machine, state: pathlib.Path, mark: str) -> None:
        self._world = world
        nodes = world.desk.nodes.values()
        self._places = {gpu.uuid: Place(node.name, gpu.index) for node in nodes for gpu in node.gpus if gpu.uuid}
        self.keeper = Keeper(machine, state, mark, list(self._places))
        self._looked_at = 0.0
        for uuid, claim in self.keeper.refused.items():
            world.closures.give_away(self._places[uuid], f"{claim} has it")

    def look_after(self) -> None:
        """Offer what others have let go of, and close what somebody has opened."""
        now = self._world.desk.monotonic()
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        if self.keeper.refused:
            for uuid in self.keeper.claim():
                self._world.closures.take_back(self._places[uuid])
        for path in self.keeper.look_again():
            with self._world.desk.change():
                self._world.desk.say("reopened", message=f"{path} had been opened by somebody, and is closed again")
