"""Who is measured, each as a process that finds the pods waiting when it starts."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.kube import making, watching
from gpuyard.kube.client import KubeClient
from tests.support.kube.cluster import Cluster, environment

OURS, THEIRS, NOBODY = "gpuyard", "default-scheduler", "nobody"
CEILINGS = {"ceiling": "lanes", "ceiling-bare": "bare", "ceiling-aiohttp": "aiohttp"}
USUAL = ("ceiling", "gpuyard", "kube-scheduler")
SUBJECTS = (*CEILINGS, "gpuyard", "kube-scheduler")


@dataclass(frozen=True)
class Measured:
    """One subject in one round. Processor time is from its start until all are bound."""

    rate: float
    """Pods a second, from the first that was seen bound to the last."""
    cold_rate: float
    """Pods a second, from the start of its process to the last."""
    cpu_us: float
    """Of itself, for each pod."""
    server_us: float
    """Of the API server and its store, for each pod."""
    peak_mib: float
    others_cores: float
    """What everything else on the machine took meanwhile: the other processes of the run included."""


async def run(cluster: Cluster, client: KubeClient, name: str, workload: str, count: int) -> Measured:
    """One round of one of them."""
    scheduler = {"gpuyard": OURS, "kube-scheduler": THEIRS}.get(name, NOBODY)
    pods = await making.make_pods(client, workload, count, scheduler)
    await watching.collect_garbage(client)
    async with watching.watching(client, pods) as seen:
        servers, others, begun = watching.cpu_of_all(cluster.running), watching.busy_cores(), time.monotonic()
        with running(cluster, name) as process:
            await watching.complete(seen, process)
            cpu, peak = watching.cpu_of(process.pid), watching.memory_mib(process.pid)
            took = time.monotonic() - begun
            after = watching.cpu_of_all({known: cluster.running[known] for known in servers})
            others = watching.busy_cores() - others
    await watching.prove_distinct(client, pods)
    await making.clear(client)
    spent = sum(after.values()) - sum(servers.values())
    return Measured(
        rate=pods / seen.bind_s,
        cold_rate=pods / (seen.at[-1] - begun),
        cpu_us=cpu / pods * 1e6,
        server_us=spent / pods * 1e6,
        peak_mib=peak,
        others_cores=max(0.0, others - cpu - spent) / took,
    )


@contextmanager
def running(cluster: Cluster, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """Its process, until it is ended."""
    if name == "kube-scheduler":
        cluster.start_kube_scheduler()
        process = cluster.running.pop("kube-scheduler")
    else:
        with cluster.log(name).open("ab") as log:
            process = subprocess.Popen(command(cluster, name), stdout=log, stderr=log, env=surroundings(cluster.folder))
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def command(cluster: Cluster, name: str) -> list[str]:
    """How it is started, under the account of the scheduler."""
    config = cluster.scheduler_kubeconfig()
    if name in CEILINGS:
        return [sys.executable, "-m", "bench.kube.ceiling", config, CEILINGS[name]]
    return [sys.executable, "-m", "gpuyard", "serve", "--role", "scheduler", "--kubeconfig", config, "--no-lease"]


def surroundings(folder: Path) -> dict[str, str]:
    """As installed programs have it: modules are compiled already, into the folder."""
    kept = environment(PYTHONPYCACHEPREFIX=str(folder / "compiled"))
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return kept


def compile_ahead(surroundings: dict[str, str]) -> None:
    """So that the first round is like the others."""
    modules = "gpuyard.cli.main, gpuyard.cli.keeping.serve, gpuyard.runtime.clustered.scheduler, bench.kube.ceiling"
    subprocess.run([sys.executable, "-c", f"import {modules}"], check=True, env=surroundings)
