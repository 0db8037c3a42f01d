"""Records of jobs that ended are cut when there are very many; what was counted of them stays counted.

Used by `housekeeping`, and by `seam.past` for the counts. GPU-seconds and money are the ledger's, which is never cut: a
report is right over any time, whether its jobs are still known or not.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence

from gpuyard.worlds.local.state.book import OVER
from gpuyard.worlds.local.state.store import Batch, Store

FACT = "counts-of-cut-jobs"
KINDS = ("waits", "waited", "ended", "evictions")
Counts = dict[str, Counter[str]]
"""By kind: `waits` (how many started, by queue), `waited` (their seconds), `ended` (by phase), `evictions` (by why)."""


def beyond(store: Store, kept: int, most: int) -> list[int]:
    """Jobs that ended and are not among so many of the newest by number, the oldest first; an array goes whole, or
    what follows it would take its last members for all of them."""
    rows = store.rows(
        f"WITH last(id) AS (SELECT id FROM jobs WHERE phase {OVER} ORDER BY id DESC LIMIT 1 OFFSET ?) "
        f"SELECT j.id FROM jobs j, last WHERE j.id <= last.id AND NOT EXISTS (SELECT 1 FROM jobs k WHERE "
        f"k.template = j.template AND (k.id > last.id OR k.phase NOT {OVER})) ORDER BY j.id LIMIT ?",
        (kept, most),
    )
    return [row[0] for row in rows]


def cut(store: Store, batch: Batch, jobs: Sequence[int]) -> None:
    """Everything that is written of these jobs goes, in one piece with what is counted of them from now on."""
    numbers = ",".join(map(str, jobs))
    counted = add(before(store), counts(store, f"IN ({numbers})"))
    batch.add(
        "INSERT INTO facts(name, document) VALUES (?, ?) ON CONFLICT(name) DO UPDATE SET document=excluded.document",
        (FACT, json.dumps(counted)),
    )
    templates = store.rows(f"SELECT DISTINCT template FROM jobs WHERE id IN ({numbers})")
    for table, column in (("tasks", "job"), ("attempts", "job"), ("jobs", "id")):
        batch.add(f"DELETE FROM {table} WHERE {column} IN ({numbers})", ())
    batch.add(
        "DELETE FROM templates WHERE id = ? AND NOT EXISTS (SELECT 1 FROM jobs WHERE template = ?)",
        *((number, number) for (number,) in templates),
    )


def before(store: Store) -> Counts:
    """What was counted of jobs that are cut by now."""
    rows = store.rows("SELECT document FROM facts WHERE name = ?", (FACT,))
    return {kind: Counter(each) for kind, each in json.loads(rows[0][0]).items()} if rows else {}


def counts(store: Store, which: str = "IS NOT NULL") -> Counts:
    """Of jobs that are written: of all, or of some."""
    waits = store.rows(
        "SELECT t.queue, count(*), sum(j.started - t.submitted) FROM jobs j JOIN templates t ON t.id = j.template "
        f"WHERE j.started IS NOT NULL AND j.id {which} GROUP BY t.queue"
    )
    ended = store.rows(f"SELECT phase, count(*) FROM jobs WHERE ended IS NOT NULL AND id {which} GROUP BY phase")
    stops = store.rows(
        "SELECT why, count(*) FROM attempts WHERE why IN ('preempted', 'moved', 'drained') "
        f"AND job {which} GROUP BY why"
    )
    return {
        "waits": Counter({queue: count for queue, count, _ in waits}),
        "waited": Counter({queue: seconds for queue, _, seconds in waits}),
        "ended": Counter(dict(ended)),
        "evictions": Counter(dict(stops)),
    }


def add(*all_of_it: Counts) -> Counts:
    """Together."""
    return {kind: _sum(each.get(kind, Counter()) for each in all_of_it) for kind in KINDS}


def _sum(counters: Iterable[Counter[str]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in counters:
        total.update(each)
    return total
