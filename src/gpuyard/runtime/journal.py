"""Every turn of the loop written down: what was seen, what was decided. Replayed, the brain decides the same.

The loop calls `record` before a plan is applied, so a turn is on disk together with the first thing it changes.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from gpuyard.files import snapshot_document
from gpuyard.model.actions import Plan
from gpuyard.model.events import Event
from gpuyard.model.snapshot import Snapshot
from gpuyard.worlds.local.store import Batch, Store


class Journal:
    """A `loop.Record` in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def memory(self) -> Mapping[str, Any]:
        """What the brain remembered when it was last written down."""
        rows = self._store.rows("SELECT document FROM facts WHERE name = 'memory'")
        return dict(json.loads(rows[0][0])) if rows else {}

    def begin(self, fleet: Snapshot) -> None:
        """A new line of turns begins with this fleet and no jobs."""
        self._write(fleet.now, "begin", snapshot_document(fleet))

    def record(self, now: float, events: Sequence[Event], plan: Plan) -> None:
        """One turn."""

    def _write(self, now: float, kind: str, document: Any) -> None:
        batch = Batch()
        content = zlib.compress(json.dumps(document, separators=(",", ":")).encode(), 1)
        batch.add("INSERT INTO turns(at, kind, content) VALUES (?, ?, ?)", (now, kind, content))
        self._store.defer(batch)
