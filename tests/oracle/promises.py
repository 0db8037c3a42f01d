"""Whether reservations promise the truth, and whether anybody starts on what is kept for another (rule 20)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from tests.oracle.claims import Claim, Closed, View
from tests.oracle.places import TooLarge
from tests.oracle.plans import Plan, Verdict, places
from tests.oracle.shapes import Job, Moment, State, read_time
from tests.oracle.shares import above_quota, stays_within_quota, use


def gaps_are_left(moment: Moment, plan: Plan) -> Iterator[Verdict]:
    """Nobody who comes later in the queue starts on what is kept for a job that still waits."""
    for holder, spots, until in moment.reserved:
        job = moment.jobs.get(holder)
        if job is None or moment.complete(job, plan.end.get(holder, ())):
            continue
        kept = {(s.node, gpu) for s in spots for gpu in s.gpus}
        for name, start in plan.starts.items():
            other = moment.jobs[name]
            used = kept & {(s.node, gpu) for s in start.spots for gpu in s.gpus}
            later = (other.priority, -other.submitted) < (job.priority, -job.submitted) and other.queue == job.queue
            ends = None if other.time_limit is None else moment.now + other.time_limit
            short = ends is not None and until is not None and ends <= until
            if used and later and not short and not moment.state.get(name) and not _lends(moment, plan, job, other):
                yield Verdict("gap", name, f"{name} starts on {sorted(used)}, kept for {holder}")


def _lends(moment: Moment, plan: Plan, holder: Job, other: Job) -> bool:
    """Whether the holder is above quota at some level, before the plan or once others have started: then it may not
    block those who are within."""
    need = moment.need(holder, moment.state.get(holder.name, ()))
    for state in (moment.state, {name: spots for name, spots in plan.end.items() if name != other.name}):
        used = use(moment, state)
        if not all(stays_within_quota(moment, q, used[q], need) for q in moment.path(holder.queue)):
            return True
    return False


def one_reservation_a_pool(moment: Moment, plan: Plan) -> Iterator[Verdict]:
    """Rule 20: one per pool, for a job that waits, on GPUs that are well."""
    pools: Counter[str] = Counter()
    for entry in plan.reserves:
        job = moment.jobs[entry["job"]]
        pools.update({moment.nodes[p["node"]].pool for p in entry["placements"]})
        if moment.complete(job, plan.end.get(job.name, ())):
            yield Verdict("reservation", job.name, f"{job.name} runs and has a reservation")
        if any(moment.nodes[p["node"]].devices[g].sick for p in entry["placements"] for g in p["gpus"]):
            yield Verdict("reservation", job.name, f"a sick GPU is kept for {job.name}")
        if not job.preemptible and above_quota(moment, job.queue, use(moment, plan.end, False, True)[job.queue]):
            yield Verdict("reservation", job.name, f"{job.name} could not start there: its queue is above quota")
    for pool, count in sorted(pools.items()):
        if count > 1:
            yield Verdict("reservation", "", f"pool {pool} has {count} reservations")


def reservations_say_when(moment: Moment, plan: Plan) -> Iterator[Verdict]:
    """`until` is the start that follows from time limits, and absent when none does."""
    for entry in plan.reserves:
        told = read_time(entry.get("until"))
        try:
            lawful = [_start(moment, plan, entry["job"], *reading) for reading in _readings(moment, plan)]
        except TooLarge:
            continue
        if not any(at is told or (at is not None and told is not None and abs(at - told) <= 1) for at in lawful):
            when = "nobody knows when" if lawful[0] is None else f"in {(lawful[0] - moment.now) / 60:.0f} minutes"
            yield Verdict("until", entry["job"], f"{entry['job']} can start {when}, not as told: {entry.get('until')}")


def _readings(moment: Moment, plan: Plan) -> list[tuple[bool, str, bool]]:
    """Whether the limit of a job that moves begins anew; whether members on their way out stay, go with their job, or
    are as good as gone; and whether what is kept for another is open to this one: the rules say none of it."""
    anew = (True, False) if plan.moves else (True,)
    leave = ("stay", "go", "gone") if moment.going else ("stay",)
    open_too = (True, False) if len(plan.reserves) > 1 else (True,)
    return list(product(anew, leave, open_too))


def _start(moment: Moment, plan: Plan, name: str, anew: bool, leave: str, open_too: bool) -> float | None:
    """The first moment at which the job fits if every job runs to its limit; None if limits do not say."""
    closed = frozenset() if open_too else _kept_for_others(plan, name)
    ends = {n: _ends(moment, plan, n, anew) for n, spots in plan.end.items() if spots}
    ends |= {n: _limit_ends(moment, n) for n, _ in moment.going if n not in ends}
    for at in sorted({end for end in ends.values() if end is not None}):
        gone = {n for n, end in ends.items() if end is not None and end <= at}
        state: State = {n: spots for n, spots in plan.end.items() if n not in gone}
        going = () if leave == "gone" else tuple(m for m in moment.going if leave == "stay" or m[0] not in gone)
        then = replace(moment, going=going, state=state)
        claim = Claim(View.of(then, strict=False), state, name)
        if claim.fits(state, (), closed):
            return at
    return None


def _kept_for_others(plan: Plan, name: str) -> Closed:
    """Devices that the plan keeps for others, who will run there then."""
    others = [entry for entry in plan.reserves if entry["job"] != name]
    return frozenset((place["node"], gpu) for entry in others for place in entry["placements"] for gpu in place["gpus"])


def _ends(moment: Moment, plan: Plan, name: str, anew: bool) -> float | None:
    """When its time limit ends a job that runs after the plan."""
    job = moment.jobs[name]
    if job.time_limit is None:
        return None
    stays = places(moment.state.get(name, ())) & places(plan.end[name])
    moved = any(move.job == name for move in plan.moves)
    goes_on = moment.state.get(name) and (not anew if moved else stays)
    return _limit_ends(moment, name) if goes_on else moment.now + job.time_limit


def _limit_ends(moment: Moment, name: str) -> float | None:
    """When its time limit ends a job that goes on running."""
    job = moment.jobs[name]
    if job.started is None or job.time_limit is None:
        return None
    return max(moment.now, job.started + job.time_limit)


CHECKS = (gaps_are_left, one_reservation_a_pool, reservations_say_when)
