"""What the brain remembers and the short ways it takes: counted, for one that is never taken changes no plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from gpuyard.brain.engine.cycle import open_draft
from gpuyard.brain.engine.explaining import explain
from gpuyard.brain.engine.giving_way import clearing
from gpuyard.brain.engine.giving_way.claims import Claim
from gpuyard.brain.engine.giving_way.preemption import Takers
from gpuyard.brain.engine.picture import draft as drafts
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.engine.placing import gang, neighbours, topology
from gpuyard.brain.engine.settling import keeping_places
from gpuyard.brain.engine.sharing import quota
from gpuyard.model.reasons import Code, Explanation, Reason
from tests.support.moments import moment

NOW = 1_767_225_600.0

Count = Callable[[Any, str], Counter[str]]


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Count:
    """Counts how often something is asked from now on."""

    def counted(owner: Any, name: str) -> Counter[str]:
        times: Counter[str] = Counter()
        asked = getattr(owner, name)

        def noted(*given: Any, **named: Any) -> Any:
            times[name] += 1
            return asked(*given, **named)

        monkeypatch.setattr(owner, name, noted)
        return times

    return counted


def draft_of(text: str) -> Draft:
    return open_draft(Fleet(moment(text)), Memory(), NOW)


def test_which_quotas_a_model_counts_in_is_worked_out_once(count: Count):
    tree = Fleet(moment("nodes: [{name: n0, gpus: 4}]\nqueues: [{name: q, quota: {gpu: 4, A100: 2}}]")).tree
    times = count(quota, "model_matches")
    told = [tree.model_slots("A100-80GB") for _ in range(3)]
    assert told[0] == told[1] == told[2] == [tree.resources.index("A100")]
    assert times["model_matches"] == 1


def test_a_trial_that_told_nobody_to_wait_leaves_what_is_known_of_those_who_do(count: Count):
    draft = draft_of("nodes: [{name: n0, gpus: 4}]\njobs: [{name: w, gpus: 8}]")
    row = draft.fleet.jobs["w"]
    draft.wait((row,), Reason(Code.NOT_ENOUGH_GPUS))
    before = draft.waits.of("w")
    times = count(type(draft.waits), "rollback")
    with draft.trial():
        pass
    assert times["rollback"] == 0
    with draft.trial():
        draft.wait((row,), Reason(Code.FRAGMENTED))
    assert (times["rollback"], draft.waits.of("w")) == (1, before)


def test_what_is_free_is_written_down_whole_only_the_first_time(count: Count):
    draft = draft_of("nodes: [{name: n0, gpus: 4}]")
    times = count(drafts, "FreeBefore")
    for _ in range(3):
        draft.note_free()
    assert times["FreeBefore"] == 1


@pytest.mark.parametrize(
    ("job", "tried"),
    [
        ("gpus: 1", False),
        ("gpus: 4", False),
        ("fraction: 0.5", False),
        ("gpus: 1, tasks: 2", True),
        ("gpus: 1, topology: {required: nvlink}", True),
        ("groups: [{name: g, tasks: 1, gpus: 1}, {name: h, tasks: 1, gpus: 1}]", True),
    ],
)
def test_a_job_of_one_task_that_only_needs_room_starts_without_a_trial(job: str, tried: bool, count: Count):
    draft = draft_of(f"nodes: [{{name: n0, gpus: 4}}]\njobs: [{{name: w, {job}}}]")
    times = count(Draft, "trial")
    assert gang.start(draft, draft.fleet.jobs["w"])
    assert (times["trial"] > 0) == tried


CROWDED = """
nodes: [{name: n, times: 6, gpus: 2}]
queues: [{name: q, quota: 12}]
jobs:
  - {name: "low{i}", times: 6, queue: q, priority: 10, started: -2h, submitted: -3h, at: "n{i}:0-1"}
  - {name: claim, queue: q, priority: 90, gpus: 2}
"""


def test_a_claim_works_out_whom_to_take_on_the_cheapest_node_and_not_on_all(count: Count):
    draft = draft_of(CROWDED)
    row = draft.fleet.jobs["claim"]
    times = count(clearing, "cheapest_set")
    takers = Takers(Claim(draft, row, draft.fleet.shortfall(row)))
    nodes = clearing.NodeClearing(draft, takers, next(gang.shapes(draft, row, 0)), draft.fleet.columns.everywhere)
    assert times["cheapest_set"] == 0
    found = nodes.next()
    assert found is not None
    assert times["cheapest_set"] < 6


def test_who_is_explained_first_is_told_what_was_found_and_the_others_the_same_by_their_name():
    fleet = Fleet(moment('nodes: [{name: n0, gpus: 1}]\njobs: [{name: "w{i}", times: 2, gpus: 2}]'))
    found = Explanation("w0", Reason(Code.NOT_ENOUGH_GPUS, message="w0 needs 2 GPUs"))
    first, second = explain.for_all(found, (fleet.jobs["w0"], fleet.jobs["w1"]))
    assert first is found
    assert (second.job, second.reason.message) == ("w1", "w1 needs 2 GPUs")


NESTED = """
topology: [rack]
nodes:
  - {name: n0, gpus: 4, domains: {rack: r0}}
  - {name: n1, gpus: 4, domains: {rack: r0}}
  - {name: n2, gpus: 4, domains: {rack: r1}}
  - {name: n3, gpus: 4, domains: {rack: r1}}
jobs:
  - {name: a, gpus: 1, started: "2025-12-31T00:00:00Z", placements: [{node: n0, gpus: [0]}]}
  - {name: b, gpus: 1, started: "2025-12-31T00:00:00Z", placements: [{node: n2, gpus: [0]}]}
  - name: two-replicas
    class: inference
    MORE
    groups:
      - name: replica-0
        groups: [{name: head-0, gpus: 1}, {name: tail-0, tasks: 3, gpus: 1}]
        topology: {required: node}
      - name: replica-1
        groups: [{name: head-1, gpus: 1}, {name: tail-1, tasks: TASKS, gpus: 4}]
"""


def placed(text: str) -> bool:
    draft = draft_of(text)
    with draft.trial():
        return gang.place(draft, draft.fleet.jobs["two-replicas"])


def test_a_nested_gang_whose_neighbours_leave_it_no_room_is_refused_before_a_task_is_laid(count: Count):
    laid, asked = count(topology, "lay"), count(neighbours, "_limits")
    avoids = NESTED.replace("MORE", "avoid: {level: rack, queues: [default]}").replace("TASKS, gpus: 4", "1, gpus: 2")
    assert not placed(avoids)
    assert placed(avoids.replace("rack, queues", "node, queues"))
    laid.clear()
    asked.clear()
    assert not placed(avoids)
    assert (laid["lay"], asked["_limits"]) == (0, 4)


def test_a_part_of_a_gang_that_found_no_room_somewhere_is_not_laid_there_again(count: Count):
    laid = count(gang, "lay_group")
    anywhere = NESTED.replace("MORE", "")
    assert placed(anywhere.replace("TASKS", "1"))
    laid.clear()
    assert not placed(anywhere.replace("TASKS", "2"))
    assert laid["lay_group"] == 6


@pytest.mark.parametrize(("moved", "tries"), [("a", 1), ("ab", 3)])
def test_whoever_was_moved_is_tried_together_and_several_also_one_by_one(
    moved: str, tries: int, count: Count, monkeypatch: pytest.MonkeyPatch
):
    jobs = ", ".join(f'{{name: {name}, gpus: 1, started: -1h, at: "n:{i}"}}' for i, name in enumerate(moved))
    draft = Draft(Fleet(moment(f"nodes: [{{name: n, gpus: 4}}]\njobs: [{jobs}]")), Memory(), NOW)
    monkeypatch.setattr(keeping_places, "_back_around", lambda *_: False)
    tried = count(keeping_places, "_all_back")
    before = {name: (draft.fleet.jobs[name].held[0]._replace(gpus=(i + 2,)),) for i, name in enumerate(moved)}
    assert not keeping_places.keep_places(draft, before)
    assert tried["_all_back"] == tries
