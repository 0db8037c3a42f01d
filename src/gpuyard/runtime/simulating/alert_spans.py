"""Which alerts a simulated run raised, from when to when. The loop lets it hear every plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuyard.model.actions import Plan
from gpuyard.model.alerts import Alert, changes


@dataclass(frozen=True, slots=True)
class AlertSpan:
    """One alert as it was raised; `end` is None where it stood to the last."""

    alert: Alert
    begin: float
    end: float | None = None


class AlertSpans:
    """Keeps them in the order in which they were raised."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._heard: tuple[Alert, ...] = ()
        self._standing: dict[str, Alert] = {}
        self._begun: dict[str, int] = {}
        self._spans: list[AlertSpan] = []

    def hear(self, plan: Plan) -> None:
        """What began and what is over by this plan."""
        if plan.alerts == self._heard:
            return
        self._heard = plan.alerts
        changed = changes(self._standing, plan.alerts)
        self._standing = {alert.key: alert for alert in plan.alerts}
        for alert in changed.cleared:
            at = self._begun.pop(alert.key)
            self._spans[at] = AlertSpan(self._spans[at].alert, self._spans[at].begin, self._now())
        for alert in changed.raised:
            self._begun[alert.key] = len(self._spans)
            self._spans.append(AlertSpan(alert, self._now()))

    def told(self) -> tuple[AlertSpan, ...]:
        """All of them."""
        return tuple(self._spans)
