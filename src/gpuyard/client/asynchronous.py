"""`AsyncClient`: the same questions as `Client`, for programs with an event loop. It stands on httpx2."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeVar

import httpx2

from gpuyard.client import calls, peers, places
from gpuyard.client.calls import Call, Document
from gpuyard.client.errors import error_of, silent, trusting, unreachable
from gpuyard.client.events import sse_event
from gpuyard.client.places import Address
from gpuyard.client.synchronous import TIMEOUT_S

T = TypeVar("T")


class AsyncClient:
    """Asks one yard. Without arguments it finds the local one; `Unreachable` if there is none."""

    def __init__(self, place: Address | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self._places = [place] if place else list(places.candidates())
        self._timeout_s = timeout_s
        self._http: httpx2.AsyncClient | None = None

    async def close(self) -> None:
        """Hang up."""
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- questions -------------------------------------------------------------------------------

    async def status(self) -> Document:
        """Up since when, pid, version, addresses, state folder, fleet in short."""
        return await self._ask(calls.status())

    async def submit(self, jobs: Sequence[Document], key: str = "", queue_anyway: bool = False) -> list[Document]:
        """Hand in jobs, all or none; `key` makes a repeated call harmless, and so does the one made here without."""
        return await self._ask(calls.submit(jobs, key or os.urandom(16).hex(), queue_anyway))

    async def preview(self, jobs: Sequence[Document]) -> list[Document]:
        """What would happen to these jobs."""
        return await self._ask(calls.preview(jobs))

    async def jobs(self, all_ended: bool = False, fields: Sequence[str] = ()) -> list[Document]:
        """The active jobs and the newest ended; `fields` asks for some keys only."""
        return await self._ask(calls.jobs(all_ended, fields))

    async def job(self, name: str) -> Document:
        """One job with its history."""
        return await self._ask(calls.job(name))

    async def why(self, name: str) -> Document:
        """Why it does not run, or where it does."""
        return await self._ask(calls.why(name))

    async def cancel(self, name: str) -> Document:
        """End it."""
        return await self._ask(calls.act(name, "cancel"))

    async def hold(self, name: str, requeue: bool = False) -> Document:
        """Keep a job from starting; one that runs goes on, unless it is to be queued again too."""
        return await self._ask(calls.act(name, "requeuehold" if requeue else "hold"))

    async def release(self, name: str) -> Document:
        """Let it start again."""
        return await self._ask(calls.act(name, "release"))

    async def requeue(self, name: str) -> Document:
        """Stop it and put it back in its queue."""
        return await self._ask(calls.act(name, "requeue"))

    async def vouch(self, name: str) -> Document:
        """Say that nothing is left of it, where that is in doubt: its GPUs are given on. Admins only."""
        return await self._ask(calls.act(name, "vouch"))

    async def logs(self, name: str, task: int = 0, offset: int = 0, wait_s: float = 0.0) -> tuple[bytes, int, bool]:
        """Output from `offset` on, the next offset, and whether more may come."""
        answer = await self._send(calls.logs(name, task, offset, wait_s))
        return answer.content, int(answer.headers["X-Next-Offset"]), answer.headers["X-More"] == "true"

    async def attach(self, name: str, task: int = 0) -> str:
        """The path of the socket of its terminal."""
        return str((await self._ask(calls.attach(name, task)))["socket"])

    async def nodes(self) -> list[Document]:
        """The nodes with their GPUs and who holds them."""
        return await self._ask(calls.nodes())

    async def drain(
        self, node: str, gpu: int | None = None, reason: str = "", force: bool = False, dry_run: bool = False
    ) -> Document:
        """Close a node or one GPU of it and empty it gently, or see what that would do."""
        return await self._ask(calls.drain(node, {"gpu": gpu, "reason": reason, "force": force}, dry_run))

    async def undrain(self, node: str, gpu: int | None = None) -> Document:
        """Open a node or GPU again."""
        return await self._ask(calls.undrain(node, gpu))

    async def alerts(self) -> list[Document]:
        """What an operator should hear of without asking, the worst first."""
        return await self._ask(calls.alerts())

    async def overview(self) -> Document:
        """History of use, expected starts and fragmentation."""
        return await self._ask(calls.overview())

    async def queues(self) -> list[Document]:
        """The queues with quota, use and fair share."""
        return await self._ask(calls.queues())

    async def set_queue(self, document: Document, dry_run: bool = False) -> Document:
        """Create or change a queue, or see what that would do."""
        return await self._ask(calls.set_queue(document, dry_run))

    async def delete_queue(self, name: str, dry_run: bool = False) -> Document:
        """Delete a queue in which no job stands, or see what that would do."""
        return await self._ask(calls.delete_queue(name, dry_run))

    async def snapshot(self) -> Document:
        """The whole moment, as a snapshot file."""
        return await self._ask(calls.snapshot())

    async def report(self, by: str = "user", since: float = 0.0) -> list[Document]:
        """GPU-seconds and money by user or queue."""
        return await self._ask(calls.report(by, since))

    async def events(self, after: int = 0, limit: int = 1000, wait_s: float = 0.0) -> list[Document]:
        """What happened after that event; with `wait_s` it waits that long for something to."""
        return await self._ask(calls.events(after, limit, wait_s))

    async def follow(self, after: int = -1) -> AsyncIterator[Document]:
        """What happens, as it happens, for ever; a lost connection is taken up again where it broke."""
        await self.status()  # settles which place answers
        while True:
            call = calls.stream(after)
            http = await self._client(self._places[0])
            async with http.stream(call.method, call.target, timeout=None) as answer:
                if error := error_of(answer.status_code, b"" if answer.is_success else await answer.aread()):
                    raise error
                async for line in answer.aiter_lines():
                    if event := sse_event(line.encode()):
                        after = int(event["id"])
                        yield event

    async def backup(self, path: str) -> Document:
        """A consistent copy of the state in a new file."""
        return await self._ask(calls.backup(path))

    async def login(self) -> Document:
        """A `url` of the live page that opens once."""
        return await self._ask(calls.login())

    async def shut_down(self, end_jobs: bool = False) -> Document:
        """Stop the yard; jobs run on unless they are to end too."""
        return await self._ask(calls.shut_down(end_jobs))

    # --- how they are sent -----------------------------------------------------------------------

    async def _ask(self, call: Call[T]) -> T:
        answer: T = (await self._send(call)).json()
        return answer

    async def _send(self, call: Call[Any]) -> httpx2.Response:
        """Ask where the yard may be, best place first; the first that answers is kept."""
        for place in list(self._places):
            try:
                timeout = self._timeout_s + call.patience_s
                http = await self._client(place)
                answer = await http.request(call.method, call.target, json=call.body, timeout=timeout)
            except (httpx2.TimeoutException, TimeoutError):
                await self.close()
                raise silent(str(place), self._timeout_s) from None
            except httpx2.TransportError:
                await self.close()
                continue
            self._places = [place]
            if error := error_of(answer.status_code, answer.content):
                raise error
            return answer
        raise unreachable([str(place) for place in self._places])

    async def _client(self, place: Address) -> httpx2.AsyncClient:
        if self._http is None and place.socket is not None:
            await asyncio.to_thread(peers.check_path, place.socket, self._timeout_s)  # there may be a crowd
        if self._http is None:
            self._http = _http_client(place)
        return self._http


def _http_client(place: Address) -> httpx2.AsyncClient:
    if place.socket is not None:
        transport = httpx2.AsyncHTTPTransport(uds=str(place.socket))
        return httpx2.AsyncClient(transport=transport, base_url="http://localhost", trust_env=False)
    headers = {"Authorization": f"Bearer {place.token}"} if place.token else {}
    verify = trusting(place.certificate)
    return httpx2.AsyncClient(base_url=place.url, headers=headers, verify=verify, trust_env=False)
