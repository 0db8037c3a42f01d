"""What a look at a GPU says of its health, and by what evidence.

Used by the exporter and by the embedded yard. *Healthy* is said only of a GPU that answered, with values that can be:
where nothing is known, that is what is said. Thresholds are those on which the field agrees (docs/guides/agent.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gpuyard.agent.nvml.facts import told
from gpuyard.agent.watching import GpuView
from gpuyard.files.data.xids import XidClass, xid
from gpuyard.model.outside.phrases import are, counted, duration

Verdict = Literal["healthy", "suspect", "sick", "unknown"]
WORST: tuple[Verdict, ...] = ("sick", "unknown", "suspect", "healthy")

XID_BROKEN_S = 86_400.0
"""How long after its last broken-GPU Xid a GPU is given nothing new, unless it was reset since."""
XID_WEAR_S = 3_600.0
SLOWED_S = 360.0
"""How long the hardware must slow a GPU down, look by look, before that counts: loads come and go."""
ACTIONS = {1: "a reset", 2: "a restart of the machine", 3: "no peer-to-peer", 4: "draining and a reset"}
"""NVML_GPU_RECOVERY_ACTION_* of nvml.h."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that speaks against a GPU."""

    verdict: Verdict
    evidence: str


@dataclass(frozen=True, slots=True)
class GpuHealth:
    """The worst that was found, and all the evidence."""

    verdict: Verdict
    evidence: str = ""


def health(view: GpuView, now: float) -> GpuHealth:
    """How a GPU stands."""
    found = list(_findings(view, now))
    verdict: Verdict = min((finding.verdict for finding in found), key=WORST.index, default=WORST[-1])
    return GpuHealth(verdict, "; ".join(finding.evidence for finding in found))


def _findings(view: GpuView, now: float) -> Iterator[Finding]:
    if view.state == "lost":
        yield Finding("sick", f"lost: {view.why}")
    elif view.state == "unknown":
        yield Finding("unknown", view.why)
    yield from _xids(view, now)
    if view.readings is not None:
        yield from _memory(view)
        yield from _rest(view, now)


def _xids(view: GpuView, now: float) -> Iterator[Finding]:
    newest = {code: at for at, code in view.xids}
    for code, at in sorted(newest.items()):
        about = xid(code)
        if about.kind is XidClass.BROKEN and now - at < XID_BROKEN_S:
            yield Finding("sick", f"Xid {code}: {about.meaning}")
        elif about.kind is XidClass.WEAR and now - at < XID_WEAR_S:
            yield Finding("suspect", f"Xid {code}: {about.meaning}")


def _memory(view: GpuView) -> Iterator[Finding]:
    readings = view.readings
    assert readings is not None
    if errors := told(readings.ecc_uncorrected):
        yield Finding("sick", f"{errors} uncorrected memory errors since the driver was loaded")
    if told(readings.remap_failure):
        yield Finding("sick", "a memory row could not be replaced")
    if told(readings.remap_pending) or told(readings.retired_pending):
        yield Finding("suspect", "a memory row is replaced at the next reset")


def _rest(view: GpuView, now: float) -> Iterator[Finding]:
    readings = view.readings
    assert readings is not None
    if action := told(readings.recovery_action):
        verdict: Verdict = "suspect" if action == 3 else "sick"
        yield Finding(verdict, f"the driver asks for {ACTIONS.get(action, f'recovery action {action}')}")
    slowed = now - view.slowed_since if view.slowed_since is not None else 0.0
    if slowed >= SLOWED_S:
        heat = f"; it has {told(readings.temperature_c)} °C"
        yield Finding("suspect", f"the hardware slows it down, for {duration(slowed)}{heat}")
    there, up = len(view.facts.links), told(readings.links_up)
    if up is not None and up < sum(link.active for link in view.facts.links):
        yield Finding("suspect", f"{up} of {counted(there, 'NVLink')} {are(up)} up")
    silent = [name for name in VITAL if told(getattr(readings, name)) is None and _was_expected(readings, name)]
    if silent:
        yield Finding("unknown", f"no believable {', '.join(silent)}")


VITAL = ("temperature_c", "utilization", "memory_used")
"""What every GPU tells; one that tells nonsense is not known to be well."""


def _was_expected(readings: object, name: str) -> bool:
    return bool(getattr(readings, name).why != "not supported")
