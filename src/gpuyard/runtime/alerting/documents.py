"""Alerts as plain documents, for whoever asks. Called by the embedded yard and by `yard alerts` of a file."""

from __future__ import annotations

from collections.abc import Iterable

from gpuyard.files.units import write_time
from gpuyard.model.alerts import Alert, Severity, alert_document
from gpuyard.runtime.service import Document


def document(alert: Alert, names: bool = True) -> Document:
    """An alert as the API tells it; without `names` it says nothing of anybody's jobs."""
    told = alert_document(alert) | {"since": write_time(alert.since)}
    if alert.jobs and not names:
        del told["jobs"]
        told |= {"sentence": _unnamed(alert), "command": "yard jobs"}
        told["key"] = told["key"] if alert.about else alert.kind.value
    return told


def _unnamed(alert: Alert) -> str:
    about = ", ".join(f"{key} {value}" for key, value in alert.about)
    return f"{alert.kind.value}: {alert.count} concerned" + (f" ({about})" if about else "")


def counts(alerts: Iterable[Alert]) -> dict[str, int]:
    """How many stand, by severity."""
    found = [alert.severity for alert in alerts]
    return {severity.value: found.count(severity) for severity in Severity}
