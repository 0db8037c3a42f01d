"""Who may be disturbed, and what that costs: protections, disruption budgets and lost work (rules 19 and 21).

Used by preemption, consolidation, defragmentation and drains. Whether a certain claimant may take from a certain job
is not decided here but in `claims`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.picture.claim_log import Profile
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.model.node import Budget
from gpuyard.model.policy import PdbRule

DAY = 86_400.0
FEWEST_SEEN = 3
"""Fewer restarts teach nothing about what one costs."""


class Unit(NamedTuple):
    """What goes together: a whole gang, or one extra task of an elastic job."""

    row: JobRow
    places: tuple[Held, ...]
    extra: bool
    cost: int
    """GPUs it holds, in grains."""

    @property
    def place(self) -> Held:
        """The one place of an extra, or of a job of one task."""
        (place,) = self.places
        return place


def whole(row: JobRow) -> Unit:
    """The whole gang: every task that is not going already."""
    places = tuple([held for held in row.held if not held.terminating])
    return Unit(row, places, False, places[0].cost if len(places) == 1 else sum(held.cost for held in places))


def parts(unit: Unit) -> list[Unit]:
    """A whole gang as its extras, one by one, and its minimum: separate victims (rule 17). An extra is one already."""
    extras = [] if unit.extra else [extra for extra in last_extras(unit.row) if extra.place in unit.places]
    if not extras:
        return [unit]
    given = {extra.place for extra in extras}
    rest = tuple(held for held in unit.places if held not in given)
    return [*extras, *([Unit(unit.row, rest, False, sum(held.cost for held in rest))] if rest else [])]


def spare_tasks(row: JobRow, leaf: int) -> int:
    """How many tasks of a group run above its minimum."""
    group = row.groups[leaf]
    return max(0, row.live[leaf] - max(0, group.min - group.succeeded))


def units_on(row: JobRow, node: int) -> list[Unit]:
    """What could go so that a job gives back something on this node: single extras first, then the whole gang."""
    if row.rigid:
        return [whole(row)]
    return _with_gang(row, [held for held in row.held if held.node == node])


def units_of(row: JobRow) -> list[Unit]:
    """Everything that could go from a job, wherever it is."""
    return _with_gang(row, row.held)


def last_extras(row: JobRow) -> list[Unit]:
    """What came last above the minimum; inside a minimum runtime nothing else may go (rule 19)."""
    return _extras(row, row.held)


def _with_gang(row: JobRow, tasks: Iterable[Held]) -> list[Unit]:
    extras = _extras(row, tasks)
    return extras if len(row.held) == 1 and extras else [*extras, whole(row)]


def _extras(row: JobRow, tasks: Iterable[Held]) -> list[Unit]:
    """Which of these tasks their groups could give and keep their minimum, each alone, never more than there are to
    spare; the one that came last, which has the highest number, first."""
    if row.rigid or not row.complete():
        return []
    left = [spare_tasks(row, leaf) for leaf in range(len(row.groups))]
    found: list[Unit] = []
    for held in sorted(tasks, key=lambda held: -held.task):
        if not held.terminating and left[held.leaf] > 0:
            left[held.leaf] -= 1
            found.append(Unit(row, (held,), True, held.cost))
    return found


# --- protections ------------------------------------------------------------------------------------------------------


def profile(draft: Draft, row: JobRow) -> Profile:
    """The job's profile in this cycle."""
    found = draft.claims.profiles.get(row)
    if found is None:
        found = draft.claims.profiles[row] = _profile(draft, row)
    return found


def _profile(draft: Draft, row: JobRow) -> Profile:
    count = evictions(draft, row)
    free = not (row.firm or row.job.foreign or (count and spared(draft, row)))
    may_go = free and not in_min_runtime(draft, row)
    return Profile(may_go, free, count, unsaved(draft, row), warm_up(draft, row), row.youth)


def may_be_disturbed(draft: Draft, unit: Unit) -> bool:
    """Not firm, not foreign, not inside its minimum runtime (extras aside), not spared after earlier evictions."""
    known = profile(draft, unit.row)
    if not unit.extra:
        return known.gang_may_go and bool(unit.places)
    if not known.extras_may_go or spare_tasks(unit.row, unit.place.leaf) <= 0:
        return False
    return known.gang_may_go or unit in last_extras(unit.row)


def in_min_runtime(draft: Draft, row: JobRow) -> bool:
    """Whether the job has not yet run as long as it may count on."""
    shortest = draft.policy.min_runtime if row.job.min_runtime is None else row.job.min_runtime
    if not shortest or row.started is None:
        return False
    draft.look_again(row.started + shortest)
    return draft.now < row.started + shortest


def evictions(draft: Draft, row: JobRow) -> int:
    """How often the job was evicted in the last day; what a clock that was ahead has noted does not count."""
    times = draft.evictions.get(row.name)
    return row.job.evictions if times is None else sum(0 <= draft.now - at < DAY for at in times)


def spared(draft: Draft, row: JobRow) -> bool:
    """Whether it was evicted too often today, or too recently (rule 21)."""
    count = evictions(draft, row)
    if not count:
        return False
    times = draft.evictions.get(row.name, ())
    if count >= draft.policy.protect_after:
        if times:
            draft.look_again(min(times) + DAY)
        return True
    if not times:
        return False
    ends: float = max(at for at in times if at <= draft.now) + draft.policy.eviction_grace * 2 ** (count - 1)
    draft.look_again(ends)
    return draft.now < ends


# --- budgets ----------------------------------------------------------------------------------------------------------


def budgets_allow(draft: Draft, units: Iterable[Unit]) -> bool:
    """Whether every disruption budget survives if these go, on top of what this plan disturbs already."""
    if not draft.fleet.budgets:
        return True
    going: Counter[Budget] = Counter()
    for unit in units:
        for budget in draft.fleet.budgets_over(unit.row.name):
            going[budget] += sum(covers(budget, unit.row, held.leaf) for held in unit.places)
    return all(headroom(draft, budget) >= count for budget, count in going.items() if count)


def forbids(draft: Draft, row: JobRow) -> str:
    """The budget that would break if the whole job were disturbed now; "" if none would."""
    places = whole(row).places
    for budget in draft.fleet.budgets_over(row.name):
        going = sum(covers(budget, row, held.leaf) for held in places)
        if going and headroom(draft, budget) < going:
            return budget.name
    return ""


def covers(budget: Budget, row: JobRow, leaf: int) -> bool:
    """Whether a budget over this job is about this group of it."""
    return not budget.covers or (row.name, row.groups[leaf].name) in budget.covers


def headroom(draft: Draft, budget: Budget) -> int:
    """How many more tasks may be disturbed before the budget breaks."""
    rows = [draft.fleet.jobs[name] for name in budget.jobs if name in draft.fleet.jobs]
    healthy = sum(_undisturbed(draft, row, budget) for row in rows)
    if budget.allowed is not None:
        stood = sum(_covered(budget, row, draft.origin(row)).total() for row in rows)
        return budget.allowed - (stood - healthy)
    if budget.min_available is not None:
        return healthy - budget.min_available
    groups = [group for row in rows for leaf, group in enumerate(row.groups) if covers(budget, row, leaf)]
    wanted = sum(group.tasks - group.succeeded - group.failed for group in groups)
    return (budget.max_unavailable or 0) - (wanted - healthy)


def _undisturbed(draft: Draft, row: JobRow, budget: Budget) -> int:
    """Tasks that ran when the plan began and still stand where they stood."""
    return (_covered(budget, row, draft.origin(row)) & _covered(budget, row, row.held)).total()


def _covered(budget: Budget, row: JobRow, tasks: Iterable[Held]) -> Counter[Held]:
    """The tasks that the budget is about, without those on their way out; a new number is no disturbance."""
    return Counter(held._replace(task=0) for held in tasks if not held.terminating and covers(budget, row, held.leaf))


def budget_rule(draft: Draft) -> PdbRule:
    """Whether a budget may be broken when nothing else helps."""
    return draft.policy.pdb


# --- what it costs ----------------------------------------------------------------------------------------------------


def lost_work(draft: Draft, unit: Unit, restarts: bool | None = None) -> float:
    """GPU-seconds since the last checkpoint, and those a restart spends warming up; an extra alone costs no restart."""
    return lost_of(profile(draft, unit.row), unit, not unit.extra if restarts is None else restarts)


def lost_of(known: Profile, unit: Unit, restarts: bool) -> float:
    """The same of a job whose profile is at hand."""
    return (known.lost + (known.warm_up if restarts else 0.0)) * unit.cost


def unsaved(draft: Draft, row: JobRow) -> float:
    """Seconds of work since its last checkpoint: by what is told of the job, or by its own word since it started."""
    said = draft.saved.get(row.name)
    since = row.unsaved_since if said is None else max(said, row.unsaved_since)
    return max(0.0, draft.now - since)


def warm_up(draft: Draft, row: JobRow) -> float:
    """Seconds that a restart spends before it works again: as the job says, else as jobs of like work were seen to
    need, else as its class is expected to."""
    if not draft.warm_ups or row.job.warm_up is not None:
        return row.warm_up
    seen = sorted(draft.warm_ups.get(row.work_key, ()))
    return seen[len(seen) // 2] if len(seen) >= FEWEST_SEEN else row.warm_up
