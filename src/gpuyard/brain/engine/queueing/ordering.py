"""Who comes first: the order of queues and of jobs inside a queue, taken anew after every change (rule 7).

`Turns` hands out one waiting job after the other. Jobs of one queue that the fleet would answer alike stand in one
`Bucket`: when its first job cannot start, none of it can, so a thousand equal failing jobs cost one question.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from heapq import heappop, heappush, heapreplace

from gpuyard.brain.engine.nodes.eligibility import Tier
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import NO_QUEUE, JobRow, Rank, rank_in_queue
from gpuyard.brain.engine.sharing.amounts import GPUS, Amounts
from gpuyard.brain.engine.sharing.quota import NOT_COUNTED


class Bucket:
    """Waiting jobs of one queue that are answered alike, first come first."""

    __slots__ = ("asked", "free_tiers", "knows_tiers", "queue", "refused", "rows", "taken")

    def __init__(self, queue: int, asked: Amounts, rows: tuple[JobRow, ...]) -> None:
        self.queue = queue
        self.asked = asked
        """What the next job needs to reach its minimum."""
        self.rows = rows
        self.taken = 0
        self.refused = False
        """No room could be made for its first job, so none can for the others."""
        self.free_tiers: tuple[Tier, ...] | None = None
        self.knows_tiers = False
        """Whether it was asked on which models its jobs may go freely, and the answer; see `gang.free_tiers`."""

    @property
    def head(self) -> JobRow:
        """The job whose turn it is."""
        return self.rows[self.taken]

    def left(self) -> tuple[JobRow, ...]:
        """The jobs not yet started."""
        return self.rows[self.taken :]


class _Leaf:
    """The buckets of one leaf queue that may still be asked, best first."""

    __slots__ = ("heap",)

    def __init__(self) -> None:
        self.heap: list[tuple[Rank, Bucket]] = []

    def first(self) -> Bucket | None:
        """The bucket whose head comes first."""
        return self.heap[0][1] if self.heap else None

    def push(self, bucket: Bucket) -> None:
        heappush(self.heap, (rank_in_queue(bucket.head), bucket))  # names differ, so ranks never tie


class Turns:
    """The turns of one pass. Ask `next`, then tell `started` or `parked`; queue ranks follow by themselves."""

    def __init__(self, draft: Draft, buckets: Iterable[Bucket]) -> None:
        self.tree = draft.fleet.tree
        self._leaves: dict[int, _Leaf] = {}
        self._heaps: dict[int, list[tuple[Rank, int, int]]] = {}
        self._stamps = [0] * len(self.tree.queues)
        self._dirty: set[int] = set()
        """Leaf queues whose rank may have changed."""
        for bucket in buckets:
            self._leaves.setdefault(bucket.queue, _Leaf()).push(bucket)
        self._ranked = len(self._leaves) > 1
        """One queue alone needs no rank."""
        if self._ranked:
            self._shares, self._dues = draft.shares, draft.dues
        self._dirty.update(self._leaves)
        self._seen = len(self.tree.changed)

    def next(self) -> Bucket | None:
        """The bucket whose head comes first now; None when every bucket was started empty or parked."""
        if not self._ranked:
            return next((leaf.first() for leaf in self._leaves.values()), None)
        self._follow_changes()
        return self._best_bucket(self.tree.root)

    def started(self, bucket: Bucket) -> None:
        """The head started; its bucket's next job takes its place."""
        leaf = self._leaves[bucket.queue]
        bucket.taken += 1
        if bucket.taken < len(bucket.rows):
            heapreplace(leaf.heap, (rank_in_queue(bucket.head), bucket))
        else:
            heappop(leaf.heap)
        self._dirty.add(bucket.queue)

    def asks_again(self, bucket: Bucket, asked: Amounts) -> None:
        """The head got something and would have more; it keeps its place in its queue."""
        bucket.asked = asked
        self._dirty.add(bucket.queue)

    def parked(self, bucket: Bucket) -> None:
        """The head could not start, so none of its bucket can: it is not asked again in this pass."""
        heappop(self._leaves[bucket.queue].heap)
        self._dirty.add(bucket.queue)

    def rest(self) -> list[Bucket]:
        """Buckets not asked yet, in no particular order."""
        return [bucket for leaf in self._leaves.values() for _, bucket in leaf.heap]

    # --- ranks of queues ------------------------------------------------------------------------------------------

    def _follow_changes(self) -> None:
        changed = self.tree.changed
        if self._seen < len(changed):
            self._dirty.update(changed[self._seen :])
            self._seen = len(changed)
        for queue in self._dirty:
            if queue in self._leaves:
                self._rerank(queue)
        self._dirty.clear()

    def _rerank(self, queue: int) -> None:
        """Renew the rank of a leaf queue and of every queue above it."""
        leaf = self._leaves[queue]
        if leaf.heap:
            bucket = leaf.heap[0][1]
            self._set_rank(queue, self._rank(queue, bucket.asked, bucket.head))
        else:
            self._set_rank(queue, None)
        for q in self.tree.paths[queue][1:-1]:
            best = self._best_bucket(q)
            self._set_rank(q, None if best is None else self._rank(q, best.asked, best.head))

    def _set_rank(self, q: int, rank: Rank | None) -> None:
        self._stamps[q] += 1
        if rank is not None:
            heappush(self._heaps.setdefault(self.tree.parent[q], []), (rank, self._stamps[q], q))

    def _best_child(self, parent: int) -> int | None:
        heap, stamps = self._heaps.get(parent, ()), self._stamps
        while heap:
            _, stamp, q = heap[0]
            if stamp == stamps[q]:
                return q
            heappop(heap)
        return None

    def _best_bucket(self, q: int) -> Bucket | None:
        best: int | None = q
        while best is not None and best not in self._leaves:
            best = self._best_child(best)
        return None if best is None else self._leaves[best].first()

    def _rank(self, q: int, asked: Amounts, row: JobRow) -> Rank:
        if len(asked) == 1:  # GPUs alone, by far the most
            return self._rank_by_gpus(q, asked[GPUS], row)
        above = over = False
        after = before = 0.0
        resources = zip(asked, self.tree.used[q], self.tree.quota[q], self._shares[q], self._dues[q], strict=True)
        for amount, used, quota, share, due in resources:
            if quota == NOT_COUNTED:
                continue
            above = above or used > share
            over = over or (amount > 0 and used + amount > quota)
            after = max(after, _ratio(used + amount, due))
            before = max(before, _ratio(used, due))
        return (above, over, -self.tree.queues[q].priority, after, before, row.job.submitted, row.name)

    def _rank_by_gpus(self, q: int, amount: int, row: JobRow) -> Rank:
        """The same where nothing else is counted; that is counted by every queue."""
        used, due = self.tree.used[q][GPUS], self._dues[q][GPUS]
        after = used + amount
        over = amount > 0 and after > self.tree.quota[q][GPUS]
        above, priority = used > self._shares[q][GPUS], self.tree.queues[q].priority
        return (above, over, -priority, _ratio(after, due), _ratio(used, due), row.job.submitted, row.name)


def _ratio(amount: int, due: float) -> float:
    if amount <= 0:
        return 0.0
    return amount / due if due > 0 else float("inf")


def ahead_of(asked: list[Bucket], others: Set[Bucket]) -> Set[Bucket]:
    """Those of the others who come before somebody asked of the same queue: as long as they stand there, that queue's
    turn is theirs. One queue alone needs no turns."""
    if not others or len({bucket.queue for bucket in asked}) < 2:
        return frozenset()
    last: dict[int, Rank] = {}
    for bucket in asked:
        rank = rank_in_queue(bucket.head)
        last[bucket.queue] = max(rank, last.get(bucket.queue, rank))
    return {each for each in others if each.queue in last and rank_in_queue(each.head) < last[each.queue]}


def buckets(fleet: Fleet) -> list[Bucket]:
    """Everybody who waits, in buckets; a job that holds something already stands alone."""
    equals = [line.rows() for line in fleet.rolls.waiting_lines]
    return _filled(fleet, [*equals, *((row,) for row in fleet.rolls.halves.values())])


def buckets_of(fleet: Fleet, rows: Iterable[JobRow]) -> list[Bucket]:
    """The same for some of them."""
    found: dict[object, list[JobRow]] = {}
    for row in sorted(rows, key=rank_in_queue):
        found.setdefault(row.name if row.held else row.likeness, []).append(row)
    return _filled(fleet, map(tuple, found.values()))


def _filled(fleet: Fleet, equals: Iterable[tuple[JobRow, ...]]) -> list[Bucket]:
    kept = {reservation.job for reservation in fleet.reservations}
    known = [part for rows in equals if rows[0].queue != NO_QUEUE for part in _apart(rows, kept)]
    return [Bucket(rows[0].queue, fleet.shortfall(rows[0]), rows) for rows in sorted(known, key=_first_rank)]


def _apart(rows: tuple[JobRow, ...], kept: Set[str]) -> list[tuple[JobRow, ...]]:
    """Jobs for which room is kept stand alone: they are not answered like those who may not have it."""
    if not kept:
        return [rows]
    rest = tuple(row for row in rows if row.name not in kept)
    return [*((row,) for row in rows if row.name in kept), *((rest,) if rest else ())]


def _first_rank(rows: tuple[JobRow, ...]) -> Rank:
    return rank_in_queue(rows[0])
