"""One kind of object, kept as it is on the API server: listed once, then watched, resumed where it was left.

Used by the world of Kubernetes. What is known lies in a `Sink`; a reflector only makes it true again and again. It
lists by a watch that begins with all there is (WatchList), or in pages where a server does not offer that. After a gap
that cannot be bridged (410) it lists anew, and whoever is missing then is dropped: nothing is believed to exist because
nobody said that it went.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from gpuyard.kube.client import ApiRefused, ApiReply, ApiUnreachable, KubeClient, WatchLines
from gpuyard.kube.objects import AnyObject, Metadata
from gpuyard.model.errors import GpuYardError
from gpuyard.model.outside.ports import Clock, Dice

SILENT_S = 90.0
"""A server sends a bookmark about every minute; after so long without a word a watch is dead, whatever TCP says."""
WATCH_S = 300.0
"""How long a watch is asked to last, up to twice that: so that servers that were restarted get their part again."""
BACKOFF_S = 0.25
BACKOFF_MAX_S = 15.0
PAGE = 500
INITIAL_END = "k8s.io/initial-events-end"
NO_WATCH_LIST = (400, 422)
GONE = 410


class _Kind(msgspec.Struct, gc=False):
    type: str = ""


class _BareEvent(msgspec.Struct, gc=False):
    object: AnyObject


class _Trouble(msgspec.Struct, gc=False):
    code: int = 0
    message: str = ""


class _TroubleEvent(msgspec.Struct, gc=False):
    object: _Trouble


class _Page(msgspec.Struct):
    items: list[msgspec.Raw] | None = None
    metadata: dict[str, Any] | None = None


class ApiObject(Protocol):
    """Any projection of an object."""

    @property
    def metadata(self) -> Metadata:
        """Its name, its uid, its version."""


S = TypeVar("S", bound=ApiObject)
S_contra = TypeVar("S_contra", bound=ApiObject, contravariant=True)


class Sink(Protocol[S_contra]):
    """Where objects of one kind are kept, by `metadata.key`. Called in the client's loop alone."""

    def put(self, seen: S_contra) -> None:
        """It is there, or it is so now. Another uid under a known key is another object."""

    def drop(self, key: str) -> None:
        """It is gone; nothing happens if it was not there."""

    def keys(self) -> Iterable[str]:
        """All that are there."""


@dataclass(frozen=True, slots=True)
class ObjectKind(Generic[S]):
    """Which objects: where they lie, which of them, and the shape that they are read into."""

    path: str
    shape: type[S]
    selectors: tuple[tuple[str, str], ...] = ()

    @property
    def params(self) -> dict[str, str]:
        """As a request asks for them."""
        return dict(self.selectors)


class _Expired(GpuYardError):
    """What we have seen last is too old to go on from."""


class Reflector(Generic[S]):
    """Keeps one sink like the server, for ever; `run` is a task of the client's loop."""

    def __init__(self, client: KubeClient, kind: ObjectKind[S], sink: Sink[S], clock: Clock, dice: Dice) -> None:
        self.kind = kind
        self.synced = asyncio.Event()
        """Whether all that there was has been seen once."""
        self.trouble = ""
        """Why it does not follow now, if it does not."""
        self.listed_from = -math.inf
        """When all there is was last asked for, of the times that it then came, by the clock that only counts up: every
        change that was made before is known."""
        self.heard_at = 0.0
        """When the server was last heard, by the clock that only counts up."""
        self.events = 0
        """How many changes were told in all."""
        self.relists = 0
        self.unread: dict[str, str] = {}
        """Objects that were passed over because they cannot be read, and why; what was known of them before stays."""
        self.silent_s = SILENT_S
        self._client = client
        self._sink = sink
        self._clock = clock
        self._dice = dice
        self._version = ""
        """Up to where we know everything; "" before the first list."""
        self._pages = False
        self._watch: asyncio.Task[None] | None = None
        self._listed = asyncio.Event()
        shape = msgspec.defstruct("Event", [("object", kind.shape)], gc=False)
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(shape)

    async def run(self) -> None:
        """Until it is cancelled: whatever goes wrong is waited out and tried again."""
        failures = 0
        while True:
            before = self.events
            try:
                self._watch = asyncio.create_task(self._follow())
                await self._watch
                self.trouble, failures = "", 0
            except asyncio.CancelledError:
                if _is_cancelled():
                    raise
            except _Expired:
                self._version, failures = "", 0
            except (GpuYardError, msgspec.MsgspecError, RecursionError) as error:
                self.trouble = str(error)
                failures = failures + 1 if self.events == before else 1
                await self._clock.sleep(self._rest(failures, error))

    async def list_anew(self) -> None:
        """Return once all there is has been listed by a request that was made after this call."""
        self._version, self._listed = "", asyncio.Event()
        listed = self._listed
        if self._watch is not None:
            self._watch.cancel()
        await listed.wait()

    def _rest(self, failures: int, error: Exception) -> float:
        """Longer each time, and never for all at the same moment; a server that names a time is obeyed."""
        wanted = error.reply.retry_after if isinstance(error, ApiRefused) else 0.0
        rest = min(BACKOFF_S * 2.0 ** (failures - 1), BACKOFF_MAX_S)
        return max(wanted, rest * (0.5 + self._dice.random()))

    # --- one watch -------------------------------------------------------------------------------

    async def _follow(self) -> None:
        initial, asked = not self._version, self._clock.monotonic()
        if initial and self._pages:
            await self._list(asked)
            initial = False
        params = self.kind.params | {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": self._lasts()}
        if initial:
            params |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        else:
            params["resourceVersion"] = self._version
        async with self._client.lines(self.kind.path, params, self.silent_s) as lines:
            self._check(lines.reply, initial)
            await (self._begin(lines, asked) if initial else self._go_on(lines.batches))

    def _lasts(self) -> str:
        return str(round(WATCH_S * (1.0 + self._dice.random())))

    def _check(self, reply: ApiReply, initial: bool) -> None:
        if reply.ok:
            return
        if initial and reply.status in NO_WATCH_LIST:
            self._pages = True
        if reply.status == GONE:
            raise _Expired(reply.why())
        raise ApiRefused(f"watching {self.kind.path}", reply)

    async def _begin(self, lines: WatchLines, asked: float) -> None:
        """All there is comes first; whoever did not come is not there any more."""
        self.relists += 1
        missing = set(self._sink.keys())
        async for batch in lines.batches:
            for index, line in enumerate(batch):
                if self._take(line, missing):
                    self._complete(missing, asked)
                    for other in batch[index + 1 :]:
                        self._take(other)
                    await self._go_on(lines.batches)
                    return
        raise ApiUnreachable(f"the list of {self.kind.path} broke off")

    async def _go_on(self, batches: AsyncIterator[list[bytes]]) -> None:
        self._heard()
        async for batch in batches:
            self._heard()
            for line in batch:
                self._take(line)

    def _heard(self) -> None:
        self.heard_at = self._clock.monotonic()
        self.trouble = ""

    def _complete(self, missing: set[str], asked: float) -> None:
        for key in sorted(missing):
            self._drop(key)
        self.listed_from = asked
        self._heard()
        self.synced.set()
        self._listed.set()

    def _take(self, line: bytes, missing: set[str] | None = None) -> bool:
        """One event; whether it says that all there was has been told."""
        if not line:
            return False
        told = msgspec.json.decode(line, type=_Kind).type if not line.startswith(b'{"type":"') else _kind_of(line)
        if told == "BOOKMARK":
            return self._bookmark(msgspec.json.decode(line, type=_BareEvent).object.metadata, missing is not None)
        if told == "ERROR":
            trouble = msgspec.json.decode(line, type=_TroubleEvent).object
            if trouble.code == GONE:
                raise _Expired(trouble.message)
            raise ApiUnreachable(f"the watch of {self.kind.path} was ended: {trouble.message}")
        self._change(told, line, missing)
        return False

    def _bookmark(self, metadata: Metadata, listing: bool) -> bool:
        """While all there is is still being told, only its end says up to where we know everything."""
        ends = metadata.annotation(INITIAL_END) == "true"
        if ends or not listing:
            self._version = metadata.resource_version
        return ends and listing

    def _change(self, told: str, line: bytes, missing: set[str] | None) -> None:
        self.events += 1
        try:
            seen: S = self._decoder.decode(line).object
        except (msgspec.MsgspecError, RecursionError) as error:
            metadata = msgspec.json.decode(line, type=_BareEvent).object.metadata
            self._pass_over(metadata.key, error)
        else:
            metadata = seen.metadata
            if told != "DELETED":
                self._put(seen)
        if told == "DELETED":
            self._drop(metadata.key)
        if missing is None:
            self._version = metadata.resource_version
        elif missing:  # none are, the first time
            missing.discard(metadata.key)

    def _put(self, seen: S) -> None:
        """One that nobody can take in keeps none of the others from being known."""
        try:
            self._sink.put(seen)
        except Exception as error:  # noqa: BLE001 -- a mistake of ours about this one, whatever it is
            self._pass_over(seen.metadata.key, error)
        else:
            if self.unread:
                self.unread.pop(seen.metadata.key, None)

    def _drop(self, key: str) -> None:
        self.unread.pop(key, None)
        try:
            self._sink.drop(key)
        except Exception as error:  # noqa: BLE001 -- as in `_put`
            self._pass_over(key, error)

    def _pass_over(self, key: str, error: Exception) -> None:
        self.unread[key] = f"{type(error).__name__}: {error}"

    # --- in pages --------------------------------------------------------------------------------

    async def _list(self, asked: float) -> None:
        """Where the server knows no WatchList."""
        self.relists += 1
        missing = set(self._sink.keys())
        params = self.kind.params | {"limit": str(PAGE)}
        decoder, one = msgspec.json.Decoder(_Page), msgspec.json.Decoder(self.kind.shape)
        while True:
            reply = await self._client.get(self.kind.path, params)
            self._check(reply, False)
            page = decoder.decode(reply.body)
            for item in page.items or ():
                missing.discard(self._put_item(item, one))
            more = (page.metadata or {}).get("continue")
            if not more:
                break
            params["continue"] = str(more)
        self._version = str((page.metadata or {})["resourceVersion"])
        self._complete(missing, asked)

    def _put_item(self, item: msgspec.Raw, decoder: msgspec.json.Decoder[S]) -> str:
        """One of a page; its key."""
        try:
            seen = decoder.decode(item)
        except (msgspec.MsgspecError, RecursionError) as error:
            key = msgspec.json.decode(item, type=AnyObject).metadata.key
            self._pass_over(key, error)
            return key
        self._put(seen)
        return seen.metadata.key


def _is_cancelled() -> bool:
    """Whether we are to end, and not only the watch that we wait for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _kind_of(line: bytes) -> str:
    return line[9 : line.index(b'"', 9)].decode()
