"""What the alarms remember from plan to plan: what stands, and since when something is true that is no alert yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from gpuyard.brain.engine.picture.memory import Part
from gpuyard.model.alerts import Alert, alert_document, alert_of


class Told(NamedTuple):
    """Why jobs of one kind wait, and when that was looked into."""

    at: float
    code: str
    never: bool
    message: str
    """Without the name of the job it was found for."""
    helps: str


@dataclass(frozen=True, slots=True)
class AlarmsKept(Part):
    """Alerts by key, and what the watches need."""

    name: ClassVar[str] = "alerts"
    alerts: Mapping[str, Alert] = field(default_factory=dict)
    told: Mapping[str, Told] = field(default_factory=dict)
    """By kind of job, while one of it waits for too long."""
    asking: Mapping[str, float] = field(default_factory=dict)
    """Since when each queue asks for what its quota guarantees."""
    promised: Mapping[str, float] = field(default_factory=dict)
    """When jobs that wait were first promised to start; 0 where it was only room that was promised."""

    @classmethod
    def from_document(cls, document: Any) -> AlarmsKept:
        """As `to_document` wrote it."""
        return cls(
            {key: alert_of(each) for key, each in document.get("alerts", {}).items()},
            {kind: Told(*each) for kind, each in document.get("told", {}).items()},
            dict(document.get("asking", {})),
            dict(document.get("promised", {})),
        )

    def to_document(self) -> Any:
        """Plain data, the same for equal parts."""
        return {
            "alerts": {key: alert_document(self.alerts[key]) for key in sorted(self.alerts)},
            "told": {kind: list(self.told[kind]) for kind in sorted(self.told)},
            "asking": {name: self.asking[name] for name in sorted(self.asking)},
            "promised": {name: self.promised[name] for name in sorted(self.promised)},
        }
