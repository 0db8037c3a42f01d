"""Where notices go: a webhook, or a command of the operator's. Used by `notifier`, in its own thread, so that whoever
hangs there holds nobody up. Alertmanager's JSON either way: a list, each with labels, annotations, startsAt, endsAt.

A channel sends one body and raises `Undelivered` if that did not arrive. Only who starts the yard chooses a channel.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import os
import shlex
import signal
import ssl
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import SplitResult, urlsplit

from gpuyard.model.errors import Refused
from gpuyard.model.outside import text
from gpuyard.model.outside.ports import Clock

ANSWER_MAX = 65_536
SECRET_MIN = 16
CLEAN = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
"""All that a command gets of an environment: the yard's may hold what is nobody's business."""


class Undelivered(Exception):
    """It did not arrive, and why."""


class Channel(Protocol):
    """One way out."""

    def send(self, body: bytes) -> None:
        """Deliver, or say why not; takes no longer than its time-out."""


@dataclass(frozen=True, slots=True)
class NotifyWish:
    """What the operator asked for; empty: nobody is notified."""

    url: str = ""
    command: str = ""
    secret: str = ""
    """A file with the key that bodies are signed with, for the webhook."""
    timeout_s: float = 10.0


def channel(wish: NotifyWish, clock: Clock) -> Channel | None:
    """The channel that was asked for, checked before anything starts; None if none was."""
    if wish.url and wish.command:
        raise Refused("notices go to a webhook or to a command, not to both; let the command do both")
    if wish.secret and not wish.url:
        raise Refused("a secret signs what a webhook gets; name its address too")
    if wish.command:
        return Command(_checked_command(wish.command), wish.timeout_s)
    if wish.url:
        return Webhook(_checked_url(wish.url), _secret(wish.secret) if wish.secret else b"", clock, wish.timeout_s)
    return None


def _checked_url(url: str) -> SplitResult:
    parts = urlsplit(url)
    if text.wrong_line(url, text.PATH_MAX) or parts.scheme not in ("http", "https") or not parts.hostname:
        raise Refused("a webhook is an address that begins with http:// or https://, with a host")
    if parts.username or parts.password:
        raise Refused("a webhook's address has no password in it: everybody on the machine could read that")
    try:
        assert parts.port != 0
    except (ValueError, AssertionError):
        raise Refused("the port of the webhook must be a number from 1 to 65535") from None
    return parts


def _checked_command(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise Refused(f"the notify command cannot be read: {error}") from None
    if not words or not Path(words[0]).is_absolute() or not os.access(words[0], os.X_OK):
        raise Refused("the notify command must begin with the whole path of a program that can be run")
    return words


def _secret(path: str) -> bytes:
    """The key; a file that others could read is none."""
    try:
        known = os.stat(path)
        if not stat.S_ISREG(known.st_mode) or known.st_mode & 0o077:
            raise Refused(f"{path} must be a file that its owner alone can read: chmod 600 {path}")
        secret = Path(path).read_bytes().strip()
    except OSError as error:
        raise Refused(f"the secret cannot be read: {error.strerror or error}: {path}") from None
    if len(secret) < SECRET_MIN:
        raise Refused(f"{path} must hold at least {SECRET_MIN} characters")
    return secret


class Webhook:
    """POSTs the body; any answer of 200 to 299 is a delivery, and no other place is gone to."""

    def __init__(self, url: SplitResult, secret: bytes, clock: Clock, timeout_s: float) -> None:
        self._url = url
        self._secret = secret
        self._clock = clock
        self._timeout_s = timeout_s

    def send(self, body: bytes) -> None:
        """One request on a connection of its own."""
        target = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
        connection = self._connect()
        try:
            connection.request("POST", target, body, self._headers(body))
            answer = connection.getresponse()
            answer.read(ANSWER_MAX)
        except (OSError, http.client.HTTPException) as error:
            raise Undelivered(f"{self._url.hostname}: {str(error) or type(error).__name__}") from None
        finally:
            connection.close()
        if not 200 <= answer.status < 300:
            raise Undelivered(f"{self._url.hostname} answered {answer.status}")

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=self._timeout_s, context=context)
        return http.client.HTTPConnection(host, port, timeout=self._timeout_s)

    def _headers(self, body: bytes) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "User-Agent": "gpuyard"}
        if self._secret:
            moment = str(int(self._clock.now()))
            digest = hmac.new(self._secret, moment.encode() + b"." + body, hashlib.sha256).hexdigest()
            headers |= {"X-GPUYard-Timestamp": moment, "X-GPUYard-Signature": f"sha256={digest}"}
        return headers


class Command:
    """Runs a program with the body on its standard input; exit code 0 is a delivery."""

    def __init__(self, words: list[str], timeout_s: float) -> None:
        self._words = words
        self._timeout_s = timeout_s

    def send(self, body: bytes) -> None:
        """One process; it and whatever it started end with its time."""
        try:
            process = subprocess.Popen(
                self._words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env=CLEAN, cwd="/", start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise Undelivered(f"{self._words[0]}: {error.strerror or error}") from None
        try:
            process.communicate(body, timeout=self._timeout_s)
        except subprocess.TimeoutExpired:
            raise Undelivered(f"{self._words[0]} took longer than {self._timeout_s:g} s") from None
        finally:
            _end(process)
        if process.returncode:
            raise Undelivered(f"{self._words[0]} ended with exit code {process.returncode}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Nothing of it is left, also not what it left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        process.stdin.close()
