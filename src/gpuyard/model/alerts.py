"""What an operator should hear of without asking: one value for each cause, from the plan that raises it to its end.

Made by the brain's alarms, kept in its memory, told by every face of the yard and passed on by the notifier.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, NamedTuple


class AlertKind(Enum):
    """What is wrong, from a closed list."""

    WAIT = "wait"
    PROTECTED = "protected"
    DEADLOCK = "deadlock"
    RESERVATION = "reservation"
    BELOW_QUOTA = "below-quota"
    CLOSED = "closed"
    FRAGMENTATION = "fragmentation"


class Severity(Enum):
    """How much it matters: good to know, somebody should look, somebody is without what they were promised now."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Alert:
    """One cause, however many it concerns. The same `key` is the same cause; `since` stays while it stands."""

    key: str
    kind: AlertKind
    severity: Severity
    since: float
    """When it began to be true; of a wait, when the first job had waited as long as its class may."""
    sentence: str
    command: str
    """What to type next."""
    count: int = 1
    """Jobs, nodes or GPUs that it concerns."""
    about: tuple[tuple[str, str], ...] = ()
    """What it is about: queue, class, reason, pool, node. Values have a bound; no job's name is among them."""
    jobs: tuple[str, ...] = ()
    """Jobs that its words name, some of those it concerns."""

    @staticmethod
    def read(document: Any) -> Alert:
        """For whoever reads plain data by its type."""
        return alert_of(document)


SEVERITIES = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)


def in_order(alerts: Iterable[Alert]) -> tuple[Alert, ...]:
    """The worst first, then the oldest."""
    return tuple(sorted(alerts, key=lambda alert: (SEVERITIES.index(alert.severity), alert.since, alert.key)))


class Changes(NamedTuple):
    """What began and what is over between two moments."""

    raised: tuple[Alert, ...]
    cleared: tuple[Alert, ...]


def changes(before: Mapping[str, Alert], now: Iterable[Alert]) -> Changes:
    """An alert that was over and came again meanwhile is another one: its `since` tells."""
    standing = {alert.key: alert for alert in now}
    raised = [a for a in standing.values() if a.key not in before or before[a.key].since != a.since]
    cleared = [a for a in before.values() if a.key not in standing or standing[a.key].since != a.since]
    return Changes(in_order(raised), in_order(cleared))


def alert_document(alert: Alert) -> dict[str, Any]:
    """Plain data, as it is remembered and sent; what says nothing is left out."""
    told = asdict(alert) | {"kind": alert.kind.value, "severity": alert.severity.value}
    told |= {"about": dict(alert.about), "jobs": list(alert.jobs)}
    return {key: value for key, value in told.items() if value not in ({}, [])}


WRITTEN_AS: dict[str, type | tuple[type, ...]] = {
    "key": str, "kind": str, "severity": str, "since": (int, float), "sentence": str, "command": str,
    "count": int, "about": Mapping, "jobs": list,
}  # fmt: skip
OPTIONAL = {"count", "about", "jobs"}


def alert_of(document: Mapping[str, Any]) -> Alert:
    """As `alert_document` wrote it; anything else is a ValueError."""
    if not isinstance(document, Mapping):
        raise ValueError("an alert is a mapping")
    if missing := WRITTEN_AS.keys() - OPTIONAL - document.keys():
        raise ValueError(f"an alert without {', '.join(sorted(missing))}")
    for name, kind in WRITTEN_AS.items():
        if name in document and not isinstance(document[name], kind):
            raise ValueError(f"an alert whose {name} is {document[name]!r:.40}")
    return Alert(
        document["key"],
        AlertKind(document["kind"]),
        Severity(document["severity"]),
        document["since"],
        document["sentence"],
        document["command"],
        document.get("count", 1),
        tuple(document.get("about", {}).items()),
        tuple(document.get("jobs", ())),
    )
