"""What machines ask: /livez, /readyz, /healthz, /version, /metrics; and the live page with its one way in.

Included by `api`. A stuck loop fails /livez: whoever watches us should start us anew.
"""

from __future__ import annotations

import platform

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import PlainTextResponse, Response

from gpuyard import __version__
from gpuyard.runtime.service import Caller
from gpuyard.server import answers, metrics
from gpuyard.server.answers import encoded
from gpuyard.server.asking import Asking, Thinking
from gpuyard.server.context import HandlerContext
from gpuyard.server.page import shell

router = APIRouter(tags=["machines"])

OK = "ok"
UNWELL = 503


class PageCode(BaseModel):
    """The code from the address that `yard up` or `yard page` printed."""

    code: str


@router.get("/livez", response_class=PlainTextResponse)
def livez(request: Request, caller: Asking) -> Response:
    """200 while the loop turns."""
    return _verdict(request, caller, ("loop",))


@router.get("/readyz", response_class=PlainTextResponse)
@router.get("/healthz", response_class=PlainTextResponse)
def readyz(request: Request, caller: Asking) -> Response:
    """200 while everything is well; `?verbose` says what."""
    return _verdict(request, caller)


@router.get("/version")
def version() -> Response:
    """Which version this is."""
    return encoded({"version": __version__, "python": platform.python_version()})


@router.get("/metrics", response_class=PlainTextResponse)
def prometheus(request: Request, caller: Thinking) -> Response:
    """Everything as Prometheus wants it, OpenMetrics on request."""
    context: HandlerContext = request.app.state.context
    body, kind = metrics.exposition(context, request.headers.get("accept", ""), caller.admin)
    return Response(body, headers={"Content-Type": kind})


@router.get("/", include_in_schema=False)
def page() -> Response:
    """The live page, empty: it fetches everything once its visitor is known."""
    return Response(shell.HTML, media_type="text/html", headers=shell.HEADERS)


@router.post("/session", include_in_schema=False)
def session(request: Request, wish: PageCode) -> Response:
    """A session for a code, once; the page keeps it where no other port's pages can look, and sends it as a bearer."""
    context: HandlerContext = request.app.state.context
    opened = context.access.exchange(wish.code)
    if opened is None:
        return answers.mistake(401, "This address has been used, or is too old.", "`yard page` prints a new one.")
    return encoded({"session": opened})


def _verdict(request: Request, caller: Caller, only: tuple[str, ...] = ()) -> Response:
    """One line, or one a check where that is asked for or something is not well; `only` some checks count."""
    context: HandlerContext = request.app.state.context
    status = context.status(caller)
    checks: dict[str, str] = {"loop": OK if status.get("healthy", True) else "stuck"} | status.get("checks", {})
    counted = {name: told for name, told in checks.items() if not only or name in only}
    well = all(told == OK for told in counted.values())
    lines = [f"[{'+' if told == OK else '-'}]{name} {told}" for name, told in sorted(counted.items())]
    words = "\n".join([*lines, OK if well else "not ok"]) if not well or "verbose" in request.query_params else OK
    return PlainTextResponse(words + "\n", 200 if well else UNWELL)
