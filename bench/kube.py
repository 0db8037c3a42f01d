"""Pods bound per second on a real API server: GPUYard, kube-scheduler with its limits lifted, and the raw ceiling.

One API server, one run, one after another: the pods wait already when a scheduler starts (cold, from the watch), nodes
differ by kilobytes of memory. `python -m bench.kube --rounds 5` (or `make bench-kube`). What is measured for all alike
by one watch of ours: from the first bind to the last, and from the start of the process to the last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from gpuyard.kube.client import STRATEGIC, KubeClient
from gpuyard.kube.objects import PodObject
from gpuyard.runtime.clock import SystemClock
from tests.support.kube import components
from tests.support.kube.cluster import Cluster, environment
from tests.support.kube.fake_kubelet import condition, indexed_job, pod_spec

GPUS = 8
GANG = 64
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PATIENCE_S = 900.0
OURS, THEIRS = "gpuyard", "default-scheduler"


@dataclass
class Measured:
    """One subject in one round."""

    pods: int
    cold_s: float
    bind_s: float
    cpu_s: float = 0.0
    peak_mib: float = 0.0

    @property
    def rate(self) -> float:
        return self.pods / self.bind_s


@dataclass
class Watching:
    """When each pod was seen bound."""

    wanted: int
    at: dict[str, float] = field(default_factory=dict)
    node: dict[str, str] = field(default_factory=dict)


async def main(wish: argparse.Namespace) -> None:
    """The whole run, and a table."""
    components.build()
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder), controllers=False).start()
        client = await KubeClient(cluster.access(cluster.token), SystemClock()).open()
        try:
            await make_nodes(client, wish.nodes)
            for workload in wish.workload:
                await compare(cluster, client, workload, wish)
        finally:
            await client.close()
            cluster.stop()


async def compare(cluster: Cluster, client: KubeClient, workload: str, wish: argparse.Namespace) -> None:
    """Every subject, round by round."""
    subjects: dict[str, Callable[[], Awaitable[Measured]]] = {
        "ceiling": lambda: ceiling(client, workload, wish),
        "gpuyard": lambda: scheduled(cluster, client, workload, wish, OURS),
        "kube-scheduler": lambda: scheduled(cluster, client, workload, wish, THEIRS),
    }
    found: dict[str, list[Measured]] = {name: [] for name in subjects if name in wish.subject}
    for round_ in range(wish.rounds):
        for name, all_of_it in found.items():
            measured = await subjects[name]()
            all_of_it.append(measured)
            print(
                f"  {workload} round {round_ + 1} {name:<15} {measured.rate:7.0f} pods/s, "
                f"cold {measured.cold_s:6.1f} s, CPU {measured.cpu_s:6.1f} s, {measured.peak_mib:5.0f} MiB",
                flush=True,
            )
    print(f"\n{workload}, median of {wish.rounds}: {wish.nodes} nodes")
    for name, all_of_it in found.items():
        middle = {key: statistics.median(getattr(each, key) for each in all_of_it) for key in FIGURES}
        print("  " + f"{name:<15} " + ", ".join(f"{key} {value:.1f}" for key, value in middle.items()))


FIGURES = ("rate", "bind_s", "cold_s", "cpu_s", "peak_mib")


# --- the cluster ---------------------------------------------------------------------------------------


async def make_nodes(client: KubeClient, count: int) -> None:
    """Alike but for a few kilobytes, as real ones are."""

    async def make(index: int) -> None:
        name = f"n{index}"
        labels = {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": "H100-SXM5-80GB"}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        await must(client, "POST", "/api/v1/nodes", body)
        memory = f"{1056 * 1024 * 1024 - 4 * index}Ki"
        amounts = {"cpu": "128", "memory": memory, "pods": "250", "nvidia.com/gpu": str(GPUS)}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [condition(True)]}
        await must(client, "PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, STRATEGIC)
        await must(client, "PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, "application/merge-patch+json")

    await all_of(make(index) for index in range(count))


async def make_pods(client: KubeClient, workload: str, wish: argparse.Namespace, scheduler: str) -> int:
    """All wait when the scheduler starts."""
    documents = list(
        gang_pods(await make_jobs(client, wish.gangs), scheduler)
        if workload == "gangs"
        else singles(wish.pods, scheduler)
    )
    await all_of(must(client, "POST", PODS, document) for document in documents)
    return len(documents)


def singles(count: int, scheduler: str) -> Iterator[dict[str, Any]]:
    for index in range(count):
        yield {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{index}"},
            "spec": pod_spec(1, cpu="4", memory="16Gi", scheduler=scheduler),
        }  # fmt: skip


async def make_jobs(client: KubeClient, gangs: int) -> dict[str, str]:
    uids = {}
    for index in range(gangs):
        document = indexed_job(f"gang{index}", GANG)
        document["spec"]["suspend"] = True  # nobody makes its pods but we
        uids[f"gang{index}"] = (await must(client, "POST", JOBS, document))["metadata"]["uid"]
    return uids


def gang_pods(jobs: dict[str, str], scheduler: str) -> Iterator[dict[str, Any]]:
    for job, uid in jobs.items():
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid, "controller": True}
        for index in range(GANG):
            notes = {"batch.kubernetes.io/job-completion-index": str(index)}
            metadata = {"name": f"{job}-{index}", "annotations": notes, "ownerReferences": [owner]}
            spec = pod_spec(1, cpu="4", memory="16Gi", scheduler=scheduler, restartPolicy="Never")
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def clear(client: KubeClient) -> None:
    """No pods and no Jobs."""
    while True:
        listed = await client.get(PODS, {"limit": "500"})
        names = [each["metadata"]["name"] for each in json.loads(listed.body)["items"]]
        if not names:
            break
        await all_of(client.send("DELETE", f"{PODS}/{name}", b'{"gracePeriodSeconds":0}') for name in names)
    for each in json.loads((await client.get(JOBS)).body)["items"]:
        await client.send("DELETE", f"{JOBS}/{each['metadata']['name']}", b'{"propagationPolicy":"Background"}')


async def all_of(works: Iterable[Awaitable[Any]]) -> None:
    """Many at once, no more than the client has connections."""
    await asyncio.gather(*works)


async def must(client: KubeClient, method: str, path: str, body: Any, kind: str = "application/json") -> Any:
    reply = await client.send(method, path, json.dumps(body).encode(), kind, timeout=120)
    if not reply.ok:
        raise SystemExit(f"{method} {path}: {reply.why()}")
    return json.loads(reply.body)


# --- the subjects --------------------------------------------------------------------------------------


async def ceiling(client: KubeClient, workload: str, wish: argparse.Namespace) -> Measured:
    """Bindings that somebody has decided on already, as fast as one can send them."""
    count = await make_pods(client, workload, wish, "nobody")
    listed = json.loads((await client.get(PODS)).body)["items"]
    bodies = [(each["metadata"]["name"], binding(each["metadata"], index)) for index, each in enumerate(listed)]
    async with watching(client, count) as seen:
        before = cpu_of(os.getpid())
        begun = time.monotonic()
        await all_of(client.post(f"{PODS}/{name}/binding", body, 60) for name, body in bodies)
        await complete(seen)
    spent = cpu_of(os.getpid()) - before
    return await measured(client, seen, begun, spent, 0.0)


def binding(metadata: dict[str, Any], index: int) -> bytes:
    target = {"apiVersion": "v1", "kind": "Node", "name": f"n{index // GPUS}"}
    names = {"name": metadata["name"], "namespace": "default", "uid": metadata["uid"]}
    return json.dumps({"apiVersion": "v1", "kind": "Binding", "metadata": names, "target": target}).encode()


async def scheduled(
    cluster: Cluster, client: KubeClient, workload: str, wish: argparse.Namespace, scheduler: str
) -> Measured:
    """A scheduler that finds them waiting when it starts."""
    count = await make_pods(client, workload, wish, scheduler)
    async with watching(client, count) as seen:
        begun = time.monotonic()
        with running(cluster, scheduler) as process:
            await complete(seen, process)
            spent, peak = cpu_of(process.pid), peak_mib(process.pid)
    return await measured(client, seen, begun, spent, peak)


@contextmanager
def running(cluster: Cluster, scheduler: str) -> Iterator[subprocess.Popen[bytes]]:
    if scheduler == THEIRS:
        cluster.start_kube_scheduler()
        process = cluster.running["kube-scheduler"]
    else:
        config = cluster.scheduler_kubeconfig()
        command = [
            sys.executable,
            "-m",
            "gpuyard",
            "serve",
            "--role",
            "scheduler",
            "--kubeconfig",
            config,
            "--no-lease",
        ]
        with cluster.log("gpuyard").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment())
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        cluster.running.pop("kube-scheduler", None)


# --- measuring -----------------------------------------------------------------------------------------


class _Event(msgspec.Struct):
    object: PodObject


class watching:
    """Our own watch of all pods, the same for every subject."""

    def __init__(self, client: KubeClient, wanted: int) -> None:
        self.client = client
        self.seen = Watching(wanted)

    async def __aenter__(self) -> Watching:
        listed = await self.client.get(PODS, {"limit": "1"})
        version = json.loads(listed.body)["metadata"]["resourceVersion"]
        self.task = asyncio.create_task(self.follow(version))
        return self.seen

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def follow(self, version: str) -> None:
        decoder = msgspec.json.Decoder(_Event)
        params = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "3600"}
        async with self.client.lines(PODS, params, 3600) as lines:
            async for batch in lines.batches:
                now = time.monotonic()
                for line in batch:
                    if b'"nodeName"' in line and line.startswith(b'{"type":"MODIFIED"'):
                        pod = decoder.decode(line).object
                        self.seen.at.setdefault(pod.metadata.name, now)
                        self.seen.node[pod.metadata.name] = pod.spec.node_name


async def complete(seen: Watching, process: subprocess.Popen[bytes] | None = None) -> None:
    end = time.monotonic() + PATIENCE_S
    while len(seen.at) < seen.wanted:
        if time.monotonic() > end or (process is not None and process.poll() is not None):
            raise SystemExit(f"only {len(seen.at)} of {seen.wanted} pods were bound")
        await asyncio.sleep(0.01)


async def measured(client: KubeClient, seen: Watching, begun: float, cpu_s: float, peak: float) -> Measured:
    """And the proof that no GPU was given twice: no node holds more pods of one GPU than it has GPUs."""
    crowded = {node: count for node, count in Counter(seen.node.values()).items() if count > GPUS}
    if crowded:
        raise SystemExit(f"more than {GPUS} GPUs of one node are held: {crowded}")
    await clear(client)
    first, last = min(seen.at.values()), max(seen.at.values())
    return Measured(seen.wanted, last - begun, max(last - first, 1e-9), cpu_s, peak)


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--gangs", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workload", nargs="*", default=["singles", "gangs"])
    parser.add_argument("--subject", nargs="*", default=["ceiling", "gpuyard", "kube-scheduler"])
    asyncio.run(main(parser.parse_args()))
