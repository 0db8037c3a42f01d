"""What grows is cut when a yard begins and every few hours: old events, used keys, output of jobs that ended long ago.

Called by the engine. Jobs, attempts and the ledger stay: they are small, and reports ask for them.
"""

from __future__ import annotations

from gpuyard.model.resources import WHOLE
from gpuyard.worlds.local.desk import Desk
from gpuyard.worlds.local.launch import Supervisors
from gpuyard.worlds.local.store import Batch, Store

EVERY_S = 6 * 3600.0
EVENTS_KEPT = 100_000
KEYS_S = 7 * 86400.0
"""An idempotency key is for retries, and nobody retries for longer."""
OUTPUT_S = 30 * 86400.0


def tidy(store: Store, launcher: Supervisors, desk: Desk) -> None:
    """Cut what is too long."""
    now = desk.now()
    batch = Batch()
    batch.add("DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - ?", (EVENTS_KEPT,))
    batch.add("DELETE FROM keys WHERE at < ?", (now - KEYS_S,))
    store.defer(batch)
    live = {
        (entry.id, attempt.number)
        for entry in desk.book.active()
        for attempt in (entry.attempt, entry.following)
        if attempt is not None
    }
    old = {row[0] for row in store.rows("SELECT id FROM jobs WHERE ended < ?", (now - OUTPUT_S,))}
    for path in launcher.strays():
        desk.aside.move(path)
    for stray in launcher.tidy(live, old):
        desk.holdings.take(stray.key, [((stray.node, gpu, ""), WHOLE) for gpu in stray.gpus])
