"""What a plan left undone: nobody entitled waits, nobody moved in vain, planning again changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from tests.oracle import rounds
from tests.oracle.claims import Claim, View, headroom, listed
from tests.oracle.places import Load, TooLarge, arrange, asks, below_caps, circle_in, lifted, shuns, together
from tests.oracle.plans import Plan, Planner, Verdict, after, changed, end_moment, places, read_plan
from tests.oracle.shapes import Job, Moment, Spot, State
from tests.oracle.shares import stays_within_quota, use

Closed = frozenset[tuple[str, int]]


def nobody_is_refused(moment: Moment, plan: Plan) -> Iterator[Verdict]:
    """Rules 9, 15 to 19: in the end state no waiting job has a lawful start, move or take left."""
    end = _with_budgets_left(moment, plan, end_moment(moment, plan))
    view = View.of(end, strict=True, began=moment.state)
    for name in sorted(end.jobs):
        job = end.jobs[name]
        if end.complete(job, end.state[name]) or job.held or not job.can_complete:
            continue
        if name not in plan.waiting:
            yield Verdict("untold", name, f"{name} is below its minimum and is not listed as waiting")
        try:
            yield from _left_undone(Claim(view, end.state, name), _kept_from(end, name))
        except TooLarge:
            continue


def _with_budgets_left(moment: Moment, plan: Plan, end: Moment) -> Moment:
    """The end with budgets as the whole plan has used them: they bear as much again only once it is done."""
    left = [
        replace(
            budget, left=headroom(moment, moment.state, budget) - sum(_disturbed(moment, plan, n) for n in budget.jobs)
        )
        for budget in moment.budgets
    ]
    return replace(end, budgets=tuple(left))


def _disturbed(moment: Moment, plan: Plan, name: str) -> int:
    return (places(moment.state.get(name, ())) - places(plan.end.get(name, ()))).total()


def _left_undone(claim: Claim, closed: Closed) -> Iterator[Verdict]:
    name = claim.job.name
    if claim.fits(claim.state, (), closed):
        yield Verdict("refused-start", name, f"{name} waits and fits")
        return
    for movers in claim.moves(closed):
        yield Verdict("refused-move", name, f"{name} waits and would fit if {', '.join(movers)} moved")
        return
    for mixed in (False, True):
        for units, movers in claim.takes(mixed, closed):
            if rounds.comes_round(claim, units, movers):
                continue
            aside = f", and {', '.join(movers)} moved" if movers else ""
            kind = "refused-mixed" if movers else "refused-take"
            yield Verdict(kind, name, f"{name} waits and may take {listed(units)}{aside}")
            return


def _kept_from(moment: Moment, name: str) -> Closed:
    """Devices that a reservation keeps from this job (rule 20)."""
    job = moment.jobs[name]
    return frozenset(
        (spot.node, gpu)
        for holder, spots, until in moment.reserved
        if holder != name and holder in moment.jobs and not _may_use_the_gap(moment, job, moment.jobs[holder], until)
        for spot in spots
        for gpu in spot.gpus
    )


def _kept_at_all(moment: Moment, name: str) -> Closed:
    """Devices that are kept for others: the rules do not say that extras fill gaps."""
    return frozenset(
        (s.node, g) for holder, spots, _ in moment.reserved if holder != name for s in spots for g in s.gpus
    )


def _may_use_the_gap(moment: Moment, job: Job, holder: Job, until: float | None) -> bool:
    """Who ends before the holder starts, or who is within quota everywhere while the holder borrows."""
    if job.time_limit is not None and until is not None and moment.now + job.time_limit <= until:
        return True
    return not _within_quota(moment, holder) and _within_quota(moment, job)


def _within_quota(moment: Moment, job: Job) -> bool:
    used, need = use(moment, moment.state), moment.need(job, moment.state[job.name])
    return all(stays_within_quota(moment, q, used[q], need) for q in moment.path(job.queue))


def everybody_grew(moment: Moment, plan: Plan) -> Iterator[Verdict]:
    """Rule 8: who is whole and has tasks left grows into what is free."""
    end = end_moment(moment, plan)
    view = View.of(end, strict=True)
    for name, job in sorted(end.jobs.items()):
        spots = end.state[name]
        if not spots or not end.complete(job, spots) or job.held:
            continue
        for group in job.groups:
            if sum(s.group == group.name for s in spots) >= group.most:
                continue
            claim = Claim(view, end.state, name, {group.name: 1})
            if claim.fits(end.state, (), _kept_at_all(end, name)):
                yield Verdict("refused-growth", name, f"{name} could grow by a task of {group.name}")


def priority_grows_first(moment: Moment, plan: Plan) -> Iterator[Verdict]:
    """Rules 7 and 8: of two in a queue the lower priority does not grow into what the higher one could have."""
    end = end_moment(moment, plan)
    view = View.of(end, strict=True)
    for name, job in sorted(end.jobs.items()):
        if not end.state[name] or not end.complete(job, end.state[name]) or plan.reserves or moment.reserved:
            continue
        for lower in sorted(end.jobs.values(), key=lambda j: j.name):
            if lower.queue != job.queue or lower.priority >= job.priority or not _grew(moment, plan, lower):
                continue
            for spot in [s for s in end.state[lower.name] if not places(moment.state[lower.name])[spot_place(s)]]:
                without = lifted(end.state, [(lower.name, (spot,))])
                if _could_grow(view, without, job):
                    yield Verdict("growth-order", name, f"{lower.name} grows where {name} of higher priority could")
                    return


def _grew(moment: Moment, plan: Plan, job: Job) -> bool:
    before = moment.state.get(job.name, ())
    return bool(before) and moment.complete(job, before) and len(plan.end.get(job.name, ())) > len(before)


def _could_grow(view: View, state: State, job: Job) -> bool:
    for group in job.groups:
        if sum(s.group == group.name for s in state[job.name]) < group.most:
            claim = Claim(view, state, job.name, {group.name: 1})
            if claim.fits(state):
                return True
    return False


# --- rule 26 ----------------------------------------------------------------------------------------------------------


def nobody_moved_in_vain(moment: Moment, plan: Plan) -> Iterator[Verdict]:
    """Jobs that run before and after keep their GPUs wherever the rest fits around them."""
    if plan.reserves or moment.reserved:
        return
    movers = [name for name in sorted(plan.end) if _moved(moment, plan, name)]
    for name in movers:
        for stay in _stays(moment, plan, name):
            if _lawful_around(moment, plan, name, stay):
                yield Verdict("could-have-stayed", name, f"{name} moved, and everybody else fits as it is if it stays")
                break
            if _rest_fits_around(moment, plan, name, stay):
                yield Verdict("rest-fits-around", name, f"{name} moved, and those who came anew fit around it")
                break


def _moved(moment: Moment, plan: Plan, name: str) -> bool:
    """Whether some task stands where it did not, and some place was given up."""
    was, now = places(moment.state.get(name, ())), places(plan.end[name])
    return bool(was and now and now - was and was - now)


def _stays(moment: Moment, plan: Plan, name: str) -> Iterator[tuple[Spot, ...]]:
    """Its tasks after the plan, as many of them as possible where they stood."""
    before, now = moment.state[name], plan.end[name]
    for kept in combinations(before, min(len(before), len(now))):
        ok = all(
            sum(s.group == g.name for s in kept) <= sum(s.group == g.name for s in now)
            for g in moment.jobs[name].groups
        )
        if ok and places(kept) - places(now) and len(kept) == len(now):
            yield kept


def _lawful_around(moment: Moment, plan: Plan, name: str, stay: tuple[Spot, ...]) -> bool:
    state: State = {**plan.end, name: stay}
    load = Load.of(moment, state)
    company = all(below_caps(load, spot) for spot in stay) and not _shunned(moment, state, name)
    return not any(load.broken()) and company and _standing(moment, moment.jobs[name], stay)


def _shunned(moment: Moment, state: State, name: str) -> bool:
    """Whether the job would meet somebody whom it, or who, avoids it."""
    one = moment.jobs[name]
    return any(
        moment.nodes[mine.node].domain(avoid.level) == moment.nodes[spot.node].domain(avoid.level)
        for other, spots in state.items()
        for avoid in shuns(moment, one, moment.jobs[other])
        for spot in spots
        for mine in state[name]
        if mine is not spot
    )


def _rest_fits_around(moment: Moment, plan: Plan, name: str, stay: tuple[Spot, ...]) -> bool:
    """Everybody who is new somewhere is placed again, the others stand, and this one stays."""
    load, wanted = Load.of(moment, {}), []
    for spot in stay:
        load.put(moment.jobs[name], spot)
    for other, spots in plan.end.items():
        if other == name:
            continue
        stood = places(moment.state.get(other, ()))
        kept: list[Spot] = []
        new: list[Spot] = []
        for spot in spots:
            (kept if stood[spot_place(spot)] else new).append(spot)
        for spot in kept:
            load.put(moment.jobs[other], spot)
        lacking = {g.name: n for g in moment.jobs[other].groups if (n := sum(s.group == g.name for s in new))}
        wanted += asks(moment.jobs[other], lacking, tuple(kept))
    if not _standing(moment, moment.jobs[name], stay) or any(load.broken()):
        return False
    if not all(below_caps(load, spot) for spot in stay):
        return False
    try:
        return arrange(load, wanted) is not None
    except TooLarge:
        return False


def spot_place(spot: Spot) -> tuple[str, str, tuple[int, ...], tuple[str, ...]]:
    """Where a task runs, as `places` counts it."""
    return (spot.group, spot.node, tuple(sorted(spot.gpus)), tuple(sorted(spot.mig)))


def _standing(moment: Moment, job: Job, stay: tuple[Spot, ...]) -> bool:
    """Whether the place is one where the job may be: no domain crossed, no sick GPU under it."""
    sick = any(moment.nodes[s.node].devices[g].sick for s in stay for g in s.gpus)
    return together(moment, job, stay) and not sick


# --- rule 21 and 26: the fixed point ----------------------------------------------------------------------------------


def planning_again_changes_nothing(moment: Moment, plan: Plan, planner: Planner) -> Iterator[Verdict]:
    """The end state planned anew, its tasks renumbered; a budget that this plan has used bears more in the next."""
    if any(changed(moment, plan, name) for budget in moment.budgets for name in budget.jobs):
        return
    again = read_plan(planner(after(moment, plan)))
    if circle_in(moment.state, again.end) and not circle_in(moment.state, plan.end):
        return  # told as one plan, those moves would be a circle, which no plan has
    for action in again.actions:
        yield Verdict("restless", action.job, f"planning again wants {type(action).__name__.lower()} {action.job}")
        return
