"""The control plane of a cluster: the world of Kubernetes and its driver, wired together.

Used by `yard serve` and by tests. What must survive lies in the API server; here is nothing to keep.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace

from gpuyard.brain import new_nodes
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.new_nodes import WaitingTold
from gpuyard.files.reports import ReportFolder
from gpuyard.files.units import write_time
from gpuyard.kube import credentials
from gpuyard.kube.client import KubeClient
from gpuyard.kube.credentials import KubeAccess
from gpuyard.model.actions import Plan, Reserve
from gpuyard.model.errors import Denied, Refused
from gpuyard.model.outside import text
from gpuyard.model.outside.collector import collector_resting
from gpuyard.model.outside.phrases import agreeing, listed
from gpuyard.model.outside.ports import Clock, Dice
from gpuyard.model.snapshot import Reservation, Snapshot
from gpuyard.runtime.clock import SteadyClock
from gpuyard.runtime.clustered.readiness import ClusterReadiness
from gpuyard.runtime.driving.driver import Driver
from gpuyard.runtime.driving.loop import Loop
from gpuyard.runtime.driving.pace import Pace
from gpuyard.runtime.driving.recovery import Recovery
from gpuyard.worlds.kubernetes.acting.remember import Keepsake
from gpuyard.worlds.kubernetes.world import KubernetesWorld, WorldSettings

__all__ = ["ClusterScheduler", "WorldSettings", "found", "read_cluster"]

SWITCH_S = 0.001
"""Two threads share one interpreter here; the one that binds must not wait five milliseconds for its turn."""
REPORTED = 100
TOO_MANY = 429
HANDED_OVER_S = 60.0
"""So long a new leader keeps free what the one before it kept; every plan of its own works that out anew."""


class ClusterScheduler:
    """One scheduler; another may stand by beside it."""

    def __init__(self, settings: WorldSettings, clock: Clock, dice: Dice, reports: ReportFolder | None = None) -> None:
        self._reports = reports
        self._reported: set[str] = set()
        self._unexplained = ""
        self._settled = False
        """Whether a first plan has been made."""
        self._reserved: tuple[Reservation, ...] = ()
        self._clock = clock
        wired = replace(settings, explain=self._explain, gives=self._give, takes=self._take)
        self.world = KubernetesWorld(wired, SteadyClock(clock), dice)
        self.loop = Loop(self.world, clock, leadership=self.world)
        self.loop.heard = self._heard
        self.world.observer.stumbled = self._stumbled
        self.driver = Driver(self.loop, clock, Pace(), recovery=Recovery(self.loop, reports))

    def start(self, goes_on: Callable[[str], bool] = lambda _trouble: True) -> None:
        """Follow the cluster, and place what waits as soon as we lead. As long as not all of it is known, `goes_on` is
        asked whether that is still waited for, and told what is in the way; `Refused` if it is not."""
        self.world.goes_on = goes_on
        sys.setswitchinterval(SWITCH_S)
        with collector_resting():  # nothing of what a cluster is read into is garbage
            self.world.start()
            self.driver.start()
            gc.freeze()

    def close(self) -> None:
        """Let go of everything; another may lead at once."""
        self.world.close()
        self.driver.close()

    def readiness(self) -> ClusterReadiness:
        """How it stands, for whoever watches it; may be asked from any thread and before `start`."""
        synced, heard_s = self.world.sight()
        leads, turns = synced and self.world.held(), not self.driver.stuck
        return ClusterReadiness(leads, synced, heard_s, turns, self.driver.failing)

    def trouble(self) -> str:
        """What is wrong, in one sentence; nothing if all is well, as it is with one who stands by."""
        turns = "" if self.driver.standing_by else self.driver.trouble()
        aside = self.world.trouble_aside() or self.loop.left_out()
        return text.line(self.world.trouble() or turns or self._apart() or self._unexplained or aside)

    def _apart(self) -> str:
        names = sorted({*self.loop.set_apart, *self.world.observer.unread})
        if not names:
            return ""
        bug = "a bug of GPUYard: please report it"
        return f"{listed(names)} {agreeing(len(names), 'is', 'are')} set apart, because we stumble there; this is {bug}"

    def _stumbled(self, name: str, error: Exception) -> None:
        """Kept for a report, the same mistake once."""
        trace = traceback.format_exception(error)
        where = trace[-2:][0]
        if self._reports is None or where in self._reported or len(self._reported) >= REPORTED:
            return
        self._reported.add(where)
        told = {"stage": "observe", "about": name, "error": trace[-1].strip(), "traceback": "".join(trace)}
        with contextlib.suppress(OSError):
            self._reports.report(f"unread-{write_time(round(self._clock.now()))}", told)

    def _heard(self, plan: Plan) -> None:
        if not self._settled:  # all there is is known and stays: looking for garbage in it would hold up everybody
            self._settled = True
            gc.freeze()
        reserves = (action for action in plan.actions if isinstance(action, Reserve))
        self._reserved = tuple(Reservation(each.job, each.placements, each.until) for each in reserves)

    def _give(self) -> Keepsake:
        """What the next leader should know; both are values, so that any thread may read them."""
        return Keepsake(self.loop.memory.to_document(), self._reserved)

    def _take(self, kept: Keepsake) -> None:
        """What the leader before us knew. What it kept free stays so until we have seen for ourselves."""
        until = self._clock.now() + HANDED_OVER_S
        memory, unreadable = Memory.recalled(kept.memory)
        for name, why in unreadable.items():
            self.loop.leave_out(f"what the leader before us remembered as {name} cannot be read ({why})")
        self.loop.memory = memory if kept.memory else self.loop.memory
        reserved = (replace(each, until=min(until, each.until or until)) for each in kept.reservations)
        self.loop.fleet.reservations = tuple(reserved)

    def _explain(self, snapshot: Snapshot) -> Mapping[str, WaitingTold]:
        """Whatever goes wrong while explaining, pods are placed and the next question is answered."""
        try:
            told = new_nodes.told(snapshot)
        except Exception as error:  # noqa: BLE001 -- placing goes on, and the trouble is told
            self._unexplained = f"why jobs wait could not be told: {type(error).__name__}: {error}"
            return {}
        self._unexplained = ""
        return told


def read_cluster(access: KubeAccess, site: Snapshot, clock: Clock, dice: Dice, scheduler: str = "gpuyard") -> Snapshot:
    """The cluster as it is now, and nothing changed by it."""
    asyncio.run(_check_rights(access, clock))
    world = KubernetesWorld(WorldSettings(access, site, scheduler), clock, dice)
    world.start()
    try:
        world.open()
        return replace(world.snapshot(), now=clock.now())
    finally:
        world.close()


async def _check_rights(access: KubeAccess, clock: Clock) -> None:
    """Whoever may see their own namespace alone is told so at once, and who can tell them more."""
    client = await KubeClient(access, clock).open()
    try:
        for path in ("/api/v1/nodes", "/api/v1/pods"):
            reply = await client.get(path, {"limit": "1"})
            if client.stranger:
                raise Denied(client.stranger)
            if reply.status == 403:
                raise Denied(
                    f"you may not read the whole cluster ({reply.why()}); set GPUYARD_URL to the yard's own API there, "
                    "which tells what your token lets you see, or read `kubectl describe pod`: each pod is told why"
                )
            if 400 <= reply.status < 500 and reply.status != TOO_MANY:
                raise Refused(
                    f"what answers at {access.server} is no API server, or not by this address ({reply.why()}): "
                    "see `server` in kubectl config view --minify"
                )
    finally:
        await client.close()


def found(kubeconfig: str = "", context: str = "") -> KubeAccess:
    """The API server that is meant."""
    return credentials.find(kubeconfig, context)
