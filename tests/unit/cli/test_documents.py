"""The JSON of plans and reasons: keys are part of the contract."""

from __future__ import annotations

from gpuyard.cli.rendering.documents import action_document, plan_document, reason_document
from gpuyard.model.actions import Cordon, Drain, Evict, Reserve, Scale, Start, Terminate
from gpuyard.model.job import Placement
from gpuyard.model.reasons import Code, Outcome, Reason
from gpuyard.model.resources import UNLIMITED, WHOLE
from tests.unit.cli.hand_made import NOW, OUTLOOK, placed

TIMING = {"read_ms": 1.0, "decide_ms": 0.4, "cycles": 2}
FITS = Reason(Code.FITS)
PLAN = plan_document(OUTLOOK, TIMING)


def test_a_plan_has_the_keys_of_the_contract_in_their_order():
    assert list(PLAN) == ["actions", "waiting", "running", "queues", "fragmentation", "deadlocks", "timing"]
    assert PLAN["timing"] == TIMING


def test_an_eviction_names_the_job_it_makes_room_for():
    assert PLAN["actions"][0] == {
        "action": "evict",
        "job": "old",
        "for": "llm",
        "reason": {"code": "Preempted", "message": "llm has a higher priority"},
    }


def test_an_eviction_of_some_members_lists_them():
    document = action_document(Evict("old", Reason(Code.RECLAIMED), placements=(placed("n0", 1, task=1),)))
    assert document["placements"] == [{"group": "main", "task": 1, "node": "n0", "gpus": [1]}]
    assert "for" not in document


def test_a_move_says_from_where_to_where():
    move = PLAN["actions"][1]
    assert move["from"] == [{"group": "main", "task": 0, "node": "n1", "gpus": [2, 3]}]
    assert move["to"] == [{"group": "main", "task": 0, "node": "n2", "gpus": [2, 3]}]


def test_a_start_waits_for_those_it_comes_after():
    start = PLAN["actions"][2]
    assert start["after"] == ["old", "prep"]
    assert [place["node"] for place in start["placements"]] == ["n0", "n1"]


def test_a_start_that_waits_for_nobody_has_no_after():
    assert "after" not in action_document(Start("a", (placed("n0", 0),), FITS))


def test_a_placement_names_its_slices_only_where_it_has_some():
    sliced = Placement("n0", (0, 0), mig=("1g.10gb", "1g.10gb"))
    document = action_document(Start("a", (sliced,), FITS))
    assert document["placements"][0]["mig"] == ["1g.10gb", "1g.10gb"]
    assert "mig" not in PLAN["actions"][2]["placements"][0]


def test_the_other_actions_name_what_they_are_about():
    made = [
        action_document(action)
        for action in (
            Terminate("a", FITS),
            Reserve("a", (), NOW, FITS),
            Cordon("n0", FITS, gpu=0),
            Drain("n0", FITS),
            Scale("h100", 4, FITS),
        )
    ]
    for document in made:
        document.pop("reason")
    assert made == [
        {"action": "terminate", "job": "a"},
        {"action": "reserve", "job": "a", "placements": [], "until": "2026-01-01T00:00:00Z"},
        {"action": "cordon", "node": "n0", "gpu": 0},
        {"action": "drain", "node": "n0"},
        {"action": "scale", "pool": "h100", "nodes": 4},
    ]


def test_a_waiting_job_carries_its_reason_with_suggestions_and_the_ladder():
    waiting = PLAN["waiting"][0]
    assert waiting["reason"] == {
        "code": "Fragmented",
        "message": "needs 8 GPUs in one node; 32 are free, but at most 4 together.",
        "needed": 8,
        "free": 32,
        "largest_fit": 4,
        "outcome": "not now",
        "where": "node",
        "suggestions": [{"change": "it asked for 4 GPUs a task", "kind": "size", "effect": "3 places open up"}],
    }
    assert waiting["ladder"][1] == {
        "rung": "fragmentation",
        "holds": False,
        "nodes": 3,
        "note": "at most 4 of 8 GPUs together",
    }
    assert [(other["job"], other["must"], other["gpus"]) for other in waiting["in_the_way"]] == [("old", "stop", 1)]


def test_a_reason_leaves_out_what_is_not_known():
    document = reason_document(Reason(Code.SHAPE_IMPOSSIBLE, Outcome.NEVER, needed=16 * WHOLE, message="no"))
    assert document == {"code": "ShapeImpossible", "message": "no", "needed": 16, "outcome": "never"}


def test_zero_is_a_number_that_is_told():
    assert reason_document(Reason(Code.NOT_ENOUGH_GPUS, free=0))["free"] == 0


def test_cpu_is_told_in_cores_and_memory_in_bytes():
    assert reason_document(Reason(Code.NOT_ENOUGH_CPU, needed=1500))["needed"] == 1.5
    assert reason_document(Reason(Code.NOT_ENOUGH_CPU, needed=8000))["needed"] == 8
    assert reason_document(Reason(Code.NOT_ENOUGH_MEMORY, needed=1 << 30))["needed"] == 1 << 30


def test_no_end_is_unlimited():
    assert PLAN["queues"][1]["quota"] == "unlimited"
    assert reason_document(Reason(Code.OVER_QUOTA, free=UNLIMITED))["free"] == "unlimited"


def test_a_queue_line_is_in_gpus():
    assert PLAN["queues"][0] == {
        "name": "research",
        "quota": 8,
        "limit": 16,
        "used": 16,
        "fair_share": 12.5,
        "waiting": 2,
    }


def test_fragmentation_has_its_ratio_its_gpus_and_its_shapes():
    document = PLAN["fragmentation"]
    assert (document["ratio"], document["stranded_gpus"], document["free_gpus"]) == (0.25, 7.5, 32)
    assert document["largest_gang"] == {"node": 4, "rack": 32}
    assert document["shapes"][1] == {"gpus": 8, "level": "node", "now": 0, "packed": 4}
    assert document["pools"][0]["name"] == "h100"


def test_a_deadlock_names_who_gives_way():
    assert PLAN["deadlocks"] == [
        {"jobs": ["a", "b"], "message": "a and b hold 4 GPUs each that the other needs", "break": "b"}
    ]
