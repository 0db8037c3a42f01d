"""Schedulers of ours as processes of their own, on the session's real API server and its fake kubelets."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.kube.cluster import Cluster, environment, until

PATIENCE_S = 120.0


class Scheduler:
    """`yard serve --role scheduler`, as a process that can be killed."""

    def __init__(self, kubeconfig: str, log: Path, *args: str) -> None:
        self.log = log
        command = [sys.executable, "-m", "gpuyard", "serve", "--role", "scheduler", "--kubeconfig", kubeconfig, *args]
        with log.open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, env=environment())

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)

    def stop(self) -> float:
        """Told to stop; how it ended."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)
        return self.process.returncode

    def text(self) -> str:
        return self.log.read_text(errors="replace")


Schedulers = Callable[..., Scheduler]


@pytest.fixture
def schedulers(cluster: Cluster, tmp_path: Path) -> Iterator[Schedulers]:
    """Starts a scheduler; whatever runs at the end is killed."""
    started: list[Scheduler] = []

    def start(*args: str, server: str = "") -> Scheduler:
        log = tmp_path / f"scheduler-{len(started)}.log"
        started.append(Scheduler(cluster.scheduler_kubeconfig(server), log, *(args or ("--no-lease",))))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait(30)
        assert "Traceback" not in each.text(), each.text()


def bound(cluster: Cluster) -> dict[str, str]:
    """The node of every pod that has one."""
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in cluster.pods() if pod["spec"].get("nodeName")}


def wait_for(holds: Callable[[], Any], what: str) -> Any:
    return until(holds, PATIENCE_S, what)


def condition(pod: dict[str, Any], kind: str = "PodScheduled") -> dict[str, Any]:
    return next((each for each in pod["status"].get("conditions", ()) if each["type"] == kind), {})
