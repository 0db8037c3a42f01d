"""What was used and what happened, added up from the store: reports for people, counts for metrics.

Called by the embedded yard. Sums come from the ledger, which is written with every task's end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuyard.runtime.service import Document
from gpuyard.worlds.local.attempts.desk import Desk
from gpuyard.worlds.local.state import ledger
from gpuyard.worlds.local.state.store import Store

Sums = dict[tuple[str, ...], list[float]]


def report(
    store: Store, desk: Desk, columns: Sequence[str], since: float, whose: str | None = None
) -> list[Mapping[str, Any]]:
    """GPU-seconds and money since a moment (whole days), with what still runs up to now; of one identity, or of all.

    Users are told apart by who they really are: a name that was given to another user has two lines.
    """
    keys = [*columns, *(["owner"] if "user" in columns else [])]
    names = ", ".join(keys)
    rows = store.rows(
        f"SELECT {names}, sum(gpu_seconds), sum(money), sum(tasks), sum(lost) FROM ledger "
        f"WHERE day >= ? AND (? IS NULL OR owner = ?) GROUP BY {names}",
        (int(since // ledger.DAY_S), whose, whose),
    )
    width = len(keys)
    sums: Sums = {tuple(row[:width]): [float(amount) for amount in row[width:]] for row in rows}
    _add_running(sums, desk, keys, since, whose)
    return [_line(dict(zip(keys, key, strict=True)), amounts) for key, amounts in sorted(sums.items())]


def _line(known: dict[str, str], amounts: Sequence[float]) -> Mapping[str, Any]:
    """What of it was in pools without a price costs nothing known: no money is told rather than none."""
    uid = known.pop("owner", "").partition(":")[0]
    return {
        "name": "/".join(known.values()), **known, **({"uid": int(uid)} if uid.isdecimal() else {}),
        "gpu_seconds": round(amounts[0], 3), "lost_gpu_seconds": round(amounts[3], 3), "tasks": int(amounts[2]),
        **({"money": round(amounts[1], 4)} if amounts[1] else {}),
    }  # fmt: skip


def _add_running(sums: Sums, desk: Desk, keys: Sequence[str], since: float, whose: str | None) -> None:
    now = desk.now()
    for entry in desk.book.active():
        attempt = entry.attempt
        known = {"user": entry.owner.user, "queue": entry.template.job.queue, "owner": entry.owner.identity}
        if whose is not None and entry.owner.identity != whose:
            continue
        for task in attempt.live() if attempt is not None and attempt.state != "promised" else ():
            node = desk.nodes.get(task.placement.node)
            price = ledger.gpu_hour(desk.pools.get(node.pool)) if node is not None else 0.0
            seconds = (now - max(attempt.created, since)) * ledger.gpus_of(entry, task, node) if attempt else 0.0
            sum_ = sums.setdefault(tuple(known[key] for key in keys), [0.0, 0.0, 0.0, 0.0])
            sum_[0] += seconds
            sum_[1] += seconds * price / ledger.HOUR_S
            sum_[2] += 1


def measures(store: Store) -> Document:
    """Counts since the yard was made."""
    waits = store.rows(
        "SELECT t.queue, count(*), sum(j.started - t.submitted) FROM jobs j JOIN templates t ON t.id = j.template "
        "WHERE j.started IS NOT NULL GROUP BY t.queue"
    )
    ended = store.rows("SELECT phase, count(*) FROM jobs WHERE ended IS NOT NULL GROUP BY phase")
    stops = store.rows("SELECT why, count(*) FROM attempts WHERE why IN ('preempted', 'moved', 'drained') GROUP BY why")
    held, lost = store.rows("SELECT coalesce(sum(gpu_seconds), 0), coalesce(sum(lost), 0) FROM ledger")[0]
    return {
        "waits": {queue: {"count": count, "seconds": round(seconds, 3)} for queue, count, seconds in waits},
        "ended": dict(ended),
        "evictions": dict(stops),
        "accounts": {"held": round(held, 3), "lost": round(lost, 3)},
    }
