"""What is measured, for all subjects alike: one watch that sees pods come to be bound, and the kernel's accounts."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.kube.making import GPUS, PODS
from gpuyard.kube.client import KubeClient

PATIENCE_S = 240.0


@dataclass
class Bound:
    """When pods were seen bound, one after another."""

    wanted: int
    at: list[float] = field(default_factory=list)
    watch: asyncio.Task[None] | None = None

    @property
    def bind_s(self) -> float:
        """From the first to the last."""
        return max(self.at[-1] - self.at[0], 1e-9)


@asynccontextmanager
async def watching(client: KubeClient, wanted: int) -> AsyncIterator[Bound]:
    """A watch of pods that have a node: a pod that gets one is new to it."""
    seen, opened = Bound(wanted), asyncio.Event()
    task = seen.watch = asyncio.create_task(_follow(client, seen, opened))
    done, _ = await asyncio.wait([task, asyncio.create_task(opened.wait())], return_when=asyncio.FIRST_COMPLETED)
    if task in done:
        task.result()
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _follow(client: KubeClient, seen: Bound, opened: asyncio.Event) -> None:
    version = json.loads((await client.get(PODS, {"limit": "1"})).body)["metadata"]["resourceVersion"]
    params = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "3600", "fieldSelector": "spec.nodeName!="}
    async with client.lines(PODS, params, 3600) as lines:
        if not lines.reply.ok:
            raise SystemExit(f"the watch of pods was not opened: {lines.reply.why()}")
        opened.set()
        async for batch in lines.batches:
            now = time.monotonic()
            new = [line for line in batch if line.startswith(b'{"type":"ADDED"')]
            seen.at += [now] * len(new)
            if trouble := next((line for line in batch if line.startswith(b'{"type":"ERROR"')), None):
                raise SystemExit(f"the watch of pods was ended: {trouble.decode()}")
    raise SystemExit("the watch of pods was ended")


async def complete(seen: Bound, process: subprocess.Popen[bytes]) -> None:
    """Return when all are bound; whoever does not come to an end ends the run."""
    end = time.monotonic() + PATIENCE_S
    while len(seen.at) < seen.wanted:
        if seen.watch is not None and seen.watch.done():
            seen.watch.result()
        if time.monotonic() > end or process.poll() is not None:
            raise SystemExit(f"only {len(seen.at)} of {seen.wanted} pods were bound")
        await asyncio.sleep(0.01)


async def prove_distinct(client: KubeClient, wanted: int) -> None:
    """The API server's own account: every pod has a node, and none holds more one-GPU pods than it has GPUs."""
    listed = json.loads((await client.get(PODS)).body)["items"]
    held = Counter(pod["spec"].get("nodeName", "") for pod in listed)
    crowded = {node: count for node, count in held.items() if count > GPUS or not node}
    if crowded or len(listed) != wanted:
        raise SystemExit(f"{len(listed)} of {wanted} pods; more than {GPUS} GPUs of one node are held: {crowded}")


def cpu_of(pid: int) -> float:
    """Seconds of processor time."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int, row: str = "VmHWM") -> float:
    """The most it has had, or (`VmRSS`) what it has."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(row)) / 1024


def cpu_of_all(running: Mapping[str, subprocess.Popen[bytes]]) -> dict[str, float]:
    """By name."""
    return {name: cpu_of(process.pid) for name, process in running.items()}


def busy_cores() -> float:
    """Seconds that all cores together have worked since the machine came up: what neighbours take shows here."""
    numbers = [int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    user, nice, system, _idle, _wait, interrupt, soft, _stolen = numbers
    return (user + nice + system + interrupt + soft) / os.sysconf("SC_CLK_TCK")
