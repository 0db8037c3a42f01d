"""What stands now: told among the yard's events when it begins and when it is over, and to whoever asks.

The loop lets it hear every plan. What stood before a restart is known from the brain's memory, so nothing that stands
is told again because the yard came up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gpuyard.model.actions import Plan
from gpuyard.model.alerts import Alert, Changes, changes

Say = Callable[..., Any]
"""Writes one of the yard's events: its kind, and what it says."""


class Alerting:
    """Hears plans from the loop's thread; asked from any."""

    def __init__(self, say: Say, before: Iterable[Alert] = ()) -> None:
        self._say = say
        self._standing = {alert.key: alert for alert in before}
        self.passed_on: Callable[[Changes], None] | None = None
        """Where it is passed on to, if anywhere."""

    @property
    def standing(self) -> tuple[Alert, ...]:
        """What stands, as the last plan has it."""
        return tuple(self._standing.values())

    def hear(self, plan: Plan) -> None:
        """Tell what is new and what is over."""
        changed = changes(self._standing, plan.alerts)
        self._standing = {alert.key: alert for alert in plan.alerts}
        for alert in changed.cleared:
            self._say("alert-over", key=alert.key, severity=alert.severity.value, message=f"Over: {alert.sentence}")
        for alert in changed.raised:
            told = {"key": alert.key, "severity": alert.severity.value, "command": alert.command}
            self._say("alert", message=alert.sentence, **told)
        if self.passed_on is not None and (changed.raised or changed.cleared):
            self.passed_on(changed)
