"""Real GPUs: claimed against other yards of the machine, and offered once they are ours.

The agent knows the machine, the local world who has what: here they are brought together. Used by `control_plane`.
"""

from __future__ import annotations

import pathlib

from gpuyard.agent.keeper import Keeper, Machine
from gpuyard.model.node import Place
from gpuyard.worlds.local.world import LocalWorld

LOOK_S = 10.0
"""How often claims of others and the nodes of our own GPUs are looked at again, while the loop turns anyhow."""


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
