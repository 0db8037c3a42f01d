"""Passes alerts on to whoever the operator named: each raise once, and once more when it is over.

The loop hands changes over and goes on at once; a thread delivers them, together and in their order, and tries again
ever more patiently. What is not delivered yet is kept over a restart, and is never more than `KEPT_MAX`: the oldest
is dropped, and `yard status` says so.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from gpuyard.files.units import write_time
from gpuyard.model.alerts import Alert, Changes, alert_document, alert_of
from gpuyard.model.outside.phrases import agreeing, are, counted
from gpuyard.model.outside.ports import Clock
from gpuyard.runtime.alerting.channels import Channel, Undelivered

KEPT_MAX = 1000
BATCH = 64
PAUSE_S = 1.0
PAUSE_MAX_S = 300.0
JOIN_S = 2.0
STANDS_S = 30 * 86_400.0
"""An Alertmanager takes one without an end for over after a few minutes: one that stands ends far ahead."""

Ident = tuple[str, float]
"""One raise: its key, and since when."""


class Notice(NamedTuple):
    """An alert to tell of; `over` is when it ended."""

    alert: Alert
    over: float | None = None


class Notifier:
    """The queue and the thread. `keep` writes what is to survive a restart."""

    def __init__(self, channel: Channel, clock: Clock, keep: Callable[[Any], None], pause_s: float = PAUSE_S) -> None:
        self._channel = channel
        self._clock = clock
        self._keep = keep
        self._pause_s = pause_s
        self._changed = threading.Condition()
        self._due: dict[Ident, Notice] = {}
        self._told: dict[str, float] = {}
        """Raises that were delivered and stand still."""
        self._dropped = 0
        self._trouble = ""
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="notifier", daemon=True)

    def start(self, kept: Any = None) -> None:
        """Begin, with what an earlier run left."""
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):  # unreadable: as if there were none
            for document, over in (kept or {}).get("due", []):
                self._put(Notice(alert_of(document), over))
            self._told = {str(key): float(since) for key, since in (kept or {}).get("told", {}).items()}
        self._thread.start()

    def pass_on(self, changes: Changes) -> None:
        """What began and what is over; returns at once."""
        now = self._clock.now()
        with self._changed:
            for alert in changes.cleared:
                self._put(Notice(alert, now))
            for alert in changes.raised:
                if self._told.get(alert.key) != alert.since:
                    self._put(Notice(alert))
            self._write_down()
            self._changed.notify_all()

    def close(self) -> None:
        """Stop; what is not delivered waits for the next start."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(JOIN_S)  # one that hangs in a delivery ends with the process

    def check(self) -> str:
        """How it stands, in one sentence; "ok" if all arrived."""
        with self._changed:
            were = f"; {self._dropped} {agreeing(self._dropped, 'was', 'were')} dropped"
            lost = f"{were}, since no more than {KEPT_MAX} are kept" if self._dropped else ""
            if not self._trouble:
                return f"ok{lost}" if not lost else f"all that is kept was delivered{lost}"
            due = len(self._due)
            return f"{counted(due, 'notice')} {are(due)} not delivered yet: {self._trouble}{lost}"

    # --- the queue -------------------------------------------------------------------------------

    def _put(self, notice: Notice) -> None:
        """One that is over before it was told of is told of once, with its beginning and end."""
        self._due[_ident(notice)] = notice
        while len(self._due) > KEPT_MAX:
            del self._due[next(iter(self._due))]
            self._dropped += 1

    def _write_down(self) -> None:
        due = [[alert_document(notice.alert), notice.over] for notice in self._due.values()]
        self._keep({"due": due, "told": dict(self._told)})

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        failed = 0
        while (batch := self._next(failed)) is not None:
            try:
                self._channel.send(encoded(batch, self._clock.now()))
            except Undelivered as error:
                failed += 1
                self._trouble = str(error)
                continue
            failed, self._trouble = 0, ""
            self._delivered(batch)

    def _next(self, failed: int) -> list[Notice] | None:
        """What to deliver next, once there is something and the pause after a failure is over; None at the end."""
        pause = min(self._pause_s * 2.0 ** (failed - 1), PAUSE_MAX_S) if failed else 0.0
        with self._changed:
            if pause:
                self._changed.wait_for(lambda: self._closing, pause)
            self._changed.wait_for(lambda: self._closing or self._due)
            return None if self._closing else list(self._due.values())[:BATCH]

    def _delivered(self, batch: list[Notice]) -> None:
        with self._changed:
            for notice in batch:
                if notice.over is None:
                    self._told[notice.alert.key] = notice.alert.since
                elif self._told.get(notice.alert.key) == notice.alert.since:
                    del self._told[notice.alert.key]
                if self._due.get(_ident(notice)) == notice:  # it may be over meanwhile, which is still to be told
                    del self._due[_ident(notice)]
            self._write_down()


def _ident(notice: Notice) -> Ident:
    return notice.alert.key, notice.alert.since


# --- Alertmanager's JSON -------------------------------------------------------------------------


def encoded(notices: list[Notice], now: float) -> bytes:
    """As `POST /api/v2/alerts` takes them."""
    return json.dumps([posted(notice, now) for notice in notices]).encode()


def posted(notice: Notice, now: float) -> dict[str, Any]:
    """One alert; its labels name it, and stay the same from its beginning to its end."""
    alert = notice.alert
    labels = {"alertname": f"GPUYard-{alert.kind.value}", "severity": alert.severity.value, "key": alert.key}
    told = {"summary": alert.sentence, "command": alert.command, "count": str(alert.count)}
    ends = now + STANDS_S if notice.over is None else notice.over
    return {
        "labels": {**dict(alert.about), **labels},
        "annotations": told,
        "startsAt": write_time(alert.since),
        "endsAt": write_time(ends),
    }
