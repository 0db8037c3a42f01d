"""A cluster as a place of the contract suite: indexed Jobs on a real API server, under the scheduler's own driver, on
fake kubelets or on real ones.

The scheduler runs in this process as `yard serve` runs it; all that is told of a job is read from the API server. Time
passes for pods only while somebody waits for a job's end, so that nothing is over before it was looked at.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from gpuyard.model.actions import Evict, Move, Plan
from gpuyard.runtime.clock import SystemClock, SystemDice
from gpuyard.runtime.clustered.scheduler import ClusterScheduler, WorldSettings
from gpuyard.worlds.kubernetes.asking.marks import DRAIN
from tests.support import yards
from tests.support.kube.cluster import ApiError, Cluster, until
from tests.support.kube.fake_kubelet import FakeKubelets, FakeNode, indexed_job
from tests.support.kube.real_fixtures import RealCluster
from tests.support.kube.real_node import real_job, with_clock
from tests.support.kube.truth import INDEX
from tests.support.yards import OVER

PATIENCE_S = 300.0
MARKS = {"queue": "queue", "class": "class", "time_limit": "time-limit"}
FORGIVING = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}
"""The failure policy of a Job that does not count it as its own failure when a node goes away under it."""


class PassingTime:
    """A clock that stands unless it is let pass."""

    def __init__(self) -> None:
        self._passed = 0.0
        self._since: float | None = None

    def __call__(self) -> float:
        return self._passed + (0.0 if self._since is None else time.monotonic() - self._since)

    @contextlib.contextmanager
    def passing(self) -> Iterator[None]:
        self._since = time.monotonic()
        yield
        self._passed, self._since = self(), None


class Hosts(Protocol):
    """Where pods run. Those of a Job of theirs end after so many seconds that somebody let pass."""

    cluster: Cluster

    def open(self, nodes: dict[str, int]) -> None:
        """These are there, with so many GPUs each, and no others."""

    def job(self, name: str, seconds: float, tasks: int, gpus: int) -> dict[str, Any]:
        """Indexed; it does not count it as its own failure when a node goes away under it."""

    def passing(self) -> AbstractContextManager[None]:
        """Time passes."""

    def begun(self) -> list[str]:
        """Each member, `JOB-INDEX`, as often as it began."""

    def lose(self, name: str) -> None:
        """The machine is taken away, and Kubernetes has given up its pods."""


class FakeHosts:
    """Fake kubelets."""

    def __init__(self, cluster: Cluster, kubelets: FakeKubelets) -> None:
        self.cluster, self.kubelets = cluster, kubelets
        self.time = kubelets.time = PassingTime()
        self.passing, self.lose = self.time.passing, kubelets.lose

    def open(self, nodes: dict[str, int]) -> None:
        self.kubelets.add(*(FakeNode(name, gpus) for name, gpus in nodes.items()))

    def job(self, name: str, seconds: float, tasks: int, gpus: int) -> dict[str, Any]:
        return indexed_job(name, tasks, gpus, notes={"run-s": seconds}, job={"podFailurePolicy": FORGIVING})

    def begun(self) -> list[str]:
        admitted = (key for key, _, how in self.kubelets.admissions if how == "admitted")
        return [key.split("/")[1].rsplit("-", 1)[0] for key in admitted]


class RealHosts:
    """Real kubelets; their pods look at a folder of ours to know what time is."""

    def __init__(self, real: RealCluster, clock: Path) -> None:
        self.real, self.cluster, self.clock = real, real.cluster, clock
        clock.mkdir(parents=True)

    def open(self, nodes: dict[str, int]) -> None:
        assert set(nodes.values()) == {self.real.gpus}
        self.real.open(*nodes)

    def job(self, name: str, seconds: float, tasks: int, gpus: int) -> dict[str, Any]:
        forgiving = {"podFailurePolicy": FORGIVING}
        return with_clock(real_job(name, "work", str(seconds), tasks=tasks, gpus=gpus, job=forgiving), self.clock)

    @contextlib.contextmanager
    def passing(self) -> Iterator[None]:
        (self.clock / "passing").touch()
        yield
        (self.clock / "passing").unlink()

    def begun(self) -> list[str]:
        return [path.name.partition(".")[0] for path in self.clock.glob("*.begun")]

    def lose(self, name: str) -> None:
        """As an administrator does it: the mark that it is out of service lets its pods be given up."""
        self.real.lose(name)
        taint = {"key": "node.kubernetes.io/out-of-service", "value": "gone", "effect": "NoExecute"}
        self.cluster.merge(f"/api/v1/nodes/{name}", {"spec": {"taints": [taint]}})
        there = f"/api/v1/pods?fieldSelector=spec.nodeName={name}"
        until(lambda: not self.cluster.get(there)["items"], PATIENCE_S, "its pods are given up")
        self.cluster.delete(f"/api/v1/nodes/{name}")


class Kubernetes:
    """A `Place` of the contract suite."""

    def __init__(self, hosts: Hosts, fleet: str) -> None:
        self.cluster, self.hosts = hosts.cluster, hosts
        self.evictions: Counter[str] = Counter()
        snapshot = yards.fleet(fleet)
        hosts.open({node.name: len(node.gpus) for node in snapshot.nodes})
        site = replace(snapshot, nodes=(), jobs=())
        settings = WorldSettings(self.cluster.access(), site, identity="contract", elects=False)
        self.scheduler = ClusterScheduler(settings, SystemClock(), SystemDice())
        self.scheduler.loop.heard = self._hear
        self.scheduler.start()

    def _hear(self, plan: Plan) -> None:
        for action in plan.actions:
            if isinstance(action, (Evict, Move)):
                self.evictions[action.job.rpartition("/")[2]] += 1

    def submit(self, name: str, seconds: float, **keys: Any) -> None:
        tasks = keys.get("tasks", 1)
        job = self.hosts.job(name, seconds, tasks, keys.get("gpus", 0))
        if "priority" in keys:
            job["spec"]["template"]["spec"]["priorityClassName"] = self._priority_class(keys["priority"])
        marks = {f"gpuyard.dev/{mark}": str(keys[key]) for key, mark in MARKS.items() if key in keys}
        if "min" in keys:
            marks |= {"gpuyard.dev/gang": name, "gpuyard.dev/gang-tasks": str(tasks)}
            marks |= {"gpuyard.dev/gang-min": str(keys["min"])}
        job["spec"]["template"]["metadata"]["annotations"] |= marks
        self.cluster.create(job)

    def _priority_class(self, value: int) -> str:
        name = f"p{value}"
        document = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        with contextlib.suppress(ApiError):  # it is there from the test before
            self.cluster.create({**document, "value": value})
        return name

    def until(self, name: str, *phases: str) -> dict[str, Any]:
        wanted = phases or OVER
        told: dict[str, Any] = {}

        def reached() -> bool:
            told.update(self._told(name))
            return told["phase"] in wanted and (told["phase"] != "running" or self._has_begun(name))

        with self.hosts.passing() if set(wanted) & set(OVER) else contextlib.nullcontext():
            until(reached, PATIENCE_S, f"{name} is {' or '.join(wanted)}")
        return told

    def _told(self, name: str) -> dict[str, Any]:
        job = self.cluster.get(f"/apis/batch/v1/namespaces/default/jobs/{name}")
        pods = self._pods(name)
        there = [pod for pod in pods if pod["spec"].get("nodeName") and not is_over(pod) and not is_leaving(pod)]
        conditions = {each["type"] for each in job["status"].get("conditions", ()) if each["status"] == "True"}
        message = job["metadata"].get("annotations", {}).get("gpuyard.dev/ended", "")
        return {
            "name": name, "phase": phase_of(conditions, pods, there, self._least(job)), "message": message,
            "placements": [{"node": pod["spec"]["nodeName"]} for pod in there],
            "attempts": self._attempts(name, job["spec"]["completions"]), "evictions": self.evictions[name],
        }  # fmt: skip

    def _pods(self, name: str) -> list[dict[str, Any]]:
        return self.cluster.pods(**{"batch.kubernetes.io/job-name": name})

    def _has_begun(self, name: str) -> bool:
        """Whether all of it that runs has said so: a container is called running before it has done a thing."""
        begun = set(self.hosts.begun())
        running = (pod for pod in self._pods(name) if pod["status"]["phase"] == "Running" and not is_leaving(pod))
        return all(f"{name}-{pod['metadata']['labels'][INDEX]}" in begun for pod in running)

    def _least(self, job: dict[str, Any]) -> int:
        told = job["spec"]["template"]["metadata"].get("annotations", {}).get("gpuyard.dev/gang-min")
        return int(told or job["spec"]["completions"])

    def _attempts(self, name: str, tasks: int) -> int:
        """How often all of it has been begun: a member that came back alone is no new attempt."""
        begun = Counter(self.hosts.begun())
        return min(begun[f"{name}-{index}"] for index in range(tasks))

    def lose_node(self, name: str) -> None:
        self.hosts.lose(name)

    def cordon(self, name: str) -> None:
        self.cluster.merge(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})

    def drain(self, name: str) -> None:
        body = {"metadata": {"annotations": {DRAIN: "{}"}}, "spec": {"unschedulable": True}}
        self.cluster.merge(f"/api/v1/nodes/{name}", body)

    def why(self, name: str) -> str:
        def told() -> str:
            conditions = [each for pod in self._pods(name) for each in pod["status"].get("conditions", ())]
            return next((str(each["message"]) for each in conditions if each["type"] == "PodScheduled"), "")

        return str(until(told, PATIENCE_S, f"{name} is told why it waits"))

    def stop(self) -> None:
        self.scheduler.close()


def phase_of(conditions: set[str], pods: list[dict[str, Any]], there: list[dict[str, Any]], least: int) -> str:
    """Of a Job, by its conditions and by what its pods do."""
    if "Complete" in conditions or "Failed" in conditions:
        return "succeeded" if "Complete" in conditions else "failed"
    running = [pod for pod in there if pod["status"]["phase"] == "Running"]
    if len(running) + len([pod for pod in pods if pod["status"]["phase"] == "Succeeded"]) >= least:
        return "running"
    if any(is_leaving(pod) and pod["spec"].get("nodeName") and not is_over(pod) for pod in pods):
        return "stopping"
    return "starting" if there else "waiting"


def is_over(pod: dict[str, Any]) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")


def is_leaving(pod: dict[str, Any]) -> bool:
    return "deletionTimestamp" in pod["metadata"]
