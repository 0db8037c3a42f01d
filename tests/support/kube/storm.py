"""A storm on a real API server: jobs come and go, nodes die, watches break, writes are lost, leaders are killed.

Everything is drawn from one seed. After every step nothing may be wrong that is never right (`truth.wrongs`); when it
is calm again no gang may stay bound in part, and nobody may wait who could start.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from aiohttp import web

from gpuyard.brain import foresee
from gpuyard.model.actions import Start
from gpuyard.runtime.clock import SystemClock, SystemDice
from gpuyard.runtime.clustered.scheduler import read_cluster
from tests.support import yards
from tests.support.kube import truth
from tests.support.kube.cluster import Cluster, until
from tests.support.kube.fake_kubelet import FakeKubelets, FakeNode, indexed_job, pod
from tests.support.kube.faults import FaultProxy, Refusal, Verdict, is_bind
from tests.support.kube.place import FORGIVING

CALM_S = 240.0
FAULTS = (Refusal(500), Refusal(409), Refusal(429, "1"), Refusal(503), Verdict.LOSE, Verdict.LOSE_REPLY)
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"


class Killable(Protocol):
    """A scheduler that is a process."""

    def kill(self) -> None: ...


K = TypeVar("K", bound=Killable)


class Storm(Generic[K]):
    """One storm. `start` starts a scheduler that stands by, `leads` tells whether one leads."""

    def __init__(
        self,
        seed: int,
        cluster: Cluster,
        kubelets: FakeKubelets,
        proxy: FaultProxy,
        start: Callable[[], K],
        leads: Callable[[K], bool],
    ) -> None:
        self.dice = random.Random(seed)
        self.cluster, self.kubelets, self.proxy = cluster, kubelets, proxy
        self.told: list[str] = []
        """What was done, for whoever wants to know how it came."""
        self._start, self._leads = start, leads
        self._made = 0
        self._lost = 0.0
        self._rains = random.Random(seed)
        proxy.judge = self._judge
        kubelets.add(*(FakeNode(f"n{index}", gpus=4) for index in range(3)))
        self.schedulers = [start(), start()]

    def _judge(self, request: web.Request) -> Verdict | Refusal:
        if is_bind(request) and self._rains.random() < self._lost:
            return self._rains.choice(FAULTS)
        return Verdict.PASS

    # --- what happens ------------------------------------------------------------------------------------

    def step(self) -> None:
        """Something; and nothing is wrong afterwards."""
        steps = [
            self.add_pod, self.add_gang, self.add_gang, self.delete_one, self.delete_one, self.lose_node,
            self.cut_watches, self.change_weather, self.kill_leader,
        ]  # fmt: skip
        self.do(self.dice.choice(steps))

    def do(self, what: Callable[[], str]) -> None:
        self.told.append(f"{what.__name__}: {what()}")
        self.check()

    def add_pod(self) -> str:
        name, gpus = self._name("pod"), self.dice.choice((1, 1, 2, 4))
        self.cluster.create(pod(name, gpus, notes=self._lasting()))
        return f"{name} of {gpus}"

    def add_gang(self) -> str:
        name, tasks, gpus = self._name("gang"), self.dice.randint(2, 8), self.dice.choice((1, 1, 2))
        job = {"podFailurePolicy": FORGIVING}
        self.cluster.create(indexed_job(name, tasks, gpus, notes=self._lasting(), job=job))
        return f"{name}: {tasks} of {gpus}"

    def _lasting(self) -> dict[str, object]:
        return {"run-s": round(self.dice.uniform(0.1, 3.0), 1)} if self.dice.random() < 0.4 else {}

    def _name(self, kind: str) -> str:
        self._made += 1
        return f"{kind}{self._made}"

    def delete_one(self) -> str:
        """A pod, or a Job with all its pods."""
        jobs = [job["metadata"]["name"] for job in self.cluster.get(JOBS)["items"]]
        pods = [each["metadata"]["name"] for each in self.cluster.pods() if not truth.is_leaving(each)]
        if jobs and self.dice.random() < 0.6:
            name = str(self.dice.choice(jobs))
            self.cluster.delete(f"{JOBS}/{name}?propagationPolicy=Background")
        elif pods:
            name = str(self.dice.choice(pods))
            self.cluster.delete(f"{PODS}/{name}")
        else:
            return "nobody is there"
        return name

    def lose_node(self) -> str:
        """One machine goes with all that ran there; another one comes."""
        name = self.dice.choice(sorted(self.kubelets.nodes))
        self.kubelets.lose(name)
        self.kubelets.add(FakeNode(self._name("n-new"), gpus=4))
        return name

    def cut_watches(self) -> str:
        self.proxy.cut_watches()
        return "all"

    def change_weather(self) -> str:
        self._lost = self.dice.choice((0.0, 0.3, 0.7))
        return f"{self._lost:.0%} of the bindings fail"

    def kill_leader(self) -> str:
        leader = next((each for each in self.schedulers if self._leads(each)), self.schedulers[0])
        leader.kill()
        self.schedulers.remove(leader)
        self.schedulers.append(self._start())
        return "by SIGKILL"

    # --- what must be so -----------------------------------------------------------------------------------

    def check(self) -> None:
        """Nothing is so that may never be, and no kubelet had to refuse a pod."""
        wrongs = truth.wrongs(self.cluster)
        wrongs += [f"{key} on {node}: {how}" for key, node, how in self.kubelets.admissions if how != "admitted"]
        assert not wrongs, "\n".join([*wrongs, "after", *self.told])

    def settle(self) -> None:
        """It is calm: no gang is bound in part, and nobody waits who could start."""
        self._lost = 0.0
        left: list[str] = []

        def calm() -> bool:
            left[:] = truth.half_bound(self.cluster) or self._could_start()
            return not left

        try:
            until(calm, CALM_S, "it is calm")
        except AssertionError as failed:
            raise AssertionError("\n".join([str(failed), *left, "after", *self.told])) from None
        self.check()

    def _could_start(self) -> list[str]:
        moment = read_cluster(self.cluster.access(), yards.fleet(""), SystemClock(), SystemDice())
        plan = foresee.outlook(moment)
        return [f"{action.job} could start" for action in plan.actions if isinstance(action, Start)]
