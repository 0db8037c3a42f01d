"""Bindings by somebody who decides nothing: what the API server can take at most.

A process of its own, as a scheduler is: it lists the pods, gives each the next GPU of the next node, and writes. By the
client that GPUYard binds with (`lanes`), by a general one (`aiohttp`), or by the least that can be written (`bare`).
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from urllib.parse import urlsplit

from bench.kube.making import GPUS, PODS
from gpuyard.kube import credentials
from gpuyard.kube.client import KubeClient
from gpuyard.kube.credentials import KubeAccess
from gpuyard.runtime.clock import SystemClock

IN_FLIGHT = 32
"""As many as GPUYard has."""
Write = tuple[str, bytes]


async def main(kubeconfig: str, by: str) -> None:
    """Write them all, then wait to be ended."""
    access = credentials.find(kubeconfig)
    client = await KubeClient(access, SystemClock()).open()
    listed = json.loads((await client.get(PODS)).body)["items"]
    writes = iter([binding(pod["metadata"], index) for index, pod in enumerate(listed)])
    if by == "bare":
        await bare(access, writes)
    else:
        await driven(writes, client.post if by == "lanes" else lambda path, body: client.send("POST", path, body))
    await asyncio.Event().wait()


def binding(metadata: dict[str, str], index: int) -> Write:
    """Where it goes, and what is written."""
    target = {"apiVersion": "v1", "kind": "Node", "name": f"n{index // GPUS}"}
    names = {"name": metadata["name"], "namespace": "default", "uid": metadata["uid"]}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": names, "target": target}
    return f"{PODS}/{metadata['name']}/binding", json.dumps(body).encode()


async def driven(writes: Iterator[Write], post: Callable[[str, bytes], Awaitable[object]]) -> None:
    """So many at once."""

    async def drive() -> None:
        for path, body in writes:
            await post(path, body)

    await asyncio.gather(*(drive() for _ in range(IN_FLIGHT)))


class Bare(asyncio.Protocol):
    """Writes the next as soon as anything that looks like the end of an answer has come. No clocks, no errors."""

    def __init__(self, requests: Iterator[bytes], over: Callable[[], None]) -> None:
        self.requests, self.over = requests, over
        self.came = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.next()

    def next(self) -> None:
        request = next(self.requests, None)
        if request is None:
            self.over()
        else:
            self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.came += data
        if self.came.endswith(b"}\n"):  # a Status is all that is ever answered
            self.came = b""
            self.next()


async def bare(access: KubeAccess, writes: Iterator[Write]) -> None:
    """The leanest client that one can have in this language."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(access.ca)
        file.flush()
        tls = ssl.create_default_context(cafile=file.name)
    at = urlsplit(access.server)
    host, port = at.hostname or "", at.port or 443
    head = f"HTTP/1.1\r\nHost: {at.netloc}\r\nAuthorization: Bearer {access.token}\r\nContent-Type: application/json"
    requests = iter(
        [f"POST {path} {head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body for path, body in writes]
    )
    loop, ended = asyncio.get_running_loop(), asyncio.Semaphore(0)
    for _ in range(IN_FLIGHT):
        await loop.create_connection(lambda: Bare(requests, ended.release), host, port, ssl=tls)
    for _ in range(IN_FLIGHT):
        await ended.acquire()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
