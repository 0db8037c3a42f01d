"""Looks at a machine's GPUs again and again, and holds what is known of each: by UUID, whatever its index is today.

Used by the agent's daemon and by the embedded yard. What is not answered is *unknown*: the last value that was told is
not told again as if it were true now. A GPU that was there once is never forgotten, it is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from gpuyard.agent.nvml import plausible
from gpuyard.agent.nvml.facts import ABSENT, DeviceFacts, MachineFacts, Readings, Sample, Trouble, changed

SURVEY_EVERY = 60
"""So many looks pass before what does not change is asked again: MIG and limits may be set by hand."""

State = Literal["seen", "unknown", "lost"]


class Asked(Protocol):
    """NVML, or what stands for it: `nvml.caller`."""

    def machine(self) -> MachineFacts | Trouble: ...
    def sample(self) -> Sample | Trouble: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class GpuView:
    """One GPU as far as it is known. `readings` are of the last look, and None where that told nothing."""

    facts: DeviceFacts
    readings: Readings | None
    state: State
    why: str = ""
    since: float = 0.0
    xids: tuple[tuple[float, int], ...] = ()
    """The newest that were told, and when."""
    energy_mj: int = 0
    """The last that was told; it begins anew when a GPU is reset or its driver loaded."""
    slowed_since: float | None = None
    """Since when every look has found that the hardware slows it down for heat or a fault."""


@dataclass(frozen=True, slots=True)
class MachineView:
    """All of them, at one moment. `trouble` says why nothing could be asked."""

    at: float
    machine: MachineFacts | None = None
    gpus: tuple[GpuView, ...] = ()
    trouble: Trouble | None = None
    since: float = 0.0
    looks: int = 0
    failures: int = 0

    def by_uuid(self) -> Mapping[str, GpuView]:
        """Each by the name that stays its own."""
        return {gpu.facts.uuid: gpu for gpu in self.gpus}


XIDS_KEPT = 32
UNSEEN = "not looked at yet"
IS_LOST, NEEDS_RESET = "NVML says that it is lost", "NVML says that it needs a reset"


@dataclass(slots=True)
class Watch:
    """The last view, and how the next is had. One thread looks; any may read `view`."""

    asked: Asked
    now: Callable[[], float]
    view: MachineView = field(default_factory=lambda: MachineView(0.0, trouble=Trouble("failed", "not asked yet")))
    _due: int = 0

    def look(self) -> MachineView:
        """Ask once more. Never raises for what NVML does."""
        at = self.now()
        answer = self._survey() or self.asked.sample()
        if isinstance(answer, Sample):
            self.view = self._seen(at, answer)
        else:
            self.view = self._in_trouble(at, answer)
        return self.view

    def close(self) -> None:
        """Ask no more."""
        self.asked.close()

    # --- what does not change --------------------------------------------------------------------

    def _survey(self) -> Trouble | None:
        """Ask what there is, if it is time or was never answered."""
        if self._due > 0 and self.view.machine is not None:
            self._due -= 1
            return None
        answer = self.asked.machine()
        if isinstance(answer, Trouble):
            return answer
        self._due = SURVEY_EVERY
        unique = plausible.once(gpu.uuid for gpu in answer.gpus)
        gpus = tuple(gpu for gpu in answer.gpus if gpu.uuid in unique)
        self._learn(changed(answer, gpus=gpus))
        return None

    def _learn(self, machine: MachineFacts) -> None:
        known = self.view.by_uuid()
        fresh = {gpu.uuid: gpu for gpu in machine.gpus}
        views = [replace(view, facts=fresh.get(uuid, view.facts)) for uuid, view in known.items()]
        views += [GpuView(gpu, None, "unknown", UNSEEN) for uuid, gpu in fresh.items() if uuid not in known]
        self.view = replace(self.view, machine=machine, gpus=tuple(views))

    # --- what does -------------------------------------------------------------------------------

    def _seen(self, at: float, sample: Sample) -> MachineView:
        believed = self._believed(sample)
        if _told_of(believed) - _known(self.view):
            believed = self._meet(sample)
        readings = {gpu.uuid: gpu for gpu in believed.gpus}
        gpus = tuple(self._one(at, view, readings.get(view.facts.uuid), sample) for view in self.view.gpus)
        return replace(
            self.view, at=at, gpus=_in_order(gpus), trouble=None, since=0.0, looks=self.view.looks + 1
        )  # fmt: skip

    def _believed(self, sample: Sample) -> Sample:
        return plausible.believable(sample, [view.facts for view in self.view.gpus])

    def _meet(self, sample: Sample) -> Sample:
        """Somebody new: what it is is asked at once. If that was just done in vain, the next look asks."""
        fresh, self._due = self._due == SURVEY_EVERY, 0
        if not fresh:
            self._survey()
        return self._believed(sample)

    def _one(self, at: float, view: GpuView, readings: Readings | None, sample: Sample) -> GpuView:
        if readings is None:
            errors = "; ".join(unseen.error for unseen in sample.unseen)
            return _turned(at, view, "lost", errors or "NVML does not list it any more")
        came = readings.xids if isinstance(readings.xids, tuple) else ()
        before = () if _was_reset(view, readings) else view.xids
        xids = (*before, *((at, xid) for xid in came))[-XIDS_KEPT:]
        slowed = (view.slowed_since if view.slowed_since is not None else at) if _is_slowed(readings) else None
        told = replace(
            view, facts=changed(view.facts, index=readings.index), readings=readings, xids=xids, slowed_since=slowed,
            energy_mj=readings.energy_mj if isinstance(readings.energy_mj, int) else view.energy_mj,
        )  # fmt: skip
        if readings.fault:
            return _turned(at, told, "lost", IS_LOST if readings.fault == "lost" else NEEDS_RESET)
        return replace(told, state="seen", why="", since=view.since if view.state == "seen" else at)

    def _in_trouble(self, at: float, trouble: Trouble) -> MachineView:
        """Nothing is known now. A driver that is gone takes its GPUs along only as far as anybody can tell."""
        self._due = 0
        state: State = "lost" if trouble.kind in ABSENT else "unknown"
        gpus = tuple(_turned(at, view, state, str(trouble)) for view in self.view.gpus)
        since = self.view.since if self.view.trouble == trouble else at
        return replace(
            self.view, at=at, gpus=gpus, trouble=trouble, since=since, looks=self.view.looks + 1,
            failures=self.view.failures + 1,
        )  # fmt: skip


def _told_of(sample: Sample) -> set[str]:
    """GPUs and slices that readings came of."""
    return {gpu.uuid for gpu in sample.gpus} | {each.uuid for gpu in sample.gpus for each in gpu.slices}


def _known(view: MachineView) -> set[str]:
    facts = [gpu.facts for gpu in view.gpus]
    return {gpu.uuid for gpu in facts} | {each.uuid for gpu in facts for each in gpu.slices}


HW_SLOWDOWN, HW_THERMAL, POWER_BRAKE = 0x8, 0x40, 0x80
"""NVML_CLOCKS_EVENT_REASON_* of nvml.h."""


def _was_reset(view: GpuView, readings: Readings) -> bool:
    """Whether what was said of the GPU is of another life: it has been gone, or counts its energy anew."""
    energy = readings.energy_mj if isinstance(readings.energy_mj, int) else view.energy_mj
    return view.state == "lost" or energy < view.energy_mj


def _is_slowed(readings: Readings) -> bool:
    """A power brake comes from outside, as from the rack's supply: no GPU is to blame for it."""
    reasons = readings.clock_reasons if isinstance(readings.clock_reasons, int) else 0
    return bool(reasons & HW_THERMAL or (reasons & HW_SLOWDOWN and not reasons & POWER_BRAKE))


def _turned(at: float, view: GpuView, state: State, why: str) -> GpuView:
    since = view.since if view.state == state else at
    return replace(view, readings=None, state=state, why=why, since=since)


def _in_order(gpus: tuple[GpuView, ...]) -> tuple[GpuView, ...]:
    return tuple(sorted(gpus, key=lambda view: (view.facts.index, view.facts.uuid)))
