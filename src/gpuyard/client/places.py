"""Where a yard keeps its things, and where its callers find it. Called by the client, by `yard up` and by the runtime.

It only works out paths; it makes and opens nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuyard.model.errors import Refused
from gpuyard.model.outside.text import wrong_token, wrong_url

STATE = "GPUYARD_STATE"
URL = "GPUYARD_URL"
TOKEN = "GPUYARD_TOKEN"
CERTIFICATE = "GPUYARD_CERTIFICATE"

SHARED_STATE = Path("/var/lib/gpuyard")
SHARED_SOCKET = Path("/run/gpuyard/yard.sock")

SOCKET_PATH_MAX = 100
"""The kernel takes 107 bytes; a little is left for who joins something to it."""


@dataclass(frozen=True)
class Address:
    """One address that a yard may answer at: a socket, or a URL with its token."""

    socket: Path | None = None
    url: str = ""
    token: str = field(default="", repr=False)
    certificate: str = ""

    def __post_init__(self) -> None:
        if told := wrong_url(self.url) if self.socket is None else "":
            raise Refused(f"The yard's address {told}; GPUYARD_URL names it.")
        object.__setattr__(self, "token", self.token.strip())
        if told := wrong_token(self.token):
            raise Refused(f"The token for {self.url} {told}; GPUYARD_TOKEN holds it.")

    def __str__(self) -> str:
        return self.url or str(self.socket)


def state_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Where this user's yard keeps its state: GPUYARD_STATE, else the XDG state folder."""
    environment = os.environ if environment is None else environment
    if environment.get(STATE):
        return Path(environment[STATE]).absolute()
    base = environment.get("XDG_STATE_HOME", "")
    root = Path(base) if base.startswith("/") else Path.home() / ".local" / "state"
    return root / "gpuyard"


def socket_path(state: Path) -> Path:
    """The socket of the yard with that state folder; a deep folder has it in the temporary one, where it fits."""
    path = state / "yard.sock"
    if len(os.fsencode(path)) <= SOCKET_PATH_MAX:
        return path
    short = hashlib.sha256(os.fsencode(state)).hexdigest()[:16]
    return Path("/tmp") / f"gpuyard-{os.getuid()}" / f"{short}.sock"


def token_path(state: Path) -> Path:
    """The file with the token for TCP."""
    return state / "token"


def candidates(environment: Mapping[str, str] | None = None) -> Iterator[Address]:
    """Where to look for a yard, best first: what the environment names, my own, the machine's."""
    environment = os.environ if environment is None else environment
    if environment.get(URL):
        token, certificate = environment.get(TOKEN, ""), environment.get(CERTIFICATE, "")
        yield Address(url=environment[URL].rstrip("/"), token=token, certificate=certificate)
        return
    yield Address(socket=socket_path(state_folder(environment)))
    if not environment.get(STATE):
        yield Address(socket=SHARED_SOCKET)
