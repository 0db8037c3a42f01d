"""What can go wrong between a caller and a yard, and how an answer's status becomes an error of the model.

Called by both clients. The server's half of the same table is `server.answers`.
"""

from __future__ import annotations

import json
import ssl
from typing import Any

from gpuyard.model.errors import Broken, Conflict, Denied, GpuYardError, Never, NotFound, Refused, Unwritten

OK_MAX = 299
BY_STATUS: dict[int, type[GpuYardError]] = {
    401: Denied,
    403: Denied,
    404: NotFound,
    409: Conflict,
    422: Never,
    507: Unwritten,
}
FAULT = 500


class Unreachable(GpuYardError):
    """No yard answers; the message says where it was looked for and how to start one."""


def error_of(status: int, body: bytes) -> GpuYardError | None:
    """The error that an answer stands for; None if it is no error."""
    if status <= OK_MAX:
        return None
    told = _told(body)
    words, hint = str(told.get("error") or f"The yard answered {status}."), str(told.get("hint", ""))
    if hint:
        words = f"{words if words.endswith(('.', '?', '!')) else f'{words}.'} {hint}"
    return BY_STATUS.get(status, Broken if status >= FAULT else Refused)(words)


def _told(body: bytes) -> dict[str, Any]:
    try:
        told = json.loads(body)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def unreachable(places: list[str]) -> Unreachable:
    """Nobody is there."""
    looked = " or ".join(places)
    return Unreachable(f"No yard is running here (nobody answers at {looked}). Start one with `yard up`.")


def not_open(place: str) -> Unreachable:
    """Somebody may be there, and we may not knock."""
    return Unreachable(
        f"The yard at {place} is not open to you. Ask whoever runs it to put you in its group (`yard up --shared "
        "--group`), or start your own with `yard up`."
    )


def distrusted(place: str, told: str) -> Unreachable:
    """Somebody is there, and nobody whom we trust vouches for them."""
    return Unreachable(
        f"Whoever answers at {place} cannot be trusted: {told}. GPUYARD_CERTIFICATE names the file with the "
        "certificate of the yard, or of the authority that vouches for it."
    )


def trusting(certificate: str) -> ssl.SSLContext:
    """Whom these certificates vouch for; without any, whom the machine trusts."""
    try:
        return ssl.create_default_context(cafile=certificate or None)
    except OSError as error:
        told = f"{certificate} cannot be read as certificates: {error.strerror or error}"
        raise Refused(f"{told}; GPUYARD_CERTIFICATE names it.") from None


def silent(place: str, seconds: float) -> Unreachable:
    """Somebody is there, and does not answer."""
    return Unreachable(f"The yard at {place} did not answer within {seconds:g} s. `yard status` tells how it is.")
