"""The worlds that keep the contract, each as a fixture that speaks one small language."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from gpuyard import files
from gpuyard.model.events import NodeSeen
from gpuyard.model.job import Phase
from gpuyard.model.node import CORDONED, Closure
from gpuyard.runtime.clock import SystemClock
from gpuyard.runtime.driving.driver import Driver
from gpuyard.runtime.driving.loop import Loop
from gpuyard.runtime.serving.documents import job_documents
from gpuyard.worlds.sim.traces.trace import Arrival, Trace
from gpuyard.worlds.sim.world import Rules, SimWorld
from tests.support import yards
from tests.support.hearing import Heard
from tests.support.toy_world import ToyWorld
from tests.support.yards import ADMIN, ME, OVER, TestYard, sh


class Place(Protocol):
    """A running world: jobs take as many seconds of its time as they say."""

    def submit(self, name: str, seconds: float, **keys: Any) -> None:
        """A job that works so long and then succeeds."""

    def until(self, name: str, *phases: str) -> dict[str, Any]:
        """Wait until the job is in one of the phases (default: ended) and tell how it stands."""

    def lose_node(self, name: str) -> None:
        """The node is gone with all that ran on it."""

    def cordon(self, name: str) -> None:
        """Nothing new goes on the node."""

    def drain(self, name: str) -> None:
        """The node is closed and emptied gently."""

    def why(self, name: str) -> str:
        """Why it waits, in one sentence."""

    def stop(self) -> None:
        """Leave nothing behind."""


class Local:
    """The embedded yard. Its jobs look for a file to know whether time passes: nothing is over unseen."""

    TICK_S = 0.1
    """Of a job's time, which passes twice as fast as the machine's."""

    def __init__(self, folder: Path, fleet: str) -> None:
        self.yard = TestYard(folder, fleet)
        self.yard.start()
        self.passing = folder / "passing"

    def submit(self, name: str, seconds: float, **keys: Any) -> None:
        tick = f"sleep {self.TICK_S / 2}; if [ -e {self.passing} ]; then left=$((left - 1)); fi"
        script = f"left={round(seconds / self.TICK_S)}; while [ $left -gt 0 ]; do {tick}; done"
        self.yard.submit(ME, [sh(script, name=name, **keys)])

    def until(self, name: str, *phases: str) -> dict[str, Any]:
        if not set(phases or OVER) & set(OVER):
            return self.yard.until(name, *phases)
        self.passing.touch()
        try:
            return self.yard.until(name, *phases)
        finally:
            self.passing.unlink()

    def lose_node(self, name: str) -> None:
        self.yard.world.breakage.lose_node(name)

    def cordon(self, name: str) -> None:
        self.yard.world.cordon(name, True)

    def drain(self, name: str) -> None:
        self.yard.drain(ADMIN, {"node": name, "gpu": None})

    def why(self, name: str) -> str:
        return str(self.yard.why(ADMIN, name)["message"])

    def stop(self) -> None:
        self.yard.stop()


class Sim:
    """The simulated world under the one loop. Its time passes only where somebody waits."""

    PATIENCE = 60.0
    """Seconds of its time until a wait is in vain; it must be longer than the longest job."""

    def __init__(self, folder: Path, fleet: str) -> None:
        snapshot = yards.fleet(fleet)
        self.nodes = {node.name: node for node in snapshot.nodes}
        self.heard = Heard()
        self.world = SimWorld(Trace("contract", ()), Rules(), self.heard, snapshot)
        self.loop = Loop(self.world, SystemClock())
        self.loop.open()
        self.plan = self.loop.turn()

    def submit(self, name: str, seconds: float, **keys: Any) -> None:
        now = self.world.now()
        asked = files.read_submission({"name": name, **keys}, now, "job")
        self.world.submit(Arrival(now, replace(asked.job, submitted=now), work=seconds))
        self.plan = self.loop.turn()

    def until(self, name: str, *phases: str) -> dict[str, Any]:
        patience = self.world.now() + self.PATIENCE
        while (document := self._told(name))["phase"] not in (phases or OVER):
            assert self.world.now() < patience, document
            assert self.world.wait(), f"nothing will happen any more: {document}"
            self.plan = self.loop.turn()
        return document

    def _told(self, name: str) -> dict[str, Any]:
        live = self.world.jobs.get(name) or self.heard.ended[name]
        phase, message = Phase.RUNNING if live.running else Phase.WAITING, ""
        if live.expired:
            phase, message = Phase.FAILED, f"ran into its time limit of {live.arrival.job.time_limit:g} s"
        elif name in self.heard.ended:
            phase = Phase.SUCCEEDED
        places = [job_documents.placement_document(place) for place in live.placements]
        return {
            "name": name, "phase": phase.value, "message": message, "placements": places,
            "attempts": live.attempts, "evictions": live.evictions,
        }  # fmt: skip

    def lose_node(self, name: str) -> None:
        del self.nodes[name]
        self.world.lose_node(name)
        self.plan = self.loop.turn()

    def cordon(self, name: str) -> None:
        self.close(name, CORDONED)

    def close(self, name: str, closure: Closure) -> None:
        self.nodes[name] = replace(self.nodes[name], closed=closure)
        self.world.tell(NodeSeen(self.nodes[name]))
        self.plan = self.loop.turn()

    def drain(self, name: str) -> None:
        self.close(name, Closure(drains=True))

    def why(self, name: str) -> str:
        return next(str(each.reason) for each in self.plan.waiting if each.job == name)

    def stop(self) -> None:
        """It never was."""


class Toy:
    """A world of a page, under the same driver."""

    def __init__(self, folder: Path, fleet: str) -> None:
        self.world = ToyWorld(yards.fleet(fleet))
        self.loop = Loop(self.world, SystemClock())
        self.driver = Driver(self.loop, SystemClock())
        self.loop.open()
        self.driver.turn()

    def submit(self, name: str, seconds: float, **keys: Any) -> None:
        self.world.submit(files.read_submission({"name": name, **keys}, self.world.now(), "job").job, seconds)
        self.driver.turn()

    def until(self, name: str, *phases: str) -> dict[str, Any]:
        while (document := self._told(name))["phase"] not in (phases or OVER):
            assert self.world.wait(), f"nothing will happen any more: {document}"
            self.driver.turn()
        return document

    def _told(self, name: str) -> dict[str, Any]:
        life = self.world.jobs[name]
        phase = life.over or ("running" if life.places else "waiting")
        places = [job_documents.placement_document(place) for place in life.places]
        return {
            "name": name, "phase": phase, "message": life.told, "placements": places,
            "attempts": life.attempts, "evictions": life.evictions,
        }  # fmt: skip

    def lose_node(self, name: str) -> None:
        self.world.lose_node(name)
        self.driver.turn()

    def cordon(self, name: str) -> None:
        self.world.shut(name, CORDONED)
        self.driver.turn()

    def drain(self, name: str) -> None:
        self.world.shut(name, Closure(drains=True))
        self.driver.turn()

    def why(self, name: str) -> str:
        return next(str(each.reason) for each in self.world.plan.waiting if each.job == name)

    def stop(self) -> None:
        self.world.close()


WORLDS: dict[str, Callable[[Path, str], Place]] = {"local": Local, "sim": Sim, "toy": Toy}


def in_cluster(request: pytest.FixtureRequest) -> Callable[[Path, str], Place]:
    """On the session's real API server, which only those start who meet it."""
    from tests.support.kube.place import FakeHosts, Kubernetes

    hosts = FakeHosts(request.getfixturevalue("cluster"), request.getfixturevalue("kubelets"))
    return lambda folder, fleet: Kubernetes(hosts, fleet)


def on_real_nodes(request: pytest.FixtureRequest) -> Callable[[Path, str], Place]:
    """The same with kubelets that run containers."""
    from tests.support.kube.place import Kubernetes, RealHosts

    real = request.getfixturevalue("cluster_of_fours")
    request.addfinalizer(real.clear)
    return lambda folder, fleet: Kubernetes(RealHosts(real, folder / "clock"), fleet)


CLUSTERS = {"kubernetes": in_cluster, "kubernetes-real": on_real_nodes}
KUBERNETES = pytest.param("kubernetes", marks=pytest.mark.slow)
REAL = pytest.param("kubernetes-real", marks=[pytest.mark.slow, pytest.mark.long])
LOCAL = pytest.param("local", marks=pytest.mark.slow)


@pytest.fixture(params=[REAL, KUBERNETES, LOCAL, "sim", "toy"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Place]]:
    """Makes a world of the kind from a fleet file's text."""
    made: list[Place] = []
    kind = CLUSTERS[request.param](request) if request.param in CLUSTERS else WORLDS[request.param]

    def make(fleet: str) -> Place:
        made.append(kind(tmp_path / str(len(made)), fleet))
        return made[-1]

    yield make
    for place in made:
        place.stop()
