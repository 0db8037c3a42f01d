"""Schedulers of ours as processes of their own, on the session's real API server and its fake kubelets."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuyard.brain import foresee
from gpuyard.runtime.clock import SystemClock, SystemDice
from gpuyard.runtime.clustered.scheduler import ClusterScheduler, WorldSettings, read_cluster
from tests.support import yards
from tests.support.kube.cluster import ApiError, Cluster, environment, until, until_told
from tests.support.kube.faults import FaultProxy

PATIENCE_S = 300.0


class Scheduler:
    """`yard serve --role scheduler`, as a process that can be killed."""

    def __init__(self, kubeconfig: str, log: Path, *args: str) -> None:
        self.log = log
        command = [sys.executable, "-m", "gpuyard", "serve", "--role", "scheduler", "--kubeconfig", kubeconfig, *args]
        with log.open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, env=environment())

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def stop(self) -> float:
        """Told to stop; how it ended."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(PATIENCE_S)
        return self.process.returncode

    def text(self) -> str:
        return self.log.read_text(errors="replace")


Schedulers = Callable[..., Scheduler]


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[FaultProxy]:
    proxy = FaultProxy(cluster)
    yield proxy
    proxy.stop()


@pytest.fixture
def schedulers(cluster: Cluster, tmp_path: Path) -> Iterator[Schedulers]:
    """Starts a scheduler; whatever runs at the end is killed."""
    started: list[Scheduler] = []
    cluster.delete(LEASE)  # of the test before, whose holder is gone

    def start(*args: str, server: str = "") -> Scheduler:
        log = tmp_path / f"scheduler-{len(started)}.log"
        started.append(Scheduler(cluster.scheduler_kubeconfig(server), log, *(args or ("--no-lease",))))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait(PATIENCE_S)
        assert "Traceback" not in each.text(), each.text()


def bound(cluster: Cluster) -> dict[str, str]:
    """The node of every pod that has one."""
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in cluster.pods() if pod["spec"].get("nodeName")}


MOMENT_S = 0.05


def slack() -> float:
    """How much longer everything may take while others use the machine: by its load of the last minute, and by what a
    moment of work takes now."""
    begun, used = time.monotonic(), time.thread_time()
    while time.thread_time() - used < MOMENT_S:
        """Work."""
    now = (time.monotonic() - begun) / MOMENT_S
    return max(1.0, now, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


def wait_for(holds: Callable[[], Any], what: str) -> Any:
    return until(holds, PATIENCE_S, what)


def wait_until_told(told: Callable[[], Any], expected: Any, what: str) -> None:
    until_told(told, expected, PATIENCE_S, what)


LEASE = "/apis/coordination.k8s.io/v1/namespaces/gpuyard-system/leases/gpuyard-scheduler"


def holder(cluster: Cluster) -> str:
    try:
        return str(cluster.get(LEASE)["spec"].get("holderIdentity") or "")
    except ApiError:
        return ""


def leads(cluster: Cluster, scheduler: Scheduler) -> bool:
    return holder(cluster).endswith(f"-{scheduler.process.pid}")


def standing(cluster: Cluster) -> str:
    """How every pod stands, for whoever reads why a test failed."""
    lines = [
        f"{each['metadata']['name']} {each['spec'].get('nodeName', '-')} {each['status']['phase']}"
        f"{' leaving' if 'deletionTimestamp' in each['metadata'] else ''} {condition(each).get('message', '')}"
        for each in cluster.pods()
    ]
    return "\n".join(["", *lines])


def condition(pod: dict[str, Any], kind: str = "PodScheduled") -> dict[str, Any]:
    return next((each for each in pod["status"].get("conditions", ()) if each["type"] == kind), {})


@pytest.fixture
def scheduling(cluster: Cluster) -> Iterator[Callable[..., ClusterScheduler]]:
    """Starts a scheduler in this process, as `yard serve` does in one of its own; for tests that kill nobody."""
    started: list[ClusterScheduler] = []

    def start(site: str = "", server: str = "", name: str = "gpuyard") -> ClusterScheduler:
        access = replace(cluster.access(), server=server or cluster.server)
        settings = WorldSettings(access, yards.fleet(site), name, identity="tests", elects=False)
        started.append(ClusterScheduler(settings, SystemClock(), SystemDice()))
        started[-1].start()
        return started[-1]

    yield start
    for each in started:
        each.close()
        assert not each.loop.set_apart


Scheduling = Callable[..., ClusterScheduler]


def message(cluster: Cluster, name: str) -> str:
    """What the pods of that name, or whose names begin so, are told: all of them the same, or nothing yet."""
    told = {condition(pod).get("message", "") for pod in cluster.pods() if pod["metadata"]["name"].startswith(name)}
    return str(told.pop()) if len(told) == 1 else ""


def why(cluster: Cluster, job: str, site: str = "") -> str:
    """The sentence of `yard why JOB --kube`."""
    moment = read_cluster(cluster.access(), yards.fleet(site), SystemClock(), SystemDice())
    found = foresee.why(moment, job)
    return "" if found is None else str(found.reason)


def wait_for_words(cluster: Cluster, name: str, job: str, *words: str, site: str = "") -> None:
    """Every such pod is told why it waits in the words of `yard why`, and these are among them."""

    def told() -> bool:
        time.sleep(0.2)  # asking costs more than waiting
        text = message(cluster, name)
        return bool(text) and all(word in text for word in words) and text == why(cluster, job, site)

    try:
        wait_for(told, f"{name} is told why it waits in the words of `yard why`")
    except AssertionError as failed:
        raise AssertionError(f"{failed}: {message(cluster, name)!r} against {why(cluster, job, site)!r}") from None
