"""What the alarms remember from plan to plan: what stands, and since when something is true that is no alert yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

from gpuyard.brain.engine.picture.memory import Part
from gpuyard.model.alerts import Alert, alert_document


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
    found: Mapping[str, float] = field(default_factory=dict)
    """When the first job of a kind was found to be late, while it is not known why."""
    asking: Mapping[str, float] = field(default_factory=dict)
    """Since when each queue asks for what its quota guarantees."""
    promised: Mapping[str, float] = field(default_factory=dict)
    """When jobs that wait were first promised to start; 0 where it was only room that was promised."""
    looked_at: float | None = None
    """When what is free was last measured by the demand of the day."""
    scattered: Mapping[str, float] = field(default_factory=dict)
    """Since when each pool is scattered."""
    stranding: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What was measured then, pool by pool, in GPUs."""
    trend: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    """For each pool, moments of the last day and the share of its free GPUs that was stranded then."""

    def holding(self, **values: object) -> AlarmsKept:
        """The same with these values; this very one if they are as they were, for most plans change nothing."""
        changed: dict[str, Any] = {name: value for name, value in values.items() if getattr(self, name) != value}
        return replace(self, **changed) if changed else self

    def to_document(self) -> Any:
        """Plain data, the same for equal parts."""
        return {
            "alerts": {key: alert_document(self.alerts[key]) for key in sorted(self.alerts)},
            "told": {kind: list(self.told[kind]) for kind in sorted(self.told)},
            "found": {name: self.found[name] for name in sorted(self.found)},
            "asking": {name: self.asking[name] for name in sorted(self.asking)},
            "promised": {name: self.promised[name] for name in sorted(self.promised)},
            "looked_at": self.looked_at,
            "scattered": {name: self.scattered[name] for name in sorted(self.scattered)},
            "stranding": {name: self.stranding[name] for name in sorted(self.stranding)},
            "trend": {name: [list(each) for each in self.trend[name]] for name in sorted(self.trend)},
        }
