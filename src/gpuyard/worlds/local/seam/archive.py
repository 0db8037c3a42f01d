"""The local `Archive`: turns and facts in the store's own file, reports as files beside it."""

from __future__ import annotations

import json
from typing import Any

from gpuyard.files.reports import ReportFolder
from gpuyard.worlds.local.state.store import Batch, Store

REPORTS = "reports"


class StoreArchive:
    """Implements `worlds.base.Archive`. What it is given is on disk within moments, in the order in which it came."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def begin(self, at: float, content: bytes) -> None:
        """A new line; the line before the last one is dropped."""
        batch = Batch()
        batch.add("DELETE FROM turns WHERE id < (SELECT coalesce(max(id), 0) FROM turns WHERE kind = 'begin')", ())
        batch.add("INSERT INTO turns(at, kind, content) VALUES (?, 'begin', ?)", (at, content))
        self._store.defer(batch)

    def append(self, at: float, content: bytes) -> None:
        """One more turn."""
        batch = Batch()
        batch.add("INSERT INTO turns(at, kind, content) VALUES (?, 'turn', ?)", (at, content))
        self._store.defer(batch)

    def last_line(self) -> list[tuple[float, bytes]]:
        """The beginning of the last line and its turns."""
        rows = self._store.rows(
            "SELECT at, content FROM turns WHERE id >= "
            "(SELECT coalesce(max(id), 0) FROM turns WHERE kind = 'begin') ORDER BY id"
        )
        return [(at, content) for at, content in rows]

    def keep(self, name: str, document: Any) -> None:
        """One fact."""
        batch = Batch()
        keep(batch, name, document)
        self._store.defer(batch)

    def kept(self, name: str) -> Any:
        """The fact of that name, as it is on disk."""
        text = self.raw(name)
        return json.loads(text) if text else None

    def raw(self, name: str) -> str:
        """The same as it is written, readable or not; "" if nothing was kept."""
        rows = self._store.rows("SELECT document FROM facts WHERE name = ?", (name,))
        return str(rows[0][0]) if rows else ""

    def report(self, name: str, document: Any) -> str:
        """A file beside the store."""
        return ReportFolder(self._store.path.parent / REPORTS).report(name, document)


def keep(batch: Batch, name: str, document: Any) -> None:
    """One fact, together with whatever else the batch changes."""
    batch.add(
        "INSERT INTO facts(name, document) VALUES (?, ?) ON CONFLICT(name) DO UPDATE SET document=excluded.document",
        (name, json.dumps(document, separators=(",", ":"))),
    )
