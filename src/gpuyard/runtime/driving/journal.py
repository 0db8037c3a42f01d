"""Every turn of the loop written down: what was seen, what was decided. Replayed, the brain decides the same.

The loop calls `record` before a plan is applied, so a turn is kept together with the first thing it changes. A line of
turns begins with the fleet as it was and no jobs; whatever ran then is the first thing that was seen. Where it is kept
is the `Archive`'s business.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gpuyard import files
from gpuyard.brain.decide import decide, observe
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.model.actions import Plan
from gpuyard.model.events import Event
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.driving import recording
from gpuyard.worlds.base import Archive

TURNS_MAX = 20_000
"""After so many turns a new line begins, so that the archive does not grow for ever."""

REMEMBER_S = 5.0
"""How often what the brain remembers is written down; a crash forgets no more than that."""

MEMORY = "memory"


class Turn(NamedTuple):
    """One recorded turn; the plan in its short form."""

    now: float
    events: tuple[Event, ...]
    actions: list[Any]


class Journal:
    """Turns and memory, in an archive."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._turns = 0
        self._remembered_at = 0.0

    def memory(self) -> tuple[Memory, dict[str, str]]:
        """What the brain remembered when it was last written down, and why parts of it cannot be read."""
        kept = self._archive.kept(MEMORY) or {}
        if not isinstance(kept, Mapping):
            raise ValueError("what is remembered is no mapping")
        return Memory.recalled(kept)

    def begin(self, fleet: Snapshot) -> None:
        """A new line of turns."""
        self._archive.begin(fleet.now, _packed(files.snapshot_document(fleet)))
        self._turns = 0

    def record(self, now: float, events: Sequence[Event], plan: Plan) -> None:
        """One turn."""
        self._turns += 1
        content = [[recording.event_document(event) for event in events], recording.plan_document(plan)]
        self._archive.append(now, _packed(content) if any(content) else b"")

    @property
    def long(self) -> bool:
        """Whether it is time to begin anew."""
        return self._turns >= TURNS_MAX

    def remember(self, memory: Memory, now: float, soon: bool = True) -> None:
        """Write down what the brain remembers, not at every turn."""
        if not soon or now - self._remembered_at >= REMEMBER_S:
            self._remembered_at = now
            self._archive.keep(MEMORY, memory.to_document())


def _packed(document: Any) -> bytes:
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode(), 1)


# --- reading back --------------------------------------------------------------------------------


def read(archive: Archive) -> tuple[Snapshot, list[Turn]]:
    """The last line of turns and the fleet it began with."""
    (begun, first), *turns = archive.last_line()
    fleet = files.parse_snapshot(zlib.decompress(first).decode(), "journal", begun)
    return fleet, [_turn(at, content, fleet.topology) for at, content in turns]


def _turn(at: float, content: bytes, levels: tuple[str, ...]) -> Turn:
    if not content:
        return Turn(at, (), [])
    events, actions = json.loads(zlib.decompress(content))
    return Turn(at, tuple(recording.event_of(document, levels, at) for document in events), actions)


def replay(moment: Snapshot, turns: Sequence[Turn]) -> Iterator[tuple[Turn, list[Any]]]:
    """Let the brain decide again, turn by turn; what it decides now, in the short form."""
    fleet, memory = Fleet(moment), Memory.from_document(moment.memory)
    for turn in turns:
        memory, _ = observe(fleet, memory, turn.events, turn.now)
        plan, memory = decide(fleet, memory, turn.now)
        yield turn, recording.plan_document(plan)
