"""What is measured, for all subjects alike: one watch that sees pods come to be bound, and the kernel's accounts."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import subprocess
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from bench.kube.making import GPUS, PODS
from gpuyard.kube.client import KubeClient
from gpuyard.kube.credentials import KubeAccess

PATIENCE_S = 240.0
EVERY_S = 0.02
NEW, NO_MORE = b'{"type":"ADDED"', b'{"type":"ERROR"'


@dataclass
class Bound:
    """When pods were seen bound, one after another."""

    wanted: int
    at: list[float] = field(default_factory=list)
    trouble: str = ""
    """Why no more will be seen."""

    @property
    def bind_s(self) -> float:
        """From the first to the last."""
        return max(self.at[-1] - self.at[0], 1e-9)


@asynccontextmanager
async def watching(client: KubeClient, wanted: int) -> AsyncIterator[Bound]:
    """A watch of pods that have a node: a pod that gets one is new to it."""
    version = json.loads((await client.get(PODS, {"limit": "1"})).body)["metadata"]["resourceVersion"]
    params = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "3600", "fieldSelector": "spec.nodeName!="}
    seen, over = Bound(wanted), threading.Event()
    with await asyncio.to_thread(_opened, client.access, f"{PODS}?{urlencode(params)}") as stream:
        thread = threading.Thread(target=_follow, args=(stream, seen, over), daemon=True)
        thread.start()
        try:
            yield seen
        finally:
            over.set()
            await asyncio.to_thread(thread.join)


def _opened(access: KubeAccess, path: str) -> ssl.SSLSocket:
    at = urlsplit(access.server)
    host = at.hostname or ""
    tls = ssl.create_default_context(cadata=access.ca.decode())
    stream = tls.wrap_socket(socket.create_connection((host, at.port or 443), 30), server_hostname=host)
    stream.sendall(f"GET {path} HTTP/1.1\r\nHost: {at.netloc}\r\nAuthorization: Bearer {access.token}\r\n\r\n".encode())
    if b" 200 " not in (first := stream.recv(1 << 16))[:20]:
        raise SystemExit(f"the watch of pods was not opened: {first[:200].decode(errors='replace')}")
    stream.setblocking(False)
    return stream


def _follow(stream: ssl.SSLSocket, seen: Bound, over: threading.Event) -> None:
    """Looks every so often and counts, so that measuring takes next to nothing of the cores that are measured."""
    rest = b""
    while not over.wait(EVERY_S):
        came = _come(stream)
        if came is None or NO_MORE in came:
            seen.trouble = f"the watch of pods was ended: {(came or b'')[-300:].decode(errors='replace')}"
            return
        seen.at += [time.monotonic()] * (rest + came).count(NEW)
        rest = (rest + came)[1 - len(NEW) :]


def _come(stream: ssl.SSLSocket) -> bytes | None:
    """All that has come since; None when nothing more will."""
    parts: list[bytes] = []
    while True:
        try:
            part = stream.recv(1 << 16)
        except ssl.SSLWantReadError:
            return b"".join(parts)
        if not part:
            return None
        parts.append(part)


async def collect_garbage(client: KubeClient) -> None:
    """Have the API server collect its garbage, so that all subjects find it alike.

    One collection takes it over a second of processor time after some rounds, as much as a thousand bindings; left to
    itself it comes in the middle of whoever is measured then.
    """
    if not (reply := await client.get("/debug/pprof/heap", {"gc": "1"})).ok:
        raise SystemExit(f"the API server did not collect its garbage: {reply.why()}")


async def complete(seen: Bound, process: subprocess.Popen[bytes]) -> None:
    """Return when all are bound; whoever does not come to an end ends the run."""
    end = time.monotonic() + PATIENCE_S
    while len(seen.at) < seen.wanted:
        if seen.trouble:
            raise SystemExit(seen.trouble)
        if time.monotonic() > end or process.poll() is not None:
            raise SystemExit(f"only {len(seen.at)} of {seen.wanted} pods were bound")
        await asyncio.sleep(0.02)


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
