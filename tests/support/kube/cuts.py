"""A client that dies after so many writes, whichever they are: no list of steps is kept, so new ones are tried too.

Whoever asks through it after that is not answered, as if their process had been killed there. What it wrote last has
happened; that nothing has is the same as dying after the write before. `lives` loses that one answer and goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuyard.kube.client import JSON, TIMEOUT_S, ApiReply, ApiUnreachable, KubeClient

NEVER = 1 << 30


@dataclass
class Knife:
    """When it cuts, and what was written until then."""

    after: int = NEVER
    lives: bool = False
    writes: list[str] = field(default_factory=list)

    @property
    def has_cut(self) -> bool:
        return len(self.writes) >= self.after

    @property
    def is_dead(self) -> bool:
        return self.has_cut and not self.lives

    def wrote(self, what: str) -> bool:
        """Whether the answer to this one is lost."""
        self.writes.append(what)
        return len(self.writes) == self.after


class CutClient(KubeClient):
    """Asks as any client does, until the knife cuts. Leases are not counted: they are written by time."""

    knife: Knife

    async def post(self, path: str, body: bytes, timeout: float = TIMEOUT_S) -> ApiReply:
        self._alive()
        return self._cut(f"POST {path}", await super().post(path, body, timeout))

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        kind: str = JSON,
        params: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT_S,
    ) -> ApiReply:
        self._alive()
        reply = await super().send(method, path, body, kind, params, timeout)
        return reply if method == "GET" or "/leases" in path else self._cut(f"{method} {path}", reply)

    def _alive(self) -> None:
        if self.knife.is_dead:
            raise ApiUnreachable("killed")

    def _cut(self, what: str, reply: ApiReply) -> ApiReply:
        if reply.ok and self.knife.wrote(what):
            raise ApiUnreachable(f"killed after {what}")
        self._alive()
        return reply
