"""What an API server answers, as a value; and that it did not answer. Used by `client` and `lanes`."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from gpuyard.model.errors import GpuYardError


class ApiUnreachable(GpuYardError):
    """The API server did not answer, or not in time: what was asked may have happened or not."""


class ApiStatus(msgspec.Struct, gc=False):
    """The `Status` that a server answers with when it says no."""

    message: str = ""
    reason: str = ""
    code: int = 0


@dataclass(frozen=True, slots=True)
class ApiReply:
    """What the server said."""

    status: int
    body: bytes = b""
    retry_after: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether it was done."""
        return self.status < 300

    def why(self) -> str:
        """In its own words, why not."""
        try:
            told = msgspec.json.decode(self.body, type=ApiStatus)
        except (msgspec.DecodeError, msgspec.ValidationError):
            return f"HTTP {self.status}"
        return told.message or told.reason or f"HTTP {self.status}"


class ApiRefused(GpuYardError):
    """The API server said no to something that we cannot do without."""

    def __init__(self, what: str, reply: ApiReply) -> None:
        super().__init__(f"{what}: {reply.why()}")
        self.reply = reply


def seconds(told: str) -> float:
    """The value of `Retry-After`; dates, which no API server sends, count as none."""
    return float(told) if told.isascii() and told.isdigit() else 0.0
