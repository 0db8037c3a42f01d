"""Who comes first: the order of queues and of jobs inside a queue, taken anew after every change (rule 7).

`Turns` hands out one waiting job after the other. Jobs of one queue that the fleet would answer alike stand in one
`Bucket`: when its first job cannot start, none of it can, so a thousand equal failing jobs cost one question.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from gpuyard.brain.engine.fleet import Fleet
from gpuyard.brain.engine.quota import NOT_COUNTED, Amounts, QueueTree, Shares
from gpuyard.brain.engine.rows import NO_QUEUE, JobRow
from gpuyard.model.resources import UNLIMITED

Rank = tuple[object, ...]
"""Sorts first what comes first."""


def rank_in_queue(row: JobRow) -> Rank:
    """Priority, then what the policy's order says, then those running when the plan began, then age, then name."""
    return (-row.priority, row.turn, not row.running, row.age)


def dues(tree: QueueTree, shares: Shares) -> Shares:
    """max(quota, fair share) per queue and resource, what a queue's use is measured by; 0 where not counted."""
    measured: Shares = []
    for q, quota in enumerate(tree.quota):
        parent = shares[tree.parent[q]] if tree.parent[q] >= 0 else shares[q]
        measured.append([_due(quota[r], shares[q][r], parent[r]) for r in range(len(quota))])
    return measured


def _due(quota: int, share: float, parent: float) -> float:
    if quota == NOT_COUNTED:
        return 0.0
    return max(parent if quota >= UNLIMITED else float(quota), share)


class Bucket:
    """Waiting jobs of one queue that are answered alike, first come first."""

    __slots__ = ("asked", "queue", "rows", "taken")

    def __init__(self, queue: int, asked: Amounts) -> None:
        self.queue = queue
        self.asked = asked
        """What the next job needs to reach its minimum."""
        self.rows: list[JobRow] = []
        self.taken = 0

    @property
    def head(self) -> JobRow:
        """The job whose turn it is."""
        return self.rows[self.taken]

    def left(self) -> list[JobRow]:
        """The jobs not yet started."""
        return self.rows[self.taken :]


class _Line:
    """The buckets of one leaf queue that may still be asked, best first."""

    __slots__ = ("heap",)

    def __init__(self) -> None:
        self.heap: list[tuple[Rank, Bucket]] = []

    def push(self, bucket: Bucket) -> None:
        heappush(self.heap, (rank_in_queue(bucket.head), bucket))  # names differ, so ranks never tie


class Turns:
    """The turns of one pass. Ask `next`, then tell `started` or `parked`; queue ranks follow by themselves."""

    def __init__(self, fleet: Fleet, shares: Shares, buckets: Iterable[Bucket]) -> None:
        self.tree = fleet.tree
        self.shares = shares
        self.dues = dues(fleet.tree, shares)
        self._lines: dict[int, _Line] = {}
        self._heaps: dict[int, list[tuple[Rank, int, int]]] = {}
        self._stamps = [0] * len(fleet.tree.queues)
        self._dirty: set[int] = set()
        """Leaf queues whose rank may have changed."""
        for bucket in buckets:
            self._lines.setdefault(bucket.queue, _Line()).push(bucket)
        for queue in self._lines:
            self._rerank(queue)
        self._seen = len(self.tree.changed)

    def next(self) -> Bucket | None:
        """The bucket whose head comes first now; None when every bucket was started empty or parked."""
        self._follow_changes()
        return self._best_bucket(self.tree.paths[0][-1])

    def started(self, bucket: Bucket) -> None:
        """The head started; its bucket's next job takes its place."""
        line = self._lines[bucket.queue]
        heappop(line.heap)
        bucket.taken += 1
        if bucket.taken < len(bucket.rows):
            line.push(bucket)
        self._dirty.add(bucket.queue)

    def parked(self, bucket: Bucket) -> None:
        """The head could not start, so none of its bucket can: it is not asked again in this pass."""
        heappop(self._lines[bucket.queue].heap)
        self._dirty.add(bucket.queue)

    # --- ranks of queues ------------------------------------------------------------------------------------------

    def _follow_changes(self) -> None:
        changed = self.tree.changed
        if self._seen < len(changed):
            self._dirty.update(changed[self._seen :])
            self._seen = len(changed)
        for queue in self._dirty:
            if queue in self._lines:
                self._rerank(queue)
        self._dirty.clear()

    def _rerank(self, queue: int) -> None:
        """Renew the rank of a leaf queue and of every queue above it."""
        line = self._lines[queue]
        if line.heap:
            bucket = line.heap[0][1]
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
        heap = self._heaps.get(parent, [])
        while heap and heap[0][1] != self._stamps[heap[0][2]]:
            heappop(heap)
        return heap[0][2] if heap else None

    def _best_bucket(self, q: int) -> Bucket | None:
        best: int | None = q
        while best is not None and best not in self._lines:
            best = self._best_child(best)
        if best is None or not self._lines[best].heap:
            return None
        return self._lines[best].heap[0][1]

    def _rank(self, q: int, asked: Amounts, row: JobRow) -> Rank:
        used, quota, share, due = self.tree.used[q], self.tree.quota[q], self.shares[q], self.dues[q]
        above = over = False
        after = before = 0.0
        for r, amount in enumerate(asked):
            if quota[r] == NOT_COUNTED:
                continue
            above = above or used[r] > share[r]
            over = over or (amount > 0 and used[r] + amount > quota[r])
            after = max(after, _ratio(used[r] + amount, due[r]))
            before = max(before, _ratio(used[r], due[r]))
        return (above, over, -self.tree.queues[q].priority, after, before, row.age)


def _ratio(amount: int, due: float) -> float:
    if amount <= 0:
        return 0.0
    return amount / due if due > 0 else float("inf")


def buckets(fleet: Fleet, rows: Iterable[JobRow]) -> list[Bucket]:
    """Waiting jobs sorted into buckets; a job that holds something already stands alone."""
    found: dict[object, Bucket] = {}
    for row in sorted(rows, key=rank_in_queue):
        if row.queue == NO_QUEUE:
            continue
        key = row.name if row.held else (row.queue, row.firm, row.signature)
        bucket = found.get(key)
        if bucket is None:
            bucket = found[key] = Bucket(row.queue, fleet.shortfall(row))
        bucket.rows.append(row)
    return list(found.values())


def in_order(bucket_list: Iterable[Bucket]) -> Iterator[JobRow]:
    """Every job left in the buckets, in no particular order across them."""
    for bucket in bucket_list:
        yield from bucket.left()
