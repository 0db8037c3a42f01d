"""Every turn of the loop written down: what was seen, what was decided. Replayed, the brain decides the same.

The loop calls `record` before a plan is applied, so a turn is on disk together with the first thing it changes. A line
of turns begins with the fleet as it was and no jobs; whatever ran then is the first thing that was seen.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gpuyard import files
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.model.actions import Plan
from gpuyard.model.events import Event
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime import recording
from gpuyard.runtime.loop import Loop
from gpuyard.worlds.local.store import Batch, Store

TURNS_MAX = 20_000
"""After so many turns a new line begins, so that the file does not grow for ever."""

REMEMBER_S = 5.0
"""How often what the brain remembers is written down; a crash forgets no more than that."""


class Turn(NamedTuple):
    """One recorded turn; the plan in its short form."""

    now: float
    events: tuple[Event, ...]
    actions: list[Any]


class Journal:
    """A `loop.Record` in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turns = 0
        self._remembered_at = 0.0

    def begin(self, fleet: Snapshot) -> None:
        """A new line of turns; the line before the last one is dropped."""
        batch = Batch()
        batch.add(
            "DELETE FROM turns WHERE id < (SELECT coalesce(max(id), 0) FROM turns WHERE kind = 'begin')",
            (),
        )
        _add(batch, fleet.now, "begin", files.snapshot_document(fleet))
        self._store.defer(batch)
        self._turns = 0

    def record(self, now: float, events: Sequence[Event], plan: Plan) -> None:
        """One turn."""
        self._turns += 1
        content = [[recording.event_document(event) for event in events], recording.plan_document(plan)]
        batch = Batch()
        _add(batch, now, "turn", content if any(content) else None)
        self._store.defer(batch)

    @property
    def long(self) -> bool:
        """Whether it is time to begin anew."""
        return self._turns >= TURNS_MAX

    def remember(self, memory: Memory, now: float, soon: bool = True) -> None:
        """Write down what the brain remembers, not at every turn."""
        if soon and now - self._remembered_at < REMEMBER_S:
            return
        self._remembered_at = now
        batch = Batch()
        batch.add(
            "INSERT INTO facts(name, document) VALUES ('memory', ?) "
            "ON CONFLICT(name) DO UPDATE SET document=excluded.document",
            (json.dumps(memory.to_document(), separators=(",", ":")),),
        )
        self._store.defer(batch)


def _add(batch: Batch, now: float, kind: str, document: Any) -> None:
    content = b"" if document is None else zlib.compress(json.dumps(document, separators=(",", ":")).encode(), 1)
    batch.add("INSERT INTO turns(at, kind, content) VALUES (?, ?, ?)", (now, kind, content))


# --- reading back --------------------------------------------------------------------------------


def read(store: Store) -> tuple[Snapshot, list[Turn]]:
    """The last line of turns and the fleet it began with."""
    rows = store.rows(
        "SELECT at, kind, content FROM turns WHERE id >= "
        "(SELECT coalesce(max(id), 0) FROM turns WHERE kind = 'begin') ORDER BY id"
    )
    fleet = files.parse_snapshot(zlib.decompress(rows[0][2]).decode(), "journal", rows[0][0])
    return fleet, [_turn(at, content, fleet.topology) for at, _, content in rows[1:]]


def _turn(at: float, content: bytes, levels: tuple[str, ...]) -> Turn:
    if not content:
        return Turn(at, (), [])
    events, actions = json.loads(zlib.decompress(content))
    return Turn(at, tuple(recording.event_of(document, levels, at) for document in events), actions)


def replay(fleet: Snapshot, turns: Sequence[Turn]) -> Iterator[tuple[Turn, list[Any]]]:
    """Let the brain decide again, turn by turn; what it decides now, in the short form."""
    loop = Loop(_Nowhere(), Fleet(fleet), Memory.from_document(fleet.memory))
    for turn in turns:
        yield turn, recording.plan_document(loop.decide(turn.events, turn.now))


class _Nowhere:
    """No world at all: a replay brings its own events."""

    def wait(self) -> bool:
        """It is over."""
        return False

    def now(self) -> float:
        """Never asked."""
        return 0.0

    def observe(self) -> Sequence[Event]:
        """Nothing happens."""
        return ()

    def apply(self, plan: Plan) -> None:
        """Nothing is done."""
