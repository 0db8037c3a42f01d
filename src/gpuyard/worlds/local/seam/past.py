"""What happened on this machine and what was used, read back from the store.

Sums come from the ledger, which is written with every task's end; what still runs is added up to now.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gpuyard.worlds.local.attempts.desk import Desk
from gpuyard.worlds.local.state import cutting, ledger
from gpuyard.worlds.local.state.records import gpus_of
from gpuyard.worlds.local.state.store import Store

Sums = dict[tuple[str, ...], list[float]]
"""GPU-seconds, money, tasks, and of the GPU-seconds: lost, measured, and busy."""
Row = tuple[int, float, str, str, str, dict[str, Any]]
"""One event: number, moment, kind, the job's key, the identity of its owner, and the rest."""
COLUMNS = "id, at, kind, job, owner, document"
EVENTS_OF_ONE = 200


def used(desk: Desk, columns: Sequence[str], since: float, identity: str | None) -> Sums:
    """Since a moment (whole days), by `user`, `queue` or `owner`; of one owner, or of all."""
    names = ", ".join(columns)
    rows = desk.store.rows(
        f"SELECT {names}, sum(gpu_seconds), sum(money), sum(tasks), sum(lost), sum(measured), sum(busy) "
        f"FROM ledger "
        f"WHERE day >= ? AND (? IS NULL OR owner = ?) GROUP BY {names}",
        (int(since // ledger.DAY_S), identity, identity),
    )
    width = len(columns)
    sums: Sums = {tuple(row[:width]): [float(amount) for amount in row[width:]] for row in rows}
    _add_running(sums, desk, columns, since, identity)
    return dict(sorted(sums.items()))


def _add_running(sums: Sums, desk: Desk, columns: Sequence[str], since: float, identity: str | None) -> None:
    now = desk.now()
    for entry in desk.book.active():
        attempt = entry.attempt
        known = {"user": entry.owner.user, "queue": entry.template.job.queue, "owner": entry.owner.identity}
        if identity is not None and entry.owner.identity != identity:
            continue
        for task in attempt.live() if attempt is not None and attempt.state != "promised" else ():
            node = desk.nodes.get(task.placement.node)
            price = ledger.gpu_hour(desk.pools.get(node.pool)) if node is not None else 0.0
            seconds = (now - max(attempt.created, since)) * gpus_of(entry, task, node) if attempt else 0.0
            sum_ = sums.setdefault(tuple(known[column] for column in columns), [0.0] * 6)
            sum_[0] += seconds
            sum_[1] += seconds * price / ledger.HOUR_S
            sum_[2] += 1


def counts(store: Store) -> dict[str, Any]:
    """Counts since the yard was made, also of jobs whose records were cut."""
    counted = cutting.add(cutting.before(store), cutting.counts(store))
    asked = ", ".join(f"coalesce(sum({name}), 0)" for name in ("gpu_seconds", "lost", "measured", "busy"))
    held, lost, measured, busy = store.rows(f"SELECT {asked} FROM ledger")[0]
    productive = {"productive": round(busy, 3), "idle_allocated": round(measured - busy, 3)} if measured else {}
    waited = counted["waited"]
    return {
        "waits": {queue: {"count": n, "seconds": round(waited[queue], 3)} for queue, n in counted["waits"].items()},
        "ended": dict(counted["ended"]),
        "evictions": dict(counted["evictions"]),
        "accounts": {"held": round(held, 3), "lost": round(lost, 3)} | productive,
    }


def events(store: Store, after: int, limit: int) -> list[Row]:
    """What happened after another event, oldest first."""
    asked = f"SELECT {COLUMNS} FROM events WHERE id > ? ORDER BY id LIMIT ?"
    return [_row(row) for row in store.rows(asked, (after, limit))]


def events_of(store: Store, job: int) -> list[Row]:
    """The newest of what happened to a job, oldest first."""
    asked = f"SELECT {COLUMNS} FROM events WHERE number=? ORDER BY id DESC LIMIT {EVENTS_OF_ONE}"
    return [_row(row) for row in store.rows(asked, (job,))][::-1]


def _row(row: tuple[Any, ...]) -> Row:
    return (*row[:5], _rest(row[5]))


def _rest(text: str) -> dict[str, Any]:
    """What an event says besides; one that cannot be read holds nobody up who follows them."""
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError):
        return {"message": "what happened then cannot be read any more"}
