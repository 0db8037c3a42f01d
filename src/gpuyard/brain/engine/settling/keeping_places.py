"""Nobody moves who could have stayed (rule 26): jobs that run before and after a plan keep their GPUs wherever the rest
fits around them.

Called once a plan has settled, before its net change is told. Cycles move and evict step by step; only the end counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice, product

from gpuyard.brain.engine.giving_way.victims import in_min_runtime
from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.nodes.requests import STATIC_CHECKERS
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow, rank_in_queue
from gpuyard.brain.engine.picture.turnover import Turnover, exchange
from gpuyard.brain.engine.placing import adding, gang, neighbours, topology
from gpuyard.brain.engine.placing.devices import stands_free
from gpuyard.brain.engine.reserving import backfill
from gpuyard.brain.engine.sharing.amounts import GPUS
from gpuyard.model.reasons import Code, Reason

Origin = Mapping[str, tuple[Held, ...]]

MOST_ORDERED = 4
"""Jobs of which each looks for its place first once."""
MOST_SHRUNK, MOST_KEPT = 5, 8
"""Places of a job that shrinks of which any may be left, and how many ways of leaving some are tried."""


def keep_places(draft: Draft, origin: Origin) -> bool:
    """Let every job that was moved stand where it stood, if all that runs still runs then; whether any does."""
    displaced = [
        row for row in _moving(draft, origin) if _displaced(row, origin[row.name]) and not _defragmented(draft, row)
    ]
    if not displaced:
        return False
    if _all_back(draft, origin, displaced):
        return True
    if len(displaced) == 1:
        return False  # it was tried alone
    back = [_all_back(draft, origin, [row]) for row in displaced]
    return any(back)


def _defragmented(draft: Draft, row: JobRow) -> bool:
    """Whether it was moved for the sake of moving it."""
    reason = draft.because.get(row.name)
    return reason is not None and reason.code is Code.DEFRAGMENTED


def untangle(draft: Draft, origin: Origin) -> bool:
    """No move waits for another that waits for it (rule 26): whoever stands in such a circle stands where it stood, and
    who was to have its place waits. Whether there was any."""
    found = False
    while ring := _ring(draft, origin):
        found = True
        for row in ring:
            draft.tx.lift_all(row, [held for held in row.held if held not in origin[row.name]])
        for row in ring:
            for held in origin[row.name]:
                if held not in row.held:
                    _turn_out(draft, origin, held)
                    draft.tx.put(row, held)
    return found


def _ring(draft: Draft, origin: Origin) -> list[JobRow]:
    """Jobs that move in a circle, each to where the next one was."""
    if not _moving(draft, origin):
        return []
    jobs = draft.fleet.jobs
    changes = [exchange(name, before, jobs[name].held) for name, before in origin.items() if name in jobs]
    return [jobs[name] for name in Turnover(draft.fleet.columns, changes).ring()]


def _turn_out(draft: Draft, origin: Origin, held: Held) -> None:
    """Whoever came anew to a place that is not left after all takes back all that it got."""
    for row in list(draft.fleet.tenants[held.node]):
        new = [other for other in row.held if other not in origin.get(row.name, tuple(row.held))]
        if any(other.node == held.node and set(other.gpus) & set(held.gpus) for other in new):
            draft.tx.lift_all(row, new)
            message = f"{row.name} would fit only if others moved in a circle, each to where the next one is"
            draft.wait((row,), Reason(Code.FRAGMENTED, needed=draft.fleet.shortfall(row)[GPUS], message=message))


def _rows(draft: Draft, origin: Origin) -> list[JobRow]:
    rows = [draft.fleet.jobs[name] for name in origin if name in draft.fleet.jobs]
    return sorted(rows, key=rank_in_queue)


def _moving(draft: Draft, origin: Origin) -> list[JobRow]:
    """Those who ran before and run on, some task of theirs where none of them ran; in a plan that stops many or starts
    many they are few, and only they are put in order."""
    jobs = draft.fleet.jobs
    rows = [jobs[name] for name, before in origin.items() if before and name in jobs]
    return sorted((row for row in rows if _has_new(row, origin[row.name])), key=rank_in_queue)


def _displaced(row: JobRow, before: tuple[Held, ...]) -> bool:
    """Whether it runs before and after, but some task where none of its ran, while another place is left."""
    standing = [held for held in before if not held.terminating]
    return bool(standing) and _has_new(row, before) and bool(_places(standing) - _places(row.held))


def _all_back(draft: Draft, origin: Origin, back: list[JobRow]) -> bool:
    """Lift what is new and in the way, put these jobs where they were, place the others anew; all or nothing."""
    others = [row for row in _rows(draft, origin) if row not in back and _has_new(row, origin[row.name])]
    orders = _orders(draft, others)
    keeps = islice(_keeps(draft, origin, back), MOST_KEPT)
    return any(_back_around(draft, origin, keep, order) for keep in keeps for order in orders)


Keep = Mapping[JobRow, tuple[Held, ...]]
"""Where jobs may stand again."""


def _keeps(draft: Draft, origin: Origin, back: list[JobRow]) -> Iterator[Keep]:
    """Where these jobs could stand again: where they stood, and one that shrinks in some of those places."""
    ways = [_some_of(draft, row, origin[row.name]) for row in back]
    return (dict(zip(back, kept, strict=True)) for kept in product(*ways))


def _some_of(draft: Draft, row: JobRow, before: tuple[Held, ...]) -> list[tuple[Held, ...]]:
    """The places that it may have again, first of all those it still has. A job that shrinks may also leave any of
    them, but not inside its minimum runtime: there it gives what came last."""
    still, size = _places(row.held), len(row.held)
    first = tuple(sorted(before, key=lambda held: held._replace(task=0) not in still))
    if size >= len(before) or len(before) > MOST_SHRUNK or in_min_runtime(draft, row):
        return [first]
    sizes = Counter(held.leaf for held in row.held)
    return [first, *(kept for kept in combinations(first, size) if Counter(held.leaf for held in kept) <= sizes)]


def _orders(draft: Draft, rows: list[JobRow]) -> list[list[JobRow]]:
    """In which orders jobs look for places: by rank, the largest first, those first who could go to the fewest nodes
    (of equals who must stay in one domain); and each in turn before the others, if few look."""
    largest = sorted(rows, key=lambda row: -max((held.cost for held in row.held), default=0))
    orders = [rows, largest, sorted(largest, key=lambda row: _choices(draft, row))]
    if len(rows) <= MOST_ORDERED:
        orders += [[row, *(other for other in rows if other is not row)] for row in rows]
    return [order for i, order in enumerate(orders) if order not in orders[:i]]


def _choices(draft: Draft, row: JobRow) -> tuple[int, bool]:
    """On how many nodes the pickiest of its groups could ever run, and whether they may lie in any domains."""
    nodes = min(int(draft.fleet.shapes.static(request, STATIC_CHECKERS).sum()) for request in row.requests)
    return nodes, not gang.required_level(draft.fleet.columns, row)


def _back_around(draft: Draft, origin: Origin, keep: Keep, others: list[JobRow]) -> bool:
    """The same with the others placed in this order."""
    sizes = {row: len(row.held) for row in (*keep, *others)}
    with draft.trial() as trial:
        for row in sizes:
            stays = keep.get(row, origin[row.name])
            draft.tx.lift_all(row, [held for held in row.held if held not in stays])
        fits = all(_put_back(draft, row, places, sizes[row]) for row, places in keep.items())
        fits = fits and all(_refill(draft, row, size) for row, size in sizes.items())
        fits = fits and all(topology.unbroken(draft.fleet.columns, row) for row in keep)
        if fits:
            trial.keep()
    return fits


def _has_new(row: JobRow, before: tuple[Held, ...]) -> bool:
    return bool(row.held) and bool(_places(row.held) - _places(before))


def _places(tasks: Iterable[Held]) -> Counter[Held]:
    """Places whatever the number of the task: one that was merely numbered anew has not moved."""
    return Counter(held._replace(task=0) for held in tasks)


def _put_back(draft: Draft, row: JobRow, places: Sequence[Held], size: int) -> bool:
    """As many tasks as the plan gives it stand in these places again; a job that shrinks leaves those that are gone."""
    missing = min(size, len(places)) - sum(held in row.held for held in places)
    for held in places:
        if missing > 0 and held not in row.held and _free_again(draft, row, held):
            draft.tx.put(row, held)
            missing -= 1
    return missing <= 0


def _free_again(draft: Draft, row: JobRow, held: Held) -> bool:
    return stands_free(draft.fleet.columns, held) and neighbours.welcome(draft.fleet, row, held)


def _refill(draft: Draft, row: JobRow, size: int) -> bool:
    """Bring the job back to as many tasks as the plan gave it, on nothing that is kept for somebody else."""
    with backfill.held_against(draft, row):
        started = row.complete() or gang.start(draft, row)
    with backfill.held_against(draft, row, extras=True):
        while started and len(row.held) < size:
            started = adding.grow(draft, row)
    return started and len(row.held) == size
