"""What an API server answers, as a value; and that it did not: which server, what is wrong, what to look at next.

Used by `client` and `lanes`, whose libraries name neither the server nor a next step.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
from dataclasses import dataclass

import msgspec

from gpuyard.model.errors import GpuYardError, Refused
from gpuyard.model.outside.text import shown

SERVER_MAX = 200
BODY_TOLD = 2000
"""Bytes that are looked at of an answer that is no `Status`."""
NOBODY = "the request came without an identity"
_NOBODY_S = re.compile(r'\bUser "(?:system:anonymous)?"')
_ASK = "kubectl cluster-info asks it the same"
_SEE = "see `server` in kubectl config view --minify"


class ApiUnreachable(GpuYardError):
    """The API server did not answer, or not in time: what was asked may have happened or not."""


class Unidentified(Refused, ApiUnreachable):
    """Nothing was asked, because what we would have logged in with cannot be had: a file, a plugin."""


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
            plain = " ".join(self.body[:BODY_TOLD].decode(errors="replace").split()).rstrip(".")
            return f"HTTP {self.status}{f': {shown(plain, SERVER_MAX)}' if plain else ''}"
        words = told.message or told.reason or f"HTTP {self.status}"
        return f"{words}; {NOBODY}" if self.status == 403 and _NOBODY_S.search(words) else words


class Forbidden:
    """Kinds of writes that the server forbids us, each with its own words of the first time, until one is done."""

    def __init__(self) -> None:
        self._words: dict[str, str] = {}

    def heard(self, what: str, reply: ApiReply) -> None:
        """The answer to one such write."""
        if reply.ok:
            self._words.pop(what, None)
        elif reply.status == 403:
            self._words.setdefault(what, f"{what} is forbidden to us: {reply.why()}")

    @property
    def trouble(self) -> str:
        """The first of them; nothing if there is none."""
        return next(iter(list(self._words.values())), "")


class ApiRefused(GpuYardError):
    """The API server said no to something that we cannot do without."""

    def __init__(self, what: str, reply: ApiReply) -> None:
        super().__init__(f"{what}: {reply.why()}")
        self.reply = reply


def unknown(server: str, reply: ApiReply) -> str:
    """Why the server knows nobody in us; nothing if it does."""
    if reply.status not in (401, 403):
        return ""
    why = reply.why()
    if reply.status == 403 and not why.endswith(NOBODY):
        return ""
    return (
        f"the API server {server} does not know who you are ({why}): what this context logs in with is "
        "missing, wrong or has expired; log in again, then `kubectl auth whoami`"
    )


def seconds(told: str) -> float:
    """The value of `Retry-After`; dates, which no API server sends, count as none."""
    return float(told) if told.isascii() and told.isdigit() else 0.0


def unreached(server: str, asked: str, error: BaseException, within: float) -> ApiUnreachable:
    """`asked` is what was asked of it; a connection that was never made is not about that."""
    name = f"the API server {shown(server, SERVER_MAX)}"
    cause = getattr(error, "os_error", None) or getattr(error, "certificate_error", None) or error
    told = _never_reached(name, cause)
    if told:
        return ApiUnreachable(told)
    if isinstance(error, TimeoutError):
        return ApiUnreachable(f"{name}: {asked}: no answer within {within:g} s; {_ASK}")
    return ApiUnreachable(f"{name}: {asked}: {shown(str(error) or type(error).__name__, SERVER_MAX)}")


def _never_reached(name: str, cause: BaseException) -> str:
    """The sentence; "" if somebody did answer at first."""
    if isinstance(cause, ssl.SSLCertVerificationError):
        why = shown(cause.verify_message or str(cause), SERVER_MAX)
        where = "see `certificate-authority` of its cluster in the kubeconfig"
        return f"{name} shows a certificate that is not trusted: {why}; {where}"
    if isinstance(cause, ssl.SSLError):
        why = shown(getattr(cause, "reason", "") or str(cause), SERVER_MAX)
        return f"{name} and we agree on no encryption ({why}): is it https that is spoken there? {_SEE}"
    if isinstance(cause, socket.gaierror):
        return f"{name} has a name that cannot be resolved from here: is it right, and is the network up? {_SEE}"
    if isinstance(cause, ConnectionRefusedError):
        return f"{name} cannot be reached, the connection is refused: does it run, is it the one you mean? {_ASK}"
    if isinstance(cause, OSError) and cause.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT):
        return f"{name} cannot be reached from here, no way leads there: is a VPN or a proxy missing? {_ASK}"
    return ""
