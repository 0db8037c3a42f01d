"""What the brain remembers is complete on a round trip, part by part."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.brain import decide
from gpuyard.brain.controllers.alarms.remembering import Told
from gpuyard.brain.engine.defrag.asked import AskedShape
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Evictions, Memory, Part, TimeSlices
from gpuyard.model.alerts import Alert, AlertKind, Severity, alert_of
from gpuyard.model.errors import Refused
from gpuyard.model.node import Gpu, Node
from gpuyard.model.snapshot import Snapshot

assert decide.STEPS, "importing it makes every part known"

MOMENTS = st.floats(0, 4e9, allow_nan=False)
NAMES = st.text(min_size=1, max_size=8)
ALERTS = st.builds(
    Alert, NAMES, st.sampled_from(AlertKind), st.sampled_from(Severity), MOMENTS, NAMES, NAMES, st.integers(1, 9),
    st.dictionaries(NAMES, NAMES, max_size=2).map(lambda about: tuple(about.items())),
    st.lists(NAMES, max_size=2).map(tuple),
)  # fmt: skip
SHAPES = st.builds(
    AskedShape, st.integers(1, 10**9), st.integers(1, 99), st.sampled_from(("", "rack")), st.just(())
).map(lambda shape: shape.key)
BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "Times": st.dictionaries(NAMES, st.lists(MOMENTS, min_size=1, max_size=3).map(tuple), max_size=3),
    "Mapping[str, float]": st.dictionaries(NAMES, MOMENTS, max_size=3),
    "Mapping[str, Alert]": st.dictionaries(NAMES, ALERTS, max_size=2),
    "Mapping[str, Told]": st.dictionaries(
        NAMES, st.builds(Told, MOMENTS, NAMES, st.booleans(), NAMES, NAMES), max_size=2
    ),
    "Mapping[str, Mapping[str, float]]": st.dictionaries(
        SHAPES, st.dictionaries(st.integers(0, 10**6).map(str), MOMENTS, min_size=1, max_size=2), max_size=2
    ),
    "Mapping[str, Mapping[str, Any]]": st.dictionaries(
        NAMES, st.fixed_dictionaries({"free": st.integers(0, 9)}), max_size=2
    ),
    "Mapping[str, tuple[tuple[float, float], ...]]": st.dictionaries(
        NAMES, st.lists(st.tuples(MOMENTS, MOMENTS), min_size=1, max_size=2).map(tuple), max_size=2
    ),
    "Mapping[str, Headway]": st.dictionaries(NAMES, st.tuples(*([MOMENTS] * 6)), max_size=2),
    "float | None": st.none() | MOMENTS,
    "float": MOMENTS,
    "int": st.integers(0, 10**6),
    "tuple[str, ...]": st.lists(NAMES, max_size=3).map(tuple),
}


def some(kind: type[Part]) -> st.SearchStrategy[Part]:
    """Any value of a part; a field of a new type needs a line above."""
    return st.builds(kind, **{each.name: BY_TYPE[str(each.type)] for each in fields(kind)})  # type: ignore[arg-type]


PARTS = sorted(name for name in Part.kinds if name not in ("nothing", "toy"))


@pytest.mark.parametrize("name", PARTS)
@given(data=st.data())
def test_every_part_reads_back_as_it_was_written(name: str, data: st.DataObject):
    part = data.draw(some(Part.kinds[name]))
    memory = Memory().keeping(part)
    document = json.loads(json.dumps(memory.to_document()))
    again = Memory.from_document(document)
    assert again == memory
    assert again.of(type(part)) == part
    assert again.to_document() == document


def test_what_nobody_here_knows_is_kept_as_it_was_read():
    document = {"health": {"n0": [1, "two"]}, "evictions": {"a": [1.0]}}
    memory = Memory.from_document(document)
    assert memory.of(Evictions).times == {"a": (1.0,)}
    assert memory.to_document() == dict(sorted(document.items()))


def test_a_part_that_remembers_nothing_is_not_kept():
    memory = Memory().keeping(TimeSlices(5.0))
    assert memory.of(TimeSlices).weighed_at == 5.0
    assert memory.keeping(TimeSlices()) == Memory()


@pytest.mark.parametrize("broken", [{}, {"key": "a"}, {"kind": "no such kind"}])
def test_alerts_that_cannot_be_read_are_refused_as_a_whole(broken: dict[str, Any]):
    whole = {"key": "a", "kind": "wait", "severity": "info", "since": 1.0, "sentence": "s", "command": "c"}
    assert alert_of(whole).key == "a"
    with pytest.raises(ValueError):
        alert_of(whole | broken if "kind" in broken else broken)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("evictions", {"x": ["yesterday"]}), ("evictions", {"times": {"a": [1.0]}, "new": 5}), ("evictions", 7),
        ("evictions", {"x": [float("nan")]}), ("evictions", {"x": [True]}), ("defragmentation", "yesterday"),
        ("alerts", {"looked_at": "x"}), ("alerts", []), ("alerts", {"told": {"a": [1.0, "code"]}}),
        ("alerts", {"alerts": {"a": {"key": "a"}}}), ("alerts", {"alerts": {"a": "b"}}),
        ("asked", {"gpus": {"8000|no number||": {"1": 1.0}}}), ("asked", {"gpus": {"8000|1|": {"soon": 1.0}}}),
        ("time_slices", "soon"), ("progress", {"jobs": {"a": [1.0]}}),
    ],
)  # fmt: skip
def test_a_part_that_is_not_as_it_was_written_is_left_out_and_told_and_the_others_stay(part: str, value: Any):
    memory, unreadable = Memory.recalled({part: value, "durations": {"default/training": [9.0]}})
    assert list(unreadable) == [part]
    assert memory.to_document() == {"durations": {"default/training": [9.0]}}
    with pytest.raises(Refused, match=part):
        Memory.from_document({part: value})
    fleet = Fleet(Snapshot(nodes=(Node("n0", gpus=(Gpu(0),)),)))
    assert decide.decide(fleet, memory, 1.0).plan.actions == ()
