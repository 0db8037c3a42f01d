"""The gate: every request passes it before anything else looks at it. Called by uvicorn, calls the application.

It checks the Host header (a web page must not reach us under its own name), who is asking, and how much is sent.
Without authentication there is only the empty shell of the live page, which holds no data, and the exchange of a code
for a session. There are no cookies: a browser sends those to every port of a host, whoever listens there, and with
requests that other pages make; what is said in the Authorization header our own page says itself, to us alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpuyard.model.outside import text
from gpuyard.runtime.service import Caller
from gpuyard.server import answers
from gpuyard.server.doors.access import PEER, Access

BODY_MAX = 32 * 1024 * 1024
"""Ten thousand jobs with long commands; an array is shorter."""

MEMBER_BODY_MAX = 8 * 1024 * 1024
"""The same for members of a shared yard, who may all send at once."""
CODE_MAX = 4096

OPEN_PATHS = {("GET", "/"), ("HEAD", "/"), ("POST", "/session")}


class TooLarge(Exception):
    """The body goes on beyond what is accepted."""


class Gate:
    """Lets a request through with its caller in `scope["state"]`, or answers it."""

    def __init__(self, app: ASGIApp, access: Access, hosts: Collection[str]) -> None:
        self._app = app
        self._access = access
        self._hosts = hosts
        self._unanswered: Counter[str] = Counter()
        """Bytes that each caller has sent and not been answered for."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        by_socket = str((scope.get("client") or ("",))[0]).startswith(PEER)
        answer = None if by_socket else self._wrong_host(headers)
        caller = None if answer else self._caller(scope, headers, by_socket)
        if answer is None and caller is None and (scope["method"], scope["path"]) not in OPEN_PATHS:
            answer = answers.mistake(401, "You are not known here.", "`yard page` prints an address that lets you in.")
        if answer is None and int(headers.get("content-length") or 0) > _most(caller):
            answer = too_large(_most(caller))
        answer = answer or wrong_words(scope)
        if answer is not None:
            await answer(scope, receive, send)
            return
        scope.setdefault("state", {})["caller"] = caller
        await self._pass(scope, receive, send, caller)

    async def _pass(self, scope: Scope, receive: Receive, send: Send, caller: Caller | None) -> None:
        """Hand on, counting what comes in: a body without a length has to stop somewhere too, and what one caller has
        sent that is not answered yet is kept in memory."""
        received, begun, most, user = 0, False, _most(caller), caller.user if caller else ""

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            size = len(message.get("body", b""))
            received += size
            self._unanswered[user] += size
            if received > most or self._unanswered[user] > 2 * most:
                raise TooLarge
            return message

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, counted, watched)
        except TooLarge:
            if not begun:
                await too_large(most)(scope, receive, send)
        finally:
            self._unanswered[user] -= received
            if not self._unanswered[user]:
                del self._unanswered[user]

    def _wrong_host(self, headers: Headers) -> Response | None:
        host = headers.get("host", "").rsplit("@", 1)[-1]
        name = host[: host.rfind("]") + 1] if host.startswith("[") else host.partition(":")[0]
        if name.lower() in self._hosts:
            return None
        return answers.mistake(
            421, f"This yard is not called '{name[:80]}'.", "Use the address that `yard up` printed."
        )

    def _caller(self, scope: Scope, headers: Headers, by_socket: bool) -> Caller | None:
        if by_socket:
            return self._access.by_socket(str(scope["client"][0]))
        return self._access.by_bearer(headers.get("authorization", ""))


def wrong_words(scope: Scope) -> Response | None:
    """Paths and parameters pass the same gate as all text that enters."""
    asked = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
    for place, word in (
        ("the path", str(scope["path"])),
        *((key if key.isidentifier() else "?", w) for key, w in asked),
    ):
        if told := text.wrong_line(word, text.PATH_MAX):
            return answers.mistake(400, f"{place} {told}.")
    return None


def _most(caller: Caller | None) -> int:
    """The largest body that this caller may send; who is not known has a code to exchange, and nothing else."""
    return CODE_MAX if caller is None else BODY_MAX if caller.admin else MEMBER_BODY_MAX


def too_large(most: int) -> Response:
    """Said before the rest is read."""
    limit = f"{most // 1024 // 1024} MiB" if most >= 1024 * 1024 else f"{most // 1024} KiB"
    return answers.mistake(413, f"More than {limit} at once.", "Submit it in parts, or as an array.")
