"""100,000 pods in the cache: memory, and the seconds until the cluster is known.

A real API server takes long to be given so many, so a list server of ours tells them, in the shape that a real one
tells running pods and nodes in (its own bookkeeping included), over plain HTTP. What is measured is GPUYard's own
process, from its start until it says that it schedules: everything is listed, translated and in the brain by then.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from bench.kube import subjects, watching

AIM_MIB, AIM_S = 300.0, 10.0
KINDS = {"two in five ours": 0.4, "all ours": 1.0}
GPUS = 8
OWNER = 50
"""Pods of one Deployment."""
CHUNK = 500
PATIENCE_S = 600.0
SHAPES = Path(__file__).parent / "shapes.json"


async def measure(pods: int) -> dict[str, Any]:
    """Of a cluster all of whose pods are ours, and of one most of whose pods are not, as is usual."""
    shapes = json.loads(SHAPES.read_text())
    kinds = {name: round(pods * share) for name, share in KINDS.items()}
    found = {name: await of_cluster(Listing(shapes, ours, pods - ours)) for name, ours in kinds.items()}
    return {"pods": pods, "aim_mib": AIM_MIB, "aim_synced_s": AIM_S, **found}


class Listing:
    """Tells the pods and nodes there are to whoever watches from the beginning, and nothing after that."""

    def __init__(self, shapes: dict[str, Any], ours: int, others: int) -> None:
        self.nodes = max(1, -(-ours // GPUS))
        self.ours, self.others = ours, others
        self.shapes = {name: _template(shape) for name, shape in shapes.items()}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/apis":
            return web.json_response({"groups": []})
        if request.query.get("watch") != "1":
            return web.json_response({"message": "not here"}, status=404)
        told = web.StreamResponse()
        await told.prepare(request)
        chunk: list[bytes] = []
        for line in self.lines(request.path, request.query.get("fieldSelector", "")):
            chunk.append(line)
            if len(chunk) == CHUNK:
                await told.write(b"".join(chunk))
                chunk.clear()
        ends = {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}
        end = json.dumps({"type": "BOOKMARK", "object": {"metadata": ends}}, separators=(",", ":"))
        await told.write(b"".join(chunk) + end.encode() + b"\n")
        await asyncio.sleep(3600)
        return told

    def lines(self, path: str, selector: str) -> Iterator[bytes]:
        """Every object of that kind, with names of its own."""
        if path.endswith("/nodes"):
            yield from (self.line("node", n, n) for n in range(self.nodes))
        elif path.endswith("/pods") and "!=" not in selector:
            yield from (self.line("pod", n, n // GPUS) for n in range(self.ours))
        elif path.endswith("/pods"):
            yield from (self.line("stranger", n, n % self.nodes) for n in range(self.others))

    def line(self, shape: str, number: int, node: int) -> bytes:
        return self.shapes[shape] % {b"n": number, b"o": number // OWNER, b"host": node}


def _template(shape: Any) -> bytes:
    """An event that is filled in once for each object: telling is to take little of the cores that are measured."""
    text = json.dumps({"type": "ADDED", "object": shape}, separators=(",", ":")).replace("%", "%%")
    filled = text.replace("@n", "%(n)06d").replace("@o", "%(o)05d").replace("@host", "n%(host)d")
    return filled.encode() + b"\n"


async def of_cluster(listing: Listing) -> dict[str, float]:
    """Start a server that tells it, and a scheduler that listens."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", listing.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        return await asyncio.to_thread(_scheduler, f"http://127.0.0.1:{runner.addresses[0][1]}")
    finally:
        await runner.cleanup()


def _scheduler(server: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config")
        named = {"name": "x", "cluster": {"server": server}}
        context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
        users = [{"name": "x", "user": {"token": "x"}}]
        whole = {"current-context": "x", "contexts": [context], "clusters": [named], "users": users}
        config.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **whole}))
        command = [sys.executable, "-m", "gpuyard", "serve", "--role", "scheduler", "--kubeconfig", str(config)]
        surroundings = subjects.surroundings(Path(folder))
        subjects.compile_ahead(surroundings)
        begun = time.monotonic()
        process = subprocess.Popen([*command, "--no-lease"], stderr=subprocess.PIPE, env=surroundings)
        try:
            assert process.stderr is not None
            if b"Scheduling" not in process.stderr.readline():
                raise SystemExit("the scheduler did not come up")
            took, cpu = time.monotonic() - begun, watching.cpu_of(process.pid)
            _await_rest(process.pid)
            mib, peak = watching.memory_mib(process.pid, "VmRSS"), watching.memory_mib(process.pid)
        finally:
            process.kill()
            process.wait()
    return {"synced_s": round(took, 1), "synced_cpu_s": round(cpu, 1), "mib": round(mib), "peak_mib": round(peak)}


def _await_rest(pid: int) -> None:
    """Until its first plan is made: whenever one looks, none of its threads works or waits for a core."""
    end = time.monotonic() + PATIENCE_S
    at_rest = 0
    while at_rest < 10 and time.monotonic() < end:
        time.sleep(0.5)
        states = [stat.read_text().rsplit(")", 1)[1].split()[0] for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
        at_rest = 0 if "R" in states else at_rest + 1
