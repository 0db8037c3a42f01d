"""What was worked out once is handed out again, the very same: nobody pays for it twice while nothing has changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from gpuyard.brain.engine.explaining.explain import Explainer
from gpuyard.brain.engine.giving_way import victims
from gpuyard.brain.engine.giving_way.claims import Claim
from gpuyard.brain.engine.nodes.layout import device_masks
from gpuyard.brain.engine.nodes.requests import STATIC_CHECKERS
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.model.reasons import Code, Reason
from tests.support.moments import moment

NOW = 1_767_225_600.0
YARD = """
nodes: [{name: n, times: 2, gpus: 4, extras: {adapters: 3}}]
queues: [{name: a, quota: 6}, {name: b, quota: 2}]
jobs:
  - {name: x, queue: b, gpus: 2, at: "n0:0-1"}
  - {name: y, queue: b, gpus: 4, at: "n1:0-3"}
  - {name: w, queue: a, gpus: 3}
"""


def draft_of() -> Draft:
    return Draft(Fleet(moment(YARD)), Memory(), NOW)


def row(draft: Draft) -> JobRow:
    return draft.fleet.jobs["w"]


def claim(draft: Draft) -> Claim:
    return Claim(draft, row(draft), draft.fleet.shortfall(row(draft)))


def waits(draft: Draft) -> Draft:
    draft.wait((row(draft),), Reason(Code.NOT_ENOUGH_GPUS, message="waits"))
    return draft


ASKED: dict[str, Callable[[Draft], Callable[[], object]]] = {
    "tiers of models": lambda draft: lambda: draft.fleet.shapes.tiers(row(draft).request, True),
    "nodes that suit": lambda draft: lambda: draft.fleet.shapes.static(row(draft).request, STATIC_CHECKERS),
    "kinds of nodes": lambda draft: lambda: draft.fleet.shapes.kinds_for(row(draft).request)[0],
    "the share of a device": lambda draft: lambda: draft.fleet.shapes.need(row(draft).request),
    "room on empty nodes": lambda draft: lambda: draft.fleet.shapes.room_when_empty(row(draft).request),
    "further resources": lambda draft: lambda: draft.fleet.columns.extras.free("adapters"),
    "a compiled request": lambda draft: lambda: draft.fleet.request(row(draft).job, row(draft).group),
    "least costs": lambda draft: lambda: draft.fleet.costs.least(row(draft).request),
    "fair shares": lambda draft: lambda: draft.shares,
    "dues": lambda draft: lambda: draft.dues,
    "profiles": lambda draft: lambda: victims.profile(draft, draft.fleet.jobs["x"]),
    "who stands in a line": lambda draft: next(iter(draft.fleet.rolls.waiting_lines)).rows,
    "where queues part": lambda draft: partial(claim(draft).reclaim.parting, draft.fleet.tree.index["b"]),
    "whom a claim may take from": lambda draft: claim(draft).footings,
    "who could be moved": lambda draft: Explainer(draft, [], lambda _: True)._movable,
}


@pytest.mark.parametrize("what", ASKED)
def test_what_is_asked_twice_is_worked_out_once(what: str):
    ask = ASKED[what](draft_of())
    assert ask() is ask()


def test_a_shape_and_its_room_when_empty_are_made_once():
    draft = draft_of()
    shapes, request = draft.fleet.shapes, row(draft).request
    (tier,) = shapes.tiers(request, True)
    assert shapes.get(request, tier) is shapes.get(request, tier)
    assert shapes.get(request, tier) is not shapes.get(request, tier, careful=True)
    assert shapes.get(request, tier).empty_room is shapes.get(request, tier).empty_room


def test_reasons_are_told_once_until_another_is_noted():
    draft = waits(draft_of())
    told = draft.waits._all()
    assert [each.job for each in told] == ["w"]
    assert draft.waits._all() is told
    draft.wait((draft.fleet.jobs["x"],), Reason(Code.NOT_ENOUGH_GPUS, message="waits too"))
    assert [each.job for each in draft.waits._all()] == ["w", "x"]


def test_what_is_free_is_noted_in_one_place_and_the_largest_gangs_are_counted_once():
    draft = draft_of()
    draft.note_free()
    first = draft._free
    draft.note_free()
    assert draft._free is first
    assert draft.largest_gang(draft.fleet.tree.index["b"]) // draft.fleet.jobs["x"].cost() == 2
    counted = draft._largest
    draft.largest_gang(draft.fleet.tree.index["a"])
    assert draft._largest is counted


def test_nodes_with_the_same_gpus_share_what_is_worked_out_of_them():
    node, *_ = draft_of().fleet.columns.nodes
    first, second = device_masks.masks_of((node, replace(node, name="other")))
    assert first is second
