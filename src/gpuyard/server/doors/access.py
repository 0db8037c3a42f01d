"""Who is asking: a process at the other end of a socket, a bearer of the token, or a browser that was let in.

Called by `gate` for every request. It knows callers, not what they may do: that is the service's to say.
"""

from __future__ import annotations

import grp
import hmac
import os
import pwd
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

from gpuyard.model.errors import Refused
from gpuyard.runtime.service import Caller

PEER = "peer:"
"""How `peer` marks a client that came by socket; no address of TCP looks like that."""

SESSION_S = 12 * 3600.0
CODE_S = 600.0
BEARER = "Bearer "
ROOT_UID = 0


class Access:
    """The token, the codes that open the live page once, and the sessions they became."""

    def __init__(self, token: str, monotonic: Callable[[], float], shared: bool = False) -> None:
        self._token = token
        self._monotonic = monotonic
        self._shared = shared
        self._codes: dict[str, float] = {}
        self._sessions: dict[str, float] = {}

    def by_socket(self, client: str) -> Caller | None:
        """The caller at the other end of the Unix socket; others than the owner and root only where it is shared."""
        uid = int(client.removeprefix(PEER))
        own = uid in (ROOT_UID, os.getuid())
        return peer_caller(uid, admin=own) if own or self._shared else None

    def by_bearer(self, header: str) -> Caller | None:
        """Whoever shows the token, or the session that a code became, speaks for the yard's owner."""
        given = header.removeprefix(BEARER) if header.startswith(BEARER) else ""
        token = bool(self._token) and hmac.compare_digest(given.encode(errors="replace"), self._token.encode())
        session = self._sessions.get(given, -1.0) >= self._monotonic()
        return peer_caller(os.getuid(), admin=True) if token or session else None

    def new_code(self) -> str:
        """A code that opens the page once, within ten minutes."""
        code = secrets.token_urlsafe(24)
        now = self._monotonic()
        self._codes = {known: until for known, until in self._codes.items() if until > now} | {code: now + CODE_S}
        return code

    def exchange(self, code: str) -> str | None:
        """The session for a code, which is used up by this; None if there is no such code."""
        now = self._monotonic()
        if self._codes.pop(code, 0.0) < now:
            return None
        session = secrets.token_urlsafe(32)
        self._sessions = {known: until for known, until in self._sessions.items() if until > now}
        self._sessions[session] = now + SESSION_S
        return session


def peer_caller(uid: int, admin: bool) -> Caller:
    """A user of this machine, by number."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return Caller(str(uid), uid, (), admin)
    names = []
    for gid in os.getgrouplist(entry.pw_name, entry.pw_gid):
        try:
            names.append(grp.getgrgid(gid).gr_name)
        except KeyError:
            continue
    return Caller(entry.pw_name, uid, tuple(names), admin)


def make_token(path: Path) -> str:
    """The token in that file, made if it is not there; nobody else may read it."""
    if path.exists():
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise Refused(f"Others can read the token in {path}. Remove the file; `yard up` makes a new one.")
        token = path.read_text(encoding="ascii", errors="replace").strip()
        if token:
            return token
    token = secrets.token_urlsafe(32)
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(token + "\n")
    return token
