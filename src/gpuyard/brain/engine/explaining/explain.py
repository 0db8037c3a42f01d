"""Why a job waits: one dominant reason with numbers, the ladder with counts, and what would let it run (rule 24).

`no_place` is what the cycle notes in passing; `Explainer` tells the whole story and is asked only when somebody
wants to know. It folds what the checkers say; it never parses text. A rung is dominant if leaving it out alone, in a
transaction, lets the job start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from gpuyard.brain.engine.explaining import constraints, obstacles, suggestions, views
from gpuyard.brain.engine.explaining.rungs import failed_rungs, never, not_enough, required_levels, would_start
from gpuyard.brain.engine.explaining.views import NodesView, fits_alone, task_cost
from gpuyard.brain.engine.nodes.columns import Barred, closed, sick
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.placing import gang, neighbours
from gpuyard.brain.engine.queueing import admission
from gpuyard.brain.engine.reserving import eta
from gpuyard.brain.engine.sharing.amounts import GPUS, Amounts
from gpuyard.model.outside.phrases import are, counted
from gpuyard.model.reasons import Code, Explanation, Obstacle, Outcome, Reason, Rung, RungCount
from gpuyard.model.resources import as_gpus, gpu_words


def no_place(asked: Amounts) -> Reason:
    """The cheap answer while planning: what is asked fits nowhere now."""
    return Reason(Code.NOT_ENOUGH_GPUS, needed=asked[GPUS])


class Explainer:
    """Tells of the jobs that wait at the end of one draft; what many of them ask is worked out once.

    `started` are the jobs that start in this plan; `ever` says whether a job could run on the fleet if it were empty.
    Between two explanations the fleet must not change.
    """

    def __init__(self, draft: Draft, started: list[JobRow], ever: Callable[[JobRow], bool]) -> None:
        self.draft = draft
        self.started = started
        self._ever = ever
        self._if_first: dict[str, bool] = {}
        self._others: list[JobRow] | None = None
        self._floors: obstacles.Floors = {}

    def prepare(self, rows: Iterable[JobRow]) -> None:
        """Learn who of these would start had it gone first: those that start in this plan step aside once for all."""
        if not self.started:
            return
        asked = [row for row in rows if row not in self.started and _refused(self.draft, row) is None]
        with self.draft.trial():
            self._step_aside(None)
            self._if_first.update((row.name, self._fits(row)) for row in asked)

    def explain(self, row: JobRow) -> Explanation:
        """The whole story of one waiting job."""
        draft = self.draft
        view, reason = self._reason(row)
        changes = tuple(suggestions.find(draft, row, reason, self._movable))
        soon = reason.outcome is Outcome.NOT_NOW and reason.code not in PATIENT
        return Explanation(
            row.name,
            reason,
            _ladder(draft, row, view, reason),
            changes,
            in_the_way=self.in_the_way(row) if soon else (),
            eta=eta.estimate(draft, row) if soon else None,
        )

    def in_the_way(self, row: JobRow) -> tuple[Obstacle, ...]:
        """Who would have to go."""
        return tuple(obstacles.in_the_way(self.draft, row, self._floors))

    def reason(self, row: JobRow) -> Reason:
        """The dominant reason alone: the sentence that everybody is told."""
        return self._reason(row)[1]

    def brief(self, row: JobRow) -> Explanation:
        """The dominant reason and what would help, and no more."""
        reason = self._reason(row)[1]
        return Explanation(row.name, reason, (), tuple(suggestions.find(self.draft, row, reason, self._movable)))

    def _movable(self) -> list[JobRow]:
        """Who could be the one to move: looked for among all that run once somebody is to be told."""
        if self._others is None:
            self._others = suggestions.movable(self.draft)
        return self._others

    def _reason(self, row: JobRow) -> tuple[NodesView, Reason]:
        """The dominant reason, and the look at the nodes it was found by."""
        seen = [views.look(self.draft, row, leaf) for leaf in range(len(row.groups))]
        open_ = [view for view in seen if 0 < row.missing(view.leaf) <= row.pending(view.leaf)] or seen
        view = next((view for view in open_ if not fits_alone(row, view)), open_[0])
        reason = self._dominant(row, view)
        if reason.outcome is Outcome.NOT_NOW and reason.code not in PATIENT and not self._ever(row):
            reason = never(self.draft, row, view, reason)
        return view, reason

    def _dominant(self, row: JobRow, view: NodesView) -> Reason:
        """The cheapest rung whose removal alone lets the job start, else the first that failed."""
        refused = _refused(self.draft, row)
        if refused is not None:
            return refused
        if self.started and self._had_it_gone_first(row):
            return _outranked(row, self.started)
        return _first_rung(self.draft, row, view)

    def _had_it_gone_first(self, row: JobRow) -> bool:
        """Whether it would start had it gone before those that start in this plan."""
        fits = self._if_first.get(row.name)
        if fits is None:
            with self.draft.trial():
                self._step_aside(row)
                fits = self._if_first[row.name] = self._fits(row)
        return fits

    def _step_aside(self, row: JobRow | None) -> None:
        """Lift what others started in this plan."""
        draft = self.draft
        for other in self.started:
            if other is not row:
                draft.tx.lift_all(other, [held for held in other.held if held not in draft.origin(other)])

    def _fits(self, row: JobRow) -> bool:
        with self.draft.trial():
            return gang.place(self.draft, row)


PATIENT = frozenset((Code.HELD, Code.MEMBERS_ENDED, Code.MEMBERS_ABSENT, Code.OVER_QUOTA))
"""Codes that somebody's decision ends, not the fleet."""


# --- the dominant reason ----------------------------------------------------------------------------------------------


def _refused(draft: Draft, row: JobRow) -> Reason | None:
    """What comes before any look at nodes: quota, a reservation, the order."""
    refusal = admission.refuses(draft, row, draft.fleet.shortfall(row))
    if refusal is not None:
        return refusal  # quota is the first rung: either its removal suffices or it is the first of several
    noted = draft.waits.of(row.name)
    return noted if noted is not None and noted.code in (Code.RESERVED, Code.OUTRANKED) else None


def _first_rung(draft: Draft, row: JobRow, view: NodesView) -> Reason:
    """The cheapest rung that nodes fail whose removal alone lets the job start, else the first of them."""
    failed = failed_rungs(draft, row, view)
    for reason, relaxed in failed:
        if reason.code is Code.FRAGMENTED:
            return reason  # the free GPUs suffice, so packing what runs is all it takes
        if relaxed is not None and would_start(draft, relaxed):
            return reason
        barred = BARRED.get(reason.code)
        if barred is not None and _if_usable(draft, row, barred):
            return reason
    if not failed and not view.suitable.any():
        return not_enough(row, view, draft.fleet.shortfall(row)[GPUS], 0)
    if failed:
        return failed[0][0]
    found = _over_where_it_fits(draft, row) or _crowded_out(draft, row)
    if found is None and row.single:
        found = _too_few_places(draft, row, view) or _puzzled(row)
    return found or _not_together(draft, row, view)


def _too_few_places(draft: Draft, row: JobRow, view: NodesView) -> Reason | None:
    """Every node that could hold a task has room for one, and they are still too few for the gang."""
    lacks, columns = row.missing(), draft.fleet.columns
    places = max((int(shape.room.sum()) for shape in gang.shapes(draft, row, 0)), default=0)
    if places >= lacks:
        return None
    needed, free = draft.fleet.shortfall(row)[GPUS], int(view.free[view.suitable].sum())
    code = Code.FRAGMENTED if gang.could_ever_fit(draft, row) else Code.NOT_ENOUGH_GPUS
    each = gpu_words(row.request.cost_on(columns.nodes[int(view.suitable.argmax())]))
    told = f"{places} {are(places)} open, though {gpu_words(free)} {are(as_gpus(free))} free"
    message = f"{row.name} needs {counted(lacks, 'place')} of {each}; {told}"
    return Reason(code, needed=needed, free=free, largest_fit=view.best, message=message)


def _not_together(draft: Draft, row: JobRow, view: NodesView) -> Reason:
    """Groups that fit one by one, but not side by side."""
    needed, free = draft.fleet.shortfall(row)[GPUS], int(view.free[view.suitable].sum())
    code = Code.NOT_ENOUGH_GPUS if free < needed else Code.FRAGMENTED
    message = f"{row.name} needs {gpu_words(needed)}; its groups fit one by one, but not side by side"
    return Reason(code, needed=needed, free=free, largest_fit=view.best, message=message)


def _over_where_it_fits(draft: Draft, row: JobRow) -> Reason | None:
    """A limit or quota on the model that has room; on another model the job would stay within it."""
    with draft.relaxed(quota=False) as trial:
        fits = gang.place(draft, row)
        excess = admission.excess_of(draft, row, trial.mark) if fits else None
    return None if excess is None else admission.over_reason(row, excess)


def _crowded_out(draft: Draft, row: JobRow) -> Reason | None:
    """Caps or neighbours that let single tasks in, but not all of them together."""
    fleet = draft.fleet
    capped, avoided = bool(fleet.capped), bool(fleet.avoiders) or any(map(fleet.company.concerns, row.requests))
    with draft.relaxed(caps=False):
        fits = capped and would_start(draft, row)
    needed = fleet.shortfall(row)[GPUS]
    if fits:
        message = f"{row.name} needs {gpu_words(needed)}; a pool's cap on busy GPUs leaves no room for all of them"
        return Reason(Code.POWER_CAP, needed=needed, message=message)
    with draft.relaxed(neighbours=False):
        fits = avoided and would_start(draft, row)
    message = f"{row.name} would fit, but not beside those it avoids or who avoid it"
    if any(map(fleet.company.concerns, row.requests)):
        message = f"{row.name} would fit, but for {neighbours.words(fleet, row)}"
    return Reason(Code.NEIGHBOURS, needed=needed, message=message) if fits else None


def _puzzled(row: JobRow) -> Reason:
    message = f"{row.name} seems to fit, yet was not started: please report this with the snapshot"
    return Reason(Code.NOT_ENOUGH_GPUS, Outcome.BUG, message=message)


BARRED: Mapping[Code, Barred] = {Code.GPUS_SICK: sick, Code.NODES_UNAVAILABLE: closed}
"""Reasons that single devices may be the cause of, and which those are."""


def _if_usable(draft: Draft, row: JobRow, barred: Barred) -> bool:
    with draft.relaxed(barred=barred):
        return would_start(draft, row)


def _outranked(row: JobRow, started: list[JobRow]) -> Reason:
    names = ", ".join(other.name for other in started[:3]) + (" and others" if len(started) > 3 else "")
    return Reason(
        Code.OUTRANKED,
        where=started[0].name,
        message=f"{row.name} would fit, but {names} came first in the order and took the room",
    )


# --- the ladder -------------------------------------------------------------------------------------------------------


def _ladder(draft: Draft, row: JobRow, view: NodesView, reason: Reason) -> tuple[RungCount, ...]:
    """Every rung: whether it holds, how many nodes fail first there, and which taint or selector it is."""
    counts = _first_failures(draft, row, view)
    notes = {reason.code.rung: reason.message}
    if counts[Rung.LABELS] and reason.code.rung is not Rung.LABELS:
        off = constraints.kept_off(draft.fleet.shapes, row.requests[view.leaf], ~view.labels)
        notes[Rung.LABELS] = f"{row.name} is kept off {off}"
    refused = admission.refuses(draft, row, draft.fleet.shortfall(row))
    lines = []
    for rung in Rung:
        nodes = counts.get(rung, 0)
        holds = rung is not reason.code.rung and not (rung is Rung.QUOTA and refused is not None)
        lines.append(RungCount(rung, holds, nodes, notes.get(rung, "")))
    return tuple(lines)


def _first_failures(draft: Draft, row: JobRow, view: NodesView) -> dict[Rung, int]:
    """Nodes per rung; each node counts once, at the first rung it fails."""
    suitable, cost = view.suitable, task_cost(row, view)
    least = max(cost, 1)
    sick_here, closed_here = view.with_sick > view.free, view.with_closed > view.free
    shut = np.zeros(len(suitable), dtype=bool)
    for mask in view.policy.values():
        shut |= mask
    failing = {
        Rung.PRIORITY: suitable & (view.free == 0) & ~sick_here & ~closed_here & (cost > 0),
        Rung.SHAPE: ~view.shape,
        Rung.FRAGMENTATION: suitable
        & (view.loose_room == 0)
        & ((view.with_sick < least) | ~sick_here)
        & ((view.with_closed < least) | ~closed_here),
        Rung.TOPOLOGY: ~view.alignable | (suitable & (view.gpu_room == 0) & (view.loose_room > 0)),
        Rung.MODEL: ~view.model,
        Rung.HEALTH: suitable & (view.gpu_room == 0) & sick_here,
        Rung.LABELS: ~view.labels,
        Rung.CPU_MEMORY: ~view.cpu,
        Rung.POLICY: shut,
        Rung.MACHINERY: ~view.machinery | (suitable & (view.gpu_room == 0) & closed_here),
    }
    counts: dict[Rung, int] = {}
    rest = np.ones(len(suitable), dtype=bool)
    for rung in sorted(failing):
        first = failing[rung] & rest
        counts[rung] = int(first.sum())
        rest &= ~first
    if draft.fleet.columns.nodes and required_levels(row.job.gang):
        counts[Rung.TOPOLOGY] += int(rest.sum())
    return counts


def for_all(explanation: Explanation, rows: Iterable[JobRow]) -> list[Explanation]:
    """The same story told of every job that is answered alike, the one it was found for included."""
    return [_for_job(explanation, row.name) for row in rows]


def _for_job(explanation: Explanation, name: str) -> Explanation:
    first = explanation.job
    if first == name:
        return explanation
    reason = replace(explanation.reason, message=_renamed(explanation.reason.message, first, name))
    ladder = tuple(
        replace(line, note=_renamed(line.note, first, name)) if line.note else line for line in explanation.ladder
    )
    return replace(explanation, job=name, reason=reason, ladder=ladder)


def _renamed(text: str, first: str, name: str) -> str:
    return name + text.removeprefix(first) if text.startswith(first) else text
