"""Alerts are passed on once when they begin and once when they are over, whatever the other side does meanwhile."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gpuyard.model.alerts import Alert, AlertKind, Changes, Severity
from gpuyard.model.errors import Refused
from gpuyard.runtime.alerting import notifier
from gpuyard.runtime.alerting.channels import Channel, NotifyWish, Undelivered, channel
from gpuyard.runtime.alerting.notifier import Notifier
from gpuyard.runtime.clock import SystemClock

CLOCK = SystemClock()


def alert(key: str = "wait/a/training/Fragmented", since: float = 1_767_225_600.0) -> Alert:
    about = (("queue", "a"), ("class", "training"))
    return Alert(key, AlertKind.WAIT, Severity.WARNING, since, "w has waited", "yard why w", 3, about, ("w",))


class Receiver:
    """A webhook that hangs, answers 500 or takes what it gets, as it is told."""

    def __init__(self) -> None:
        self.manner = "take"
        self.let_go = threading.Event()
        self.bodies: list[list[dict[str, Any]]] = []
        self.asked = 0
        self.headers: list[dict[str, str]] = []
        self.raw: list[bytes] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.asked += 1
                if receiver.manner == "hang":
                    receiver.let_go.wait(60)
                    return
                if receiver.manner == "take":
                    receiver.raw.append(body)
                    receiver.headers.append(dict(self.headers))
                    receiver.bodies.append(json.loads(body))
                self.send_response(200 if receiver.manner == "take" else 500)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Not a word."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/api/v2/alerts"

    def got(self) -> list[dict[str, Any]]:
        return [each for body in self.bodies for each in body]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.let_go.set()
    found.server.shutdown()
    found.server.server_close()


def until(true: Callable[[], Any], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


class Notified:
    """A notifier and what it keeps."""

    def __init__(self, wish: NotifyWish, kept: Any = None) -> None:
        made = channel(wish, CLOCK)
        assert made is not None
        self.kept = kept
        self.notifier = Notifier(made, CLOCK, self._keep, pause_s=0.05)
        self.notifier.start(kept)

    def _keep(self, document: Any) -> None:
        self.kept = json.loads(json.dumps(document))

    def raised(self, *alerts: Alert) -> None:
        self.notifier.pass_on(Changes(alerts, ()))

    def cleared(self, *alerts: Alert) -> None:
        self.notifier.pass_on(Changes((), alerts))


@pytest.fixture
def notified(receiver: Receiver) -> Iterator[Notified]:
    found = Notified(NotifyWish(receiver.url, timeout_s=0.3))
    yield found
    found.notifier.close()


def test_an_alert_is_posted_as_alertmanager_takes_it_once_when_it_begins_and_once_when_it_is_over(
    receiver: Receiver, notified: Notified
):
    notified.raised(alert())
    until(receiver.got)
    (first,) = receiver.got()
    assert first["labels"] == {
        "alertname": "GPUYard-wait", "severity": "warning", "key": "wait/a/training/Fragmented", "queue": "a",
        "class": "training",
    }  # fmt: skip
    assert first["annotations"] == {"summary": "w has waited", "command": "yard why w", "count": "3"}
    assert first["startsAt"] == "2026-01-01T00:00:00Z"
    assert first["endsAt"] > time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    notified.cleared(alert())
    until(lambda: len(receiver.got()) == 2)
    assert receiver.got()[1]["labels"] == first["labels"]
    assert receiver.got()[1]["endsAt"] <= time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 1))


def test_one_that_hangs_then_fails_then_works_gets_each_raise_once_and_nobody_waits_for_it(receiver: Receiver):
    receiver.manner = "hang"
    notified = Notified(NotifyWish(receiver.url, timeout_s=60.0))
    begun = time.monotonic()
    notified.raised(alert("wait/q0"))
    until(lambda: receiver.asked == 1)
    for n in range(1, 20):
        notified.raised(alert(f"wait/q{n}"))
    assert time.monotonic() - begun < 30.0, "the loop waited for a webhook that hangs"
    assert receiver.asked == 1
    receiver.manner = "fail"
    receiver.let_go.set()
    seen = receiver.asked
    until(lambda: receiver.asked >= seen + 2)
    assert "answered 500" in notified.notifier.check()
    receiver.manner = "take"
    until(lambda: len(receiver.got()) >= 20)
    until(lambda: notified.notifier.check() == "ok")
    assert sorted(each["labels"]["key"] for each in receiver.got()) == sorted(f"wait/q{n}" for n in range(20))
    notified.notifier.close()


def test_a_webhook_that_hangs_is_given_up_on_and_tried_again(receiver: Receiver, notified: Notified):
    receiver.manner = "hang"
    notified.raised(alert())
    until(lambda: receiver.asked >= 2)
    assert "timed out" in notified.notifier.check()
    receiver.manner = "take"
    until(receiver.got)


def test_an_alert_that_is_over_before_anybody_could_be_told_is_told_once_with_its_end(
    receiver: Receiver, notified: Notified
):
    receiver.manner = "fail"
    notified.raised(alert())
    until(lambda: receiver.asked >= 1)
    notified.cleared(alert())
    receiver.manner = "take"
    until(lambda: notified.notifier.check() == "ok" and receiver.got())
    keys = [each["endsAt"] for each in receiver.got()]
    assert len(keys) <= 2
    assert keys[-1] <= time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 1))


def test_what_was_not_delivered_is_delivered_after_a_restart_and_what_was_is_not_sent_again(receiver: Receiver):
    receiver.manner = "fail"
    wish = NotifyWish(receiver.url, timeout_s=0.3)
    before = Notified(wish)
    before.raised(alert())
    until(lambda: receiver.asked >= 1)
    before.notifier.close()
    receiver.manner = "take"
    after = Notified(wish, before.kept)
    until(receiver.got)
    until(lambda: after.notifier.check() == "ok")
    after.raised(alert())  # what a crash made the brain forget is raised again
    after.raised(alert(since=1_767_225_601.0))
    until(lambda: len(receiver.got()) == 2)
    after.notifier.close()
    again = Notified(wish, after.kept)
    again.raised(alert(since=1_767_225_601.0))
    again.raised(alert("wait/other"))
    until(lambda: len(receiver.got()) == 3)
    again.notifier.close()
    assert [each["startsAt"][17:19] for each in receiver.got()] == ["00", "01", "00"]


def test_bodies_are_signed_with_a_key_that_nobody_else_can_read(receiver: Receiver, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("correct horse battery\n")
    secret.chmod(0o644)
    with pytest.raises(Refused, match="chmod 600"):
        channel(NotifyWish(receiver.url, secret=str(secret)), CLOCK)
    secret.chmod(0o600)
    found = Notified(NotifyWish(receiver.url, secret=str(secret)))
    found.raised(alert())
    until(receiver.got)
    found.notifier.close()
    (headers,), (body,) = receiver.headers, receiver.raw
    signed = headers["X-GPUYard-Timestamp"].encode() + b"." + body
    digest = hmac.new(b"correct horse battery", signed, hashlib.sha256).hexdigest()
    assert headers["X-GPUYard-Signature"] == f"sha256={digest}"


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        (NotifyWish("ftp://host/x"), "begins with http"),
        (NotifyWish("http://user:pass@host/"), "no password"),
        (NotifyWish("http://host:99999/"), "port"),
        (NotifyWish("http://ho\nst/"), "begins with http"),
        (NotifyWish("http://host/", "/bin/true"), "not to both"),
        (NotifyWish(command="true"), "whole path"),
        (NotifyWish(command="/bin/'true"), "cannot be read"),
        (NotifyWish(command="/nowhere/at/all"), "whole path"),
        (NotifyWish(secret="/etc/hostname"), "name its address"),
    ],
)
def test_a_channel_that_cannot_be_is_refused_before_anything_starts(wish: NotifyWish, told: str):
    with pytest.raises(Refused, match=told):
        channel(wish, CLOCK)
    assert channel(NotifyWish(), CLOCK) is None


def test_a_command_gets_the_json_on_its_standard_input_and_nothing_of_the_yard_s_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GPUYARD_SECRET", "mine")
    script = tmp_path / "tell"
    script.write_text(f"#!/bin/sh\ncat > {tmp_path}/got\nenv > {tmp_path}/env\npwd > {tmp_path}/pwd\n")
    script.chmod(0o755)
    found = Notified(NotifyWish(command=str(script)))
    found.raised(alert())
    until(lambda: found.notifier.check() == "ok" and (tmp_path / "pwd").exists())
    found.notifier.close()
    assert json.loads((tmp_path / "got").read_text())[0]["annotations"]["command"] == "yard why w"
    assert "GPUYARD_SECRET" not in (tmp_path / "env").read_text()
    assert (tmp_path / "pwd").read_text() == "/\n"


def test_a_command_that_takes_too_long_is_ended_with_what_it_started_and_tried_again(tmp_path: Path):
    script = tmp_path / "slow"
    script.write_text(f"#!/bin/sh\necho $$ >> {tmp_path}/tried\nsleep 600 & echo $! > {tmp_path}/child\nwait\n")
    script.chmod(0o755)
    made = channel(NotifyWish(command=str(script), timeout_s=2.0), CLOCK)
    assert made is not None
    with pytest.raises(Undelivered, match="took longer than 2 s"):
        made.send(b"[]")
    child = int((tmp_path / "child").read_text())
    until(lambda: not os.path.exists(f"/proc/{child}") or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2])
    fails = channel(NotifyWish(command="/bin/false"), CLOCK)
    assert fails is not None
    with pytest.raises(Undelivered, match="exit code 1"):
        fails.send(b"[]")


def test_no_more_are_kept_than_there_is_room_for_and_status_says_how_many_were_dropped(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(notifier, "KEPT_MAX", 5)
    shut = threading.Event()

    class Shut(Channel):
        def send(self, body: bytes) -> None:
            shut.wait(30)
            raise Undelivered("nobody is there")

    found = Notifier(Shut(), CLOCK, lambda kept: None, pause_s=0.01)
    found.start()
    found.pass_on(Changes(tuple(alert(f"k{n}") for n in range(12)), ()))
    shut.set()
    until(lambda: "nobody is there" in found.check())
    assert found.check() == (
        "5 notices are not delivered yet: nobody is there; 7 were dropped, since no more than 5 are kept"
    )
    found.close()
