"""Which jobs are laid without a trial because nothing but room has a say in it, and in which order models are tried."""

from __future__ import annotations

import pytest

from gpuyard.brain.engine import cycle
from gpuyard.brain.engine.nodes.columns import Region
from gpuyard.brain.engine.nodes.eligibility import Tier
from gpuyard.brain.engine.picture.draft import Draft, Kept
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.engine.placing import gang
from gpuyard.brain.engine.queueing import ordering
from gpuyard.brain.engine.sharing import quota
from gpuyard.model.queue import model_matches
from tests.support.moments import moment

NOW = 1_767_225_600.0
YARD = """
topology: [rack]
nodes: [{name: n, times: 2, gpus: 4, model: H100, gpu_memory: 80Gi, pool: p, domains: {rack: r}}, OTHER]
queues: [{name: q, quota: QUOTA}]
MORE
jobs: [{name: w, queue: q, WANTED}, OTHERS]
"""


def draft_of(wanted: str, others: str = "", other: str = "", more: str = "", quota: str = "8") -> Draft:
    text = YARD.replace("WANTED", wanted).replace("OTHERS", others).replace("OTHER", other).replace("MORE", more)
    return Draft(Fleet(moment(text.replace("QUOTA", quota))), Memory(), NOW)


A100 = "{name: m0, gpus: 4, model: A100, gpu_memory: 40Gi}"


def freely(draft: Draft) -> bool:
    return gang.free_tiers(draft, draft.fleet.jobs["w"]) is not None


@pytest.mark.parametrize("wanted", ["gpus: 1", "gpus: 4", "fraction: 0.5", "tasks: 1, min: 1, gpus: 2"])
def test_a_job_of_one_task_goes_where_there_is_room_and_needs_no_trial(wanted: str):
    draft = draft_of(wanted)
    assert freely(draft)
    assert gang.start(draft, draft.fleet.jobs["w"])
    assert draft.before == {"w": ()}
    assert len(draft.tx) == 1


@pytest.mark.parametrize(
    ("wanted", "around"),
    [
        ("gpus: 1, tasks: 2", {}),
        ("gpus: 1, tasks: 2, min: 1", {}),
        ("gpus: 1, tasks: 1, at: 'n0:0'", {}),
        ("gpus: 1, topology: {required: rack}", {}),
        ("gpus: 1, topology: {preferred: rack}", {}),
        ("groups: [{name: a, tasks: 1, gpus: 1}, {name: b, tasks: 1, gpus: 1}]", {}),
        ("groups: [{name: a, tasks: 1, gpus: 1, topology: {required: node}}]", {}),
        ("groups: [{name: a, tasks: 1, min: 1, gpus: 1, absent: 1}]", {}),
        ("gpus: 1, class: inference", {}),
        ("gpu_memory: 20Gi", {}),
        ("gpus: 1", {"quota": "{gpu: 8, cpu: 64}"}),
        ("gpus: 1", {"other": "{name: m0, gpus: 1, health: {'0': suspect}}"}),
        ("gpus: 1", {"others": "{name: x, queue: q, avoid: {level: node, queues: [q]}, at: 'n0:0'}"}),
        ("gpus: 1, avoid: {level: node, queues: [q]}", {}),
        ("gpus: 1", {"more": "pools: [{name: p, max_busy: {rack: 6}}]"}),
        ("groups: [{name: o, topology: {required: nvlink}, groups: [{name: a, tasks: 1, gpus: 1}]}]", {}),
    ],
)
def test_more_is_asked_where_somebody_else_or_something_else_has_a_say(wanted: str, around: dict[str, str]):
    assert not freely(draft_of(wanted, **around))


EQUALS = "{name: x, queue: q, gpus: 1}, {name: y, queue: q, gpus: 1}"


def started(draft: Draft) -> int:
    """How many start; jobs alike are asked once how they may go."""
    cycle.start_all(draft)
    return sum(bool(row.held) for row in draft.fleet.jobs.values())


def test_jobs_alike_are_asked_once_on_which_models_they_go_and_each_by_its_queue(monkeypatch: pytest.MonkeyPatch):
    asked, found = list[str](), gang.free_tiers

    def noted(draft: Draft, row: JobRow) -> tuple[Tier, ...] | None:
        asked.append(row.name)
        return found(draft, row)

    monkeypatch.setattr(gang, "free_tiers", noted)
    assert started(draft_of("gpus: 1", EQUALS)) == 3
    assert asked == ["w"]
    limited = draft_of("gpus: 1", EQUALS, quota="8, limit: 2")
    assert started(limited) == 2
    assert limited.waits.of("y") is not None


@pytest.mark.parametrize(("wanted", "others"), [("gpus: 1, held: true", ""), ("gpus: 1", EQUALS)])
def test_who_is_held_back_or_meets_a_reservation_is_asked_all_that_there_is_to_ask(wanted: str, others: str):
    draft = draft_of(wanted, others)
    if others:
        kept = draft.fleet.jobs["y"]
        draft.kept["y"] = Kept(kept, (), None, False, kept)
    (bucket,) = ordering.buckets(draft.fleet)
    assert cycle._free_tiers(draft, bucket) is None


@pytest.mark.parametrize("wanted", ["gpus: 1, models: [A100, H100]", "gpus: 1, class: batch"])
def test_models_that_have_an_order_are_tried_in_it(wanted: str):
    draft = draft_of(wanted, other=A100)
    names = draft.fleet.columns.models
    tiers = gang.free_tiers(draft, draft.fleet.jobs["w"])
    assert tiers is not None
    assert [[names[i] for i in tier] for tier in tiers] == [["A100"], ["H100"]]


def test_a_task_is_packed_anywhere_only_if_it_may_go_everywhere():
    draft = draft_of("gpus: 1, tasks: 2")
    row, everywhere = draft.fleet.jobs["w"], draft.fleet.columns.everywhere
    assert gang._goes_freely(draft, row, 0, everywhere)
    assert not gang._goes_freely(draft, row, 0, Region(0, 1))
    row.live = (1,)
    assert not gang._goes_freely(draft, row, 0, everywhere)


@pytest.mark.parametrize(
    ("tasks", "order"),
    [
        (2, ["H100", "A100"]),  # both hold them all, the one with less room comes first
        (4, ["A100", "H100"]),  # only one does
        (9, ["A100", "H100"]),  # none does: the one that holds most
        (3, ["H100", "A100"]),
    ],
)
def test_without_a_preference_the_model_with_least_room_that_holds_all_comes_first(tasks: int, order: list[str]):
    other = "{name: m, times: 2, gpus: 4, model: A100, gpu_memory: 40Gi}"
    full = "{name: x, queue: q, gpus: 4, at: 'n0:0-3'}, {name: y, queue: q, gpus: 1, at: 'n1:0'}"
    draft = draft_of(f"gpus: 1, tasks: {tasks}", others=full, other=other)
    row, shapes = draft.fleet.jobs["w"], draft.fleet.shapes
    tiers = gang._tightest_first(draft, row, 0, shapes.tiers(row.request, False))
    assert [draft.fleet.columns.models[i] for tier in tiers for i in tier] == order


def test_so_many_tasks_have_room_in_a_region_or_not():
    draft = draft_of("gpus: 2, tasks: 2", others="{name: x, queue: q, gpus: 3, at: 'n0:0-2'}")
    (shape,) = gang.shapes(draft, draft.fleet.jobs["w"], 0)
    assert [gang._has_room(shape, Region(0, 2), count) for count in (1, 2, 3)] == [True, True, False]
    assert [gang._has_room(shape, Region(0, 1), count) for count in (0, 1)] == [True, False]


def test_a_model_is_matched_with_those_that_quotas_name_once(monkeypatch: pytest.MonkeyPatch):
    asked: list[tuple[str, str]] = []

    def noted(wanted: str, model: str) -> bool:
        asked.append((wanted, model))
        return model_matches(wanted, model)

    monkeypatch.setattr(quota, "model_matches", noted)
    tree = draft_of("gpus: 1", quota="{H100: 4, A100: 2}").fleet.tree
    assert [tree.resources[i] for i in tree.model_slots("A100-SXM4-40GB")] == ["A100"]
    asked.clear()
    assert [tree.resources[i] for i in tree.model_slots("A100-SXM4-40GB")] == ["A100"]
    assert tree.vector(3, 0, 0, "H100") == [3, *(3 if name == "H100" else 0 for name in tree.resources[1:])]
    assert asked == []
