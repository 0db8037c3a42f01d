"""How results and mistakes leave the server: JSON, and for a mistake one sentence with its status.

Called by `api` and `gate`. The client's half of the same table is `client.errors`, the command line's exit codes are in
`cli.main`: 400, 403 and 409 become 2, 404 becomes 3, 422 becomes 4, 5xx becomes 1.
"""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gpuyard.model.errors import Busy, Conflict, Denied, GpuYardError, Never, NotFound, Refused, TooMuch, Unwritten

STATUSES: tuple[tuple[type[GpuYardError], int, str], ...] = (
    (NotFound, 404, ""),
    (Denied, 403, ""),
    (Conflict, 409, ""),
    (Never, 422, "`--queue-anyway` keeps it until the fleet can run it."),
    (TooMuch, 413, ""),
    (Busy, 429, ""),
    (Unwritten, 507, ""),
    (Refused, 400, ""),
)
BUG = "This is a bug in the yard; please report it with `yard snapshot`."

JSON = "application/json"


def encoded(value: Any, status: int = 200) -> Response:
    """A result as JSON."""
    return Response(msgspec.json.encode(value), status, media_type=JSON)


def mistake(status: int, sentence: str, hint: str = "") -> Response:
    """A mistake as JSON: what, why, and what to do."""
    return encoded({"error": sentence, "hint": hint}, status)


async def refused(_request: Request, error: Exception) -> Response:
    """An error of the model as an answer."""
    for kind, status, hint in STATUSES:
        if isinstance(error, kind):
            return mistake(status, str(error), "" if hint in str(error) else hint)
    return mistake(500, f"{type(error).__name__}: {error}", BUG)


async def misspelt(_request: Request, error: Exception) -> Response:
    """A request whose parameters or body do not fit: one sentence for the first mistake, not a list of types."""
    first: dict[str, Any] = next(iter(getattr(error, "errors", list)()), {})
    place = ".".join(str(part) for part in first.get("loc", ())[1:]) or "the request"
    return mistake(400, f"{place}: {first.get('msg', 'cannot be read')}.", "/openapi.json says what is accepted.")


async def unknown_path(request: Request, error: Exception) -> Response:
    """A path or method that nobody serves."""
    status = int(getattr(error, "status_code", 404))
    if status == 405:
        return mistake(405, f"{request.method} is not for {request.url.path}.", "/openapi.json lists what is.")
    if status == 404:
        return mistake(404, f"There is no {request.url.path}.", "/openapi.json lists what there is.")
    return mistake(status, str(getattr(error, "detail", error)))
