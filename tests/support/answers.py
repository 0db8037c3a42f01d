"""Answers that are kept: what each moment was planned to when somebody last looked, part by part, as short digests.

Scenarios say what must be; this says what is. A change that was meant to change nothing shows here if it does, down to
the last number of a reason; one that was meant to is kept by `make answers`, and the review sees which moments it
touched. `yards.jsonl` holds moments drawn at random, rich in what scenarios leave out, one a line; `corners` are drawn
from numbers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from gpuyard.brain import foresee
from gpuyard.brain.decide import decide
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.files import parse_snapshot
from gpuyard.model.answers.outlook import Outlook
from gpuyard.model.job import TaskGroup
from gpuyard.model.resources import WHOLE, Request
from gpuyard.model.snapshot import Snapshot
from tests.support import corners, newcomers, work
from tests.support.scenario import load_all

FOLDER = Path(__file__).resolve().parent.parent / "answers"
YARDS = FOLDER / "yards.jsonl"
KEPT = FOLDER / "kept.txt"
OUTLOOK = ("actions", "waiting", "running", "queues", "fragmentation", "deadlocks", "cycles", "bill")
PAIR, PART = TaskGroup(request=Request(gpus=2)), TaskGroup(request=Request(share=WHOLE // 4))


def at_once(snapshot: Snapshot) -> object:
    """What a live world would be told."""
    plan, memory = decide(Fleet(snapshot), Memory.from_document(snapshot.memory), snapshot.now)
    return plan.actions, tuple(plan.waiting), plan.deadlocks, plan.proposed, plan.alerts, plan.look_again_at, memory


LATER_S = (15.0, 400.0, 90_000.0)
"""Seconds after which a yard that nobody touched is looked at again: each wakes other controllers."""


def later(snapshot: Snapshot) -> object:
    """What a live world would be told as time goes by if nothing of it came to pass."""
    fleet, memory = Fleet(snapshot), Memory.from_document(snapshot.memory)
    told: list[object] = []
    for after_s in LATER_S:
        plan, memory = decide(fleet, memory, snapshot.now + after_s)
        told.append((plan.actions, tuple(plan.waiting), plan.proposed, plan.alerts, plan.look_again_at, memory))
    return told


LOOKS: dict[str, Callable[[Snapshot], object]] = {
    "at once": at_once,
    "defrag": foresee.defrag,
    "drained": foresee.drainage,
    "fits": lambda snapshot: [foresee.fits(snapshot, group) for group in (PAIR, PART)],
    "alerts": foresee.alerts,
    "later": later,
    "newcomers": newcomers.told,
}
"""What else is asked of a drawn moment."""

PARTS = (*OUTLOOK, *LOOKS)
ASKED = ("outlook", *LOOKS)
"""What a drawn moment is asked, one question after the other."""

Answer = dict[str, str]
"""A digest per part."""


def digest(value: object) -> str:
    return sha256(repr(plain(value)).encode()).hexdigest()[:8]


def plain(value: Any) -> Any:
    """The value as lists, without fields that say nothing: a field that comes new to a class changes no answer."""
    if is_dataclass(value):
        told = [(each.name, getattr(value, each.name), each) for each in fields(value)]
        return [type(value).__name__, *((name, plain(said)) for name, said, each in told if said != unsaid(each))]
    if isinstance(value, Mapping):
        return sorted((str(key), plain(each)) for key, each in value.items())
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def unsaid(each: Field[Any]) -> Any:
    """What the field holds where nobody said anything."""
    return each.default if each.default_factory is MISSING else each.default_factory()


def of_outlook(outlook: Outlook) -> Answer:
    return {part: digest(getattr(outlook, part)) for part in OUTLOOK}


def to_question(snapshot: Snapshot, asked: str) -> Answer:
    """What is answered to one of the questions."""
    return {asked: digest(LOOKS[asked](snapshot))} if asked in LOOKS else of_outlook(foresee.outlook(snapshot))


def changes_of_yard(name: str, snapshot: Snapshot) -> list[str]:
    """What is other than is kept, question by question."""
    return [told for asked in ASKED for told in changes_to_question(name, snapshot, asked)]


def changes_to_question(name: str, snapshot: Snapshot, asked: str) -> list[str]:
    if not work.is_kept(name, asked):
        return differences(name, to_question(snapshot, asked))
    answer, steps = work.counted(lambda: to_question(snapshot, asked))
    return [*differences(name, answer), *work.differences(f"{name}, {asked}", steps)]


def differences(name: str, answer: Answer) -> list[str]:
    """The parts that are not as they are kept; a moment that nobody has kept yet differs in nothing."""
    before = kept().get(name)
    if before is None:
        return []
    old = dict(zip(PARTS, before, strict=False))
    parts = [part for part, said in answer.items() if said != old.get(part)]
    return (
        []
        if not parts
        else [f"other {', '.join(parts)} than is kept in tests/answers: if that is right, `make answers` keeps it"]
    )


@cache
def kept() -> dict[str, list[str]]:
    """Digests by the moment's name."""
    lines = KEPT.read_text(encoding="utf-8").splitlines() if KEPT.exists() else []
    return {name: digests.split() for digests, _, name in (line.partition(" | ") for line in lines)}


def yards() -> Iterator[tuple[str, Snapshot]]:
    """The moments that were drawn."""
    for i, line in enumerate(YARDS.read_text(encoding="utf-8").splitlines()):
        yield f"yard {i}", yard(line)
    for number in range(corners.COUNT):
        yield f"corner {number}", corner(number)


def yard(line: str) -> Snapshot:
    return parse_snapshot(line, "yard", 0.0)


def corner(number: int) -> Snapshot:
    return parse_snapshot(json.dumps(corners.corner(number)), "corner", 0.0)


def keep() -> int:
    """Write down what is answered now."""
    found: dict[str, Answer] = {}
    steps: dict[str, work.Counted] = {}
    for name, snapshot in yards():
        found[name] = {}
        for asked in ASKED:
            answer, taken = work.counted(lambda: to_question(snapshot, asked))  # noqa: B023 - called at once
            found[name] |= answer
            if work.is_kept(name, asked):
                steps[f"{name}, {asked}"] = taken
    for scenario in load_all():
        snapshot = parse_snapshot(scenario.text(), scenario.file, scenario.now)
        found[scenario.name] = of_outlook(foresee.outlook(snapshot, cycles=scenario.cycles))
    changed = sum(list(answer.values()) != kept().get(name) for name, answer in found.items())
    lines = [f"{' '.join(answer.values())} | {name}" for name, answer in sorted(found.items())]
    KEPT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} answers are kept, {changed} of them new or other than before")
    print(f"{len(steps)} counts of work are kept, {work.keep(steps)} of them new or other than before")
    return 0


if __name__ == "__main__":
    sys.exit(keep())
