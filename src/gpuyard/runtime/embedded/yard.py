"""The embedded yard: one control plane in this process, on this machine or a virtual fleet, with its state on disk.

`server.api` and `yard demo` use it as a `runtime.service.Yard`. What it is asked `runtime.serving` answers, over the
local world; what runs where is the brain's business.
"""

from __future__ import annotations

from gpuyard.model.outside.ports import Clock
from gpuyard.runtime.embedded.control_plane import ControlPlane, Settings
from gpuyard.runtime.embedded.local_port import LocalPort
from gpuyard.runtime.serving.served_yard import ServedYard
from gpuyard.worlds.local.ports import FaultPoint, no_fault
from gpuyard.worlds.local.state.records import Entry
from gpuyard.worlds.local.state.store import Store
from gpuyard.worlds.local.world import LocalWorld

__all__ = ["EmbeddedYard", "Settings"]


class EmbeddedYard(ServedYard[Entry]):
    """Implements `runtime.service.Yard`."""

    def __init__(self, settings: Settings, clock: Clock, fault: FaultPoint = no_fault) -> None:
        """Nothing is taken and nothing can be asked before `start`."""
        self.settings = settings
        self._plane = ControlPlane(settings, clock, fault)

    def start(self) -> None:
        """Take the state folder, adopt what runs, begin to turn. `Refused` says who holds the folder."""
        self._plane.start()
        ServedYard.__init__(self, LocalPort(self._plane))

    def close(self, jobs: bool = False) -> None:
        """Stop turning and let go of the state folder; the jobs run on, unless they are to end too."""
        self._plane.close(jobs)

    @property
    def store(self) -> Store:
        """Where everything is written."""
        return self._plane.store

    @property
    def world(self) -> LocalWorld:
        """This machine."""
        return self._plane.world
