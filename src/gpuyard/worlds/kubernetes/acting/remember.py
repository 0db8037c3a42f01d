"""What the brain remembers and keeps free, written where the next leader finds it: one ConfigMap, seldom.

Called by `world` in its loop. It is packed, for a ConfigMap holds a megabyte; what does not fit is not written, and
that is told. Whoever leads reads it once, before its first plan; what cannot be read is as if nothing were remembered.
"""

from __future__ import annotations

import asyncio
import base64
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gpuyard.kube.client import ApiUnreachable, KubeClient
from gpuyard.model.outside.ports import Clock
from gpuyard.model.snapshot import Reservation

EVERY_S = 10.0
"""So often at most it is written."""
CALL_S = 2.5
"""Shorter than what is left of a lease when we stop acting on it."""
LARGEST = 1_000_000
"""Bytes of a ConfigMap, with room for its name."""
UNPACKED_LARGEST = 64 << 20
KEY = "memory"


@dataclass(frozen=True, slots=True)
class Keepsake:
    """What the next leader is to know."""

    memory: dict[str, Any] = field(default_factory=dict)
    """As `Memory.to_document` has it."""
    reservations: tuple[Reservation, ...] = ()


Give = Callable[[], Keepsake]
"""What is to be kept now. Asked in a thread of its own."""


class _ConfigMap(msgspec.Struct, rename="camel"):
    binary_data: dict[str, str] = {}


class MemoryKeeper:
    """One ConfigMap. `run` is a task of the loop."""

    def __init__(self, client: KubeClient, name: str, clock: Clock) -> None:
        """`name` is `namespace/name`."""
        self.trouble = ""
        self._namespace, self._name = name.split("/")
        self._client = client
        self._clock = clock
        self._written = b""

    async def run(self, leads: Callable[[], bool], give: Give) -> None:
        """Until it is cancelled."""
        while True:
            await self._clock.sleep(EVERY_S)
            if leads():
                await self.keep(give)

    async def keep(self, give: Give) -> None:
        """Write it down, if it is other than what was written last."""
        packed = await asyncio.to_thread(lambda: pack(give()))
        if packed == self._written:
            return
        if len(packed) > LARGEST:
            self.trouble = f"what is remembered is too large to be kept ({len(packed) >> 10} KiB)"
            return
        try:
            self.trouble = await self._write(packed)
        except ApiUnreachable as error:
            self.trouble = str(error)
        if not self.trouble:
            self._written = packed

    async def _write(self, packed: bytes) -> str:
        document = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "binaryData": {KEY: packed.decode()},
        }
        body = msgspec.json.encode(document)
        reply = await self._client.send("PUT", f"{self._folder}/{self._name}", body, timeout=CALL_S)
        if reply.status == 404:
            reply = await self._client.post(self._folder, body, CALL_S)
        return "" if reply.ok else f"what is remembered could not be kept: {reply.why()}"

    async def recall(self) -> Keepsake:
        """What was kept last; nothing, where nothing can be had."""
        try:
            reply = await self._client.get(f"{self._folder}/{self._name}")
        except ApiUnreachable as error:
            self.trouble = str(error)
            return Keepsake()
        if not reply.ok:
            return Keepsake()
        try:
            packed = msgspec.json.decode(reply.body, type=_ConfigMap).binary_data.get(KEY, "")
            return unpack(packed.encode())
        except (msgspec.MsgspecError, ValueError, zlib.error) as error:
            self.trouble = f"what was remembered cannot be read: {error}"
            return Keepsake()

    @property
    def _folder(self) -> str:
        return f"/api/v1/namespaces/{self._namespace}/configmaps"


def pack(kept: Keepsake) -> bytes:
    """As a ConfigMap carries bytes."""
    return base64.b64encode(zlib.compress(msgspec.json.encode(kept), 6))


def unpack(packed: bytes) -> Keepsake:
    """The same again. `ValueError` where it is nothing of ours."""
    plain = zlib.decompressobj().decompress(base64.b64decode(packed, validate=True), UNPACKED_LARGEST)
    return msgspec.json.decode(plain, type=Keepsake)
