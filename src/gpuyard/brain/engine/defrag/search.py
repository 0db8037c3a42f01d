"""The search of timed defragmentation: step by step the place where one more gang can be made to fit, if it pays.

Called by `defragmentation`, which tells what was found. A step clears one candidate by moving whoever stands there; it
is kept if its gain is worth its cost, both in GPU-seconds (`DefragSearch._judge`). Everybody is moved at most once.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import fsum
from typing import NamedTuple

import numpy as np

from gpuyard.brain.engine.defrag import candidates
from gpuyard.brain.engine.defrag.candidates import Candidate, NodeGoal
from gpuyard.brain.engine.defrag.relocating import relocate
from gpuyard.brain.engine.defrag.usefulness import Usefulness, shapes_wanted
from gpuyard.brain.engine.giving_way import victims
from gpuyard.brain.engine.giving_way.victims import Unit
from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.placing.devices import stands_free
from gpuyard.brain.engine.settling import billing, evacuation, stories
from gpuyard.model.actions import Move
from gpuyard.model.answers.defrag import Offer
from gpuyard.model.job import JobClass
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.resources import WHOLE

TRIES = 16
"""Spots tried for one step; they are sorted by promise, so the best is nearly always among the first."""

RETRIES = 3
"""How often a candidate is tried anew without a job that found no other place."""

SLACK = 1e-6
"""GPUs; sums of weights are not exact."""


class Step(NamedTuple):
    """One candidate cleared: who moved, what it gains and costs in GPU-seconds."""

    candidate: Candidate
    units: tuple[Unit, ...]
    gain_gpu_s: float
    cost_gpu_s: float

    def jobs(self) -> int:
        """How many jobs move."""
        return len({unit.row.name for unit in self.units})


class DefragSearch:
    """The search, step by step; the fleet is left as the accepted steps make it."""

    def __init__(self, draft: Draft, settled: Iterable[str]) -> None:
        self.draft = draft
        self.useful = Usefulness(draft, shapes_wanted(draft))
        self.usable_before = self.useful.usable()
        self.fits_before = [self.useful.fits(i) for i in range(len(self.useful.wanted))]
        self.budgets_before = [victims.headroom(draft, budget) for budget in draft.fleet.budgets]
        self.steps: list[Step] = []
        self.origin: dict[str, tuple[Held, ...]] = {}
        self.because: dict[str, Reason] = {}
        self.declined: Offer | None = None
        self._fixed = set(settled)
        self._everyone = np.arange(len(draft.fleet.columns.nodes))
        self._usable = self._stranded = 0.0
        self._costs = candidates.DeviceCosts(draft)

    def run(self) -> None:
        """Take steps while the budget lasts and they pay."""
        while self._jobs_left() > 0:
            best = self._best_step()
            if best is None:
                return
            if not self._pays(best):
                self.declined = self._trial(best)
                return
            self._take(best)

    def _jobs_left(self) -> int:
        return self.draft.policy.defrag_budget - len(self.origin)

    def _pays(self, step: Step) -> bool:
        return step.gain_gpu_s > 0 and step.gain_gpu_s >= self.draft.policy.defrag_pays * step.cost_gpu_s

    # --- the next step --------------------------------------------------------------------------------------------

    def _best_step(self) -> Step | None:
        """Of the most promising candidates the one with the highest net gain per job moved; those that pay first."""
        self._usable, self._stranded = self._value()
        found: list[tuple[tuple[object, ...], Step]] = []
        for candidate in self._promising():
            with self.draft.trial():
                step = self._attempt(candidate)
                if step is not None:
                    net = (step.gain_gpu_s - step.cost_gpu_s) / step.jobs()
                    found.append(((not self._pays(step), -net, step.jobs(), candidate.goals), step))
        return min(found, key=lambda each: each[0])[1] if found else None

    def _value(self) -> tuple[float, float]:
        self.useful.sync()
        return self.useful.usable() / WHOLE, float(self.draft.fleet.shapes.gauge.now(self._everyone).sum())

    def _promising(self) -> list[Candidate]:
        columns, horizon = self.draft.fleet.columns, self.draft.policy.defrag_horizon
        found = candidates.promising(columns, self.useful, self._costs.sync(self._unit_at))
        found.sort(
            key=lambda candidate: (
                candidate.cost_gpu_s - candidate.worth_gpus * horizon,
                candidate.shape,
                candidate.goals,
            )
        )
        return found[:TRIES]

    def _attempt(self, candidate: Candidate) -> Step | None:
        """Clear the candidate and see what it is worth; the caller rolls back."""
        stuck: set[str] = set()
        for _ in range(RETRIES):
            units = self._leavers(candidate, stuck)
            if not units or len({unit.row.name for unit in units}) > self._jobs_left():
                return None
            with self.draft.trial() as trial:
                failed = relocate(self.draft, units, [(goal.node, goal.mask) for goal in candidate.goals])
                if failed is None:
                    trial.keep()
                    return self._judge(candidate, units)
            stuck.add(failed.row.name)
        return None

    def _judge(self, candidate: Candidate, units: tuple[Unit, ...]) -> Step | None:
        """What the moves that stand now gain and cost; None if they strand more or break a budget."""
        usable, stranded = self._value()
        if usable <= self._usable + SLACK or stranded > self._stranded + SLACK or not self._budgets_kept(units):
            return None
        open_s = max(self._open_s(unit.row) for unit in units)
        cost = fsum(victims.lost_work(self.draft, unit) for unit in units) / WHOLE
        return Step(candidate, units, (usable - self._usable) * open_s, cost)

    def _open_s(self, row: JobRow) -> float:
        """How long the job would stand in the way if it were left alone."""
        horizon = self.draft.policy.defrag_horizon
        if row.job.time_limit is None or row.started is None:
            return horizon
        return min(horizon, max(0.0, row.started + row.job.time_limit - self.draft.now))

    def _budgets_kept(self, units: tuple[Unit, ...]) -> bool:
        names = {unit.row.name for unit in units}
        return all(
            victims.headroom(self.draft, budget) >= 0 for budget in self.draft.fleet.budgets if names & set(budget.jobs)
        )

    # --- who would have to leave ----------------------------------------------------------------------------------

    def _leavers(self, candidate: Candidate, stuck: set[str]) -> tuple[Unit, ...]:
        """The cheapest units whose leaving reaches every goal; none if nothing does."""
        gone: list[Unit] = []
        with self.draft.trial():
            reached = all(self._clear(candidate.shape, goal, stuck, gone) for goal in candidate.goals)
            kept = [unit for unit in self._dearest_first(gone) if reached and self._not_needed(candidate, unit)]
        return tuple(unit for unit in gone if unit not in kept) if reached else ()

    def _clear(self, shape: int, goal: NodeGoal, stuck: set[str], gone: list[Unit]) -> bool:
        """Free device after device of the goal's node, the cheapest first."""
        costs = self._costs.costs[goal.node]
        devices = [g for g in np.argsort(costs, kind="stable").tolist() if goal.mask >> g & 1 and np.isfinite(costs[g])]
        for g in devices:
            if self.useful.room_at(shape, goal.node) >= goal.room:
                break
            for unit in self._units_on(goal.node, g, stuck):
                self.draft.tx.lift_all(unit.row, unit.places)
                gone.append(unit)
        return self.useful.room_at(shape, goal.node) >= goal.room

    def _units_on(self, node: int, g: int, stuck: set[str]) -> list[Unit]:
        """Everybody on a device; nobody if one of them cannot leave."""
        rows = sorted(self.draft.fleet.tenants[node], key=lambda row: row.age)
        here = [(row, held) for row in rows for held in row.held if held.node == node and g in held.gpus]
        units = [self._unit_at(row, held) for row, held in here if row.name not in stuck]
        found = [unit for unit in units if unit is not None]
        if len(found) < len(here):
            return []
        gangs = {unit.row.name for unit in found if not unit.extra}  # their extras go with them
        return list({u.places: u for u in found if not (u.extra and u.row.name in gangs)}.values())

    def _unit_at(self, row: JobRow, held: Held) -> Unit | None:
        """What leaves so that a task gives its place back: the extra it is, else its gang; None if neither may."""
        if row.name in self._fixed or row.name in self.origin or row.job.job_class is JobClass.INFERENCE:
            return None
        if not row.complete() or any(each.terminating for each in row.held):
            return None
        for unit in victims.units_on(row, held.node):
            if held in unit.places and victims.may_be_disturbed(self.draft, unit):
                return unit if victims.budgets_allow(self.draft, (unit,)) else None
        return None

    def _dearest_first(self, units: list[Unit]) -> list[Unit]:
        return sorted(units, key=lambda unit: (-victims.lost_work(self.draft, unit), unit.cost, unit.row.age))

    def _not_needed(self, candidate: Candidate, unit: Unit) -> bool:
        """Let a unit back if the goals hold without it."""
        if not all(stands_free(self.draft.fleet.columns, held) for held in unit.places):
            return False
        with self.draft.trial() as trial:
            for held in unit.places:
                self.draft.tx.put(unit.row, held)
            if all(self.useful.room_at(candidate.shape, goal.node) >= goal.room for goal in candidate.goals):
                trial.keep()
                return True
        return False

    # --- what stands ----------------------------------------------------------------------------------------------

    def _take(self, step: Step) -> None:
        """Make the step for good."""
        before = {unit.row.name: tuple(unit.row.held) for unit in step.units}
        self._attempt(step.candidate)
        self.steps.append(step)
        self.origin |= before
        reason = Reason(Code.DEFRAGMENTED, message=f"makes room for {self.useful.wanted[step.candidate.shape].told()}")
        self.because |= dict.fromkeys(before, reason)

    def _trial(self, step: Step) -> Offer:
        """The offer of a step that is not made."""
        origin = {unit.row.name: tuple(unit.row.held) for unit in step.units}
        with self.draft.trial():
            self._attempt(step.candidate)
            return self._offer(origin, step.gain_gpu_s)

    def offer(self) -> Offer:
        """All steps taken, as one."""
        return self._offer(self.origin, fsum(step.gain_gpu_s for step in self.steps))

    def _offer(self, origin: dict[str, tuple[Held, ...]], gain_gpu_s: float) -> Offer:
        story = stories.Story(self.because, {})
        actions = evacuation.net_actions(self.draft.fleet, origin, story)
        order = {name: at for at, name in enumerate(origin)}  # later steps may use what earlier ones left
        moves = tuple(sorted((each for each in actions if isinstance(each, Move)), key=lambda move: order[move.job]))
        return Offer(moves, billing.bill(self.draft, moves, origin), gain_gpu_s)
