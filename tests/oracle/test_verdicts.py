"""The oracle itself: a moment and a plan made by hand, wrong in one way or right, and what it says of them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from tests.oracle.judge import judge
from tests.oracle.moments import draw
from tests.oracle.places import Load, circle_in
from tests.oracle.shapes import Document, Spot, read, spot_of
from tests.oracle.shares import fair_shares, first_in_order

NOW = "2026-01-01T00:00:00Z"
DAY_BEFORE = "2025-12-31T00:00:00Z"


def moment(nodes: list[Document], queues: list[Document], jobs: list[Document], **more: Any) -> Document:
    """A snapshot document; jobs give `at: [n0:0, n0:1]` where they run, and began the day before."""
    document: Document = {"apiVersion": "gpuyard.dev/v1", "kind": "Snapshot", "now": NOW}
    document |= {"policy": {"reserve_after": "30d"}, **more}
    filled = [{"queue": queues[0]["name"], "submitted": DAY_BEFORE, **_placed(job)} for job in jobs]
    return deepcopy(document | {"nodes": nodes, "queues": queues, "jobs": filled})


def _placed(job: Document) -> Document:
    if "at" not in job:
        return job
    rest = {key: value for key, value in job.items() if key != "at"}
    return {"started": DAY_BEFORE, "tasks": len(job["at"]), **rest, "placements": [place(at) for at in job["at"]]}


def place(text: str) -> Document:
    """`n0:0+1` as a placement; `n0:0/2` numbers the task, `n0:0!` is on its way out."""
    leaves, text = text.endswith("!"), text.rstrip("!")
    where, _, task = text.partition("/")
    node, _, gpus = where.partition(":")
    found: Document = {"node": node, "gpus": [int(g) for g in gpus.split("+")] if gpus else []}
    found |= {"task": int(task)} if task else {}
    return found | ({"terminating": True} if leaves else {})


def start(job: str, *at: str, after: tuple[str, ...] = ()) -> Document:
    """A start."""
    return {
        "action": "start",
        "job": job,
        "placements": [place(a) for a in at],
        "after": list(after),
        "reason": {"code": "Fits"},
    }


def evict(job: str, claimant: str, *at: str, code: str = "Reclaimed") -> Document:
    """An eviction; of a part if places are given."""
    return {
        "action": "evict",
        "job": job,
        "for": claimant,
        "placements": [place(a) for a in at],
        "reason": {"code": code},
    }


def move(job: str, claimant: str, source: list[str], target: list[str], after: tuple[str, ...] = ()) -> Document:
    """A move."""
    return {"action": "move", "job": job, "for": claimant, "from": [place(a) for a in source],
            "to": [place(a) for a in target], "after": list(after), "reason": {"code": "Consolidated"}}  # fmt: skip


def plan(document: Document, *actions: Document, shares: dict[str, float] | None = None) -> Document:
    """The plan document of these actions, its end state worked out."""
    running = {job["name"]: list(job.get("placements", [])) for job in document["jobs"]}
    for action in actions:
        here = running[action["job"]]
        gone = action.get("from") or (action["placements"] or list(here) if action["action"] == "evict" else [])
        for spot in gone:
            here.remove(next(p for p in here if (p["node"], p["gpus"]) == (spot["node"], spot["gpus"])))
        here += action.get("to", []) + (action["placements"] if action["action"] == "start" else [])
    least = {job["name"]: job.get("min", job.get("tasks", 1)) for job in document["jobs"]}
    live = {name: [p for p in spots if not p.get("terminating")] for name, spots in running.items()}
    return {
        "actions": list(actions),
        "running": [{"job": name, "placements": spots} for name, spots in running.items() if spots],
        "waiting": [{"job": name} for name in running if len(live[name]) < least[name]],
        "queues": [{"name": name, "fair_share": share} for name, share in (shares or {}).items()],
    }


def kinds(document: Document, *actions: Document, **more: Any) -> set[str]:
    """What the oracle says of a plan of these actions."""
    return {verdict.kind for verdict in judge(document, lambda _: plan(document, *actions, **more), again=False)}


def nodes(*gpus: int, **more: Any) -> list[Document]:
    """Nodes n0, n1, ... with so many GPUs."""
    return [
        {"name": f"n{i}", "gpus": count, "model": "A100", "gpu_memory": "40Gi", **more} for i, count in enumerate(gpus)
    ]


ONE = [{"name": "a", "quota": 8}]
LENT = [{"name": "a", "quota": 2}, {"name": "b", "quota": 0}]


# --- legal ------------------------------------------------------------------------------------------------------------


def lone(gpus: int = 1, **job: Any) -> Document:
    """One job that waits on two nodes of two GPUs."""
    return moment(nodes(2, 2), ONE, [{"name": "x", "gpus": gpus, **job}])


def test_a_plain_start_is_right():
    assert kinds(lone(), start("x", "n0:0")) == set()


def test_a_gpu_that_is_held_twice_is_overbooked():
    twice = moment(nodes(2), ONE, [{"name": "y", "gpus": 1, "at": ["n0:0"]}, {"name": "x", "gpus": 1}])
    assert "overbooked" in kinds(twice, start("x", "n0:0"))


def test_a_member_on_its_way_out_holds_its_gpu():
    leaving = moment(
        nodes(1, 1), ONE, [{"name": "y", "gpus": 1, "at": ["n0:0!"], "held": True}, {"name": "x", "gpus": 1}]
    )
    assert "overbooked" in kinds(leaving, start("x", "n0:0"))
    assert kinds(leaving, start("x", "n1:0")) == set()


def test_parts_share_a_gpu_up_to_the_whole():
    three = moment(nodes(1), ONE, [{"name": f"x{i}", "fraction": 0.4} for i in range(3)])
    assert kinds(three, start("x0", "n0:0"), start("x1", "n0:0")) == set()
    assert "overbooked" in kinds(three, start("x0", "n0:0"), start("x1", "n0:0"), start("x2", "n0:0"))


def test_slices_are_held_once():
    cut = moment(
        nodes(1, mig={"0": ["1g.5gb", "3g.20gb"]}), ONE, [{"name": f"x{i}", "mig": "1g.5gb"} for i in range(2)]
    )
    one, two = (start(f"x{i}", "n0:0") for i in range(2))
    for action in (one, two):
        action["placements"][0]["mig"] = ["1g.5gb"]
    assert kinds(cut, one) == set()
    assert "overbooked" in kinds(cut, one, two)


def test_a_required_level_is_not_crossed():
    pair = lone(tasks=2, topology={"required": "node"})
    assert kinds(pair, start("x", "n0:0", "n0:1")) == set()
    assert "domain-crossed" in kinds(pair, start("x", "n0:0", "n1:1"))


def test_an_island_is_not_crossed():
    pair = moment(
        nodes(4, islands=[[0, 1], [2, 3]]), ONE, [{"name": "x", "gpus": 2, "topology": {"required": "nvlink"}}]
    )
    assert kinds(pair, start("x", "n0:2+3")) == set()
    assert "domain-crossed" in kinds(pair, start("x", "n0:1+2"))


def test_what_a_kubelet_would_refuse_is_not_sent_to_it():
    parts = {"numa": [[0, 1], [2, 3]]}
    strict = moment(nodes(4, **parts, alignment="single-numa-node"), ONE, [{"name": "x", "gpus": 2}])
    assert kinds(strict, start("x", "n0:2+3")) == set()
    assert "unaligned" in kinds(strict, start("x", "n0:1+2"))
    three = moment(nodes(4, **parts, alignment="restricted"), ONE, [{"name": "x", "gpus": 3}])
    assert kinds(three, start("x", "n0:1+2+3")) == set()
    never = moment(nodes(4, **parts, alignment="single-numa-node"), ONE, [{"name": "x", "gpus": 3}])
    assert kinds(never) == set()
    assert "unaligned" in kinds(never, start("x", "n0:1+2+3"))


def test_nothing_new_goes_on_a_sick_gpu_or_on_a_model_that_is_not_asked():
    sick = moment(nodes(2, unhealthy=[0]), ONE, [{"name": "x", "gpus": 1}])
    assert "sick" in kinds(sick, start("x", "n0:0"))
    assert kinds(sick, start("x", "n0:1")) == set()
    assert "model" in kinds(lone(models=["H100"]), start("x", "n0:0"))


def test_a_gang_starts_whole():
    assert "partial" in kinds(lone(tasks=3), start("x", "n0:0"))


def test_limits_and_quotas_are_kept():
    limited = moment(
        nodes(2), [{"name": "a", "quota": 2, "limit": 1}], [{"name": f"x{i}", "gpus": 1} for i in range(2)]
    )
    assert kinds(limited, start("x0", "n0:0")) == set()
    assert "over-limit" in kinds(limited, start("x0", "n0:0"), start("x1", "n0:1"))
    firm = moment(nodes(2), [{"name": "a", "quota": 1}], [{"name": "x", "gpus": 2, "preemptible": False}])
    assert "over-quota" in kinds(firm, start("x", "n0:0+1"))
    assert kinds(firm) == set()


def test_shares_are_as_rule_6_says():
    two = moment(nodes(4), LENT, [{"name": "x", "gpus": 4}, {"name": "y", "gpus": 4, "queue": "b"}])
    assert kinds(two, start("x", "n0:0+1+2+3"), shares={"a": 3.0, "b": 1.0}) == set()
    assert "share" in kinds(two, start("x", "n0:0+1+2+3"), shares={"a": 2.0, "b": 2.0})


# --- printed order ----------------------------------------------------------------------------------------------------


def reclaimed() -> Document:
    """`x` of a may take what b has borrowed."""
    return moment(nodes(2), LENT, [{"name": "y", "queue": "b", "gpus": 2, "at": ["n0:0+1"]}, {"name": "x", "gpus": 2}])


def test_a_plain_take_is_right():
    assert kinds(reclaimed(), evict("y", "x"), start("x", "n0:0+1", after=("y",))) == set()


def test_a_start_waits_for_whoever_holds_its_gpus():
    assert "not-applicable" in kinds(reclaimed(), evict("y", "x"), start("x", "n0:0+1"))


def test_a_start_is_printed_after_those_it_waits_for():
    assert "not-applicable" in kinds(reclaimed(), start("x", "n0:0+1", after=("y",)), evict("y", "x"))


def test_nobody_waits_in_a_circle():
    swap = moment(
        nodes(1, 1), ONE, [{"name": "y", "gpus": 1, "at": ["n0:0"]}, {"name": "z", "gpus": 1, "at": ["n1:0"]}]
    )
    moves = [move("y", "", ["n0:0"], ["n1:0"], ("z",)), move("z", "", ["n1:0"], ["n0:0"], ("y",))]
    assert "circle" in kinds(swap, *moves)
    assert "circle" not in kinds(swap)


def test_who_shrinks_and_moves_has_left_what_it_shrinks_by_before_anybody_moves():
    el = {"name": "el", "queue": "b", "min": 1, "gpus": 1, "at": ["n0:0", "n0:1", "n0:2"]}
    y = {"name": "y", "queue": "b", "gpus": 1, "at": ["n1:0"]}
    document = moment(nodes(3, 2), LENT, [el, y, {"name": "x", "gpus": 2}])
    begins = start("x", "n0:0+1", after=("el", "y"))
    gone, away = evict("el", "x", "n0:2/2"), move("el", "x", ["n0:0", "n0:1"], ["n1:0", "n1:1"], after=("y",))
    assert "circle" not in kinds(document, gone, move("y", "x", ["n1:0"], ["n0:2"], after=("el",)), away, begins)
    assert "circle" in kinds(document, gone, move("y", "x", ["n1:0"], ["n0:1"], after=("el",)), away, begins)


def test_nothing_is_both_started_and_evicted():
    found = kinds(reclaimed(), evict("y", "x"), start("x", "n0:0+1", after=("y",)), start("y", "n0:0+1"))
    assert "started-and-evicted" in found


def test_the_actions_lead_to_what_runs():
    document = reclaimed()
    told = plan(document, evict("y", "x"), start("x", "n0:0+1", after=("y",)))
    told["running"] = []
    assert "untrue-end" in {v.kind for v in judge(document, lambda _: told, again=False)}


# --- who gives way ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "trait"),
    [("protected", {"preemptible": False}), ("protected", {"evictions": 3}), ("min-runtime", {"min_runtime": "2d"})],
)
def test_who_is_protected_is_not_stopped(kind: str, trait: Document):
    document = reclaimed()
    document["jobs"][0] |= trait
    assert kind in kinds(document, evict("y", "x"), start("x", "n0:0+1", after=("y",)))
    assert kinds(document) == set()


def test_a_budget_is_not_broken():
    document = reclaimed() | {"budgets": [{"name": "keep", "jobs": ["y"], "min_available": 1}]}
    assert "budget" in kinds(document, evict("y", "x"), start("x", "n0:0+1", after=("y",)))
    assert kinds(document) == set()


def test_who_is_within_its_quota_is_not_taken_from():
    document = reclaimed()
    document["queues"][1]["quota"] = 2
    assert "no-right" in kinds(document, evict("y", "x"), start("x", "n0:0+1", after=("y",)))
    assert kinds(document) == set()


def test_priority_takes_inside_a_queue_and_not_across():
    low = {"name": "low", "gpus": 1, "priority": 10, "at": ["n0:0"]}
    own = moment(nodes(1), LENT, [low, {"name": "hi", "gpus": 1, "priority": 90}])
    assert kinds(own, evict("low", "hi"), start("hi", "n0:0", after=("low",))) == set()
    across = moment(
        nodes(1),
        [{"name": "a", "quota": 1}, {"name": "b", "quota": 0}],
        [low, {"name": "hi", "gpus": 1, "priority": 90, "queue": "b"}],
    )
    assert "no-right" in kinds(across, evict("low", "hi"), start("hi", "n0:0", after=("low",)))


def test_a_set_is_lawful_if_some_order_is():
    """Own queue first: only then does the claimant stay within its quota."""
    jobs = [
        {"name": "low", "gpus": 1, "priority": 25, "at": ["n0:0"]},
        {"name": "loan", "gpus": 1, "queue": "b", "at": ["n0:1"]},
    ]
    document = moment(nodes(2), LENT, [*jobs, {"name": "hi", "gpus": 2, "priority": 75}])
    taken = [evict("loan", "hi"), evict("low", "hi"), start("hi", "n0:0+1", after=("loan", "low"))]
    assert kinds(document, *taken) == set()
    assert kinds(document) == {"refused-take"}


def test_what_makes_up_a_minimum_is_another_victim_than_the_extra():
    queues = [{"name": "a", "quota": 2}, {"name": "b", "quota": 2}]
    el = {"name": "el", "queue": "b", "min": 2, "gpus": 1, "at": ["n0:0", "n0:1", "n0:2"]}
    document = moment(nodes(3), queues, [el, {"name": "x", "gpus": 2}])
    assert "no-right" in kinds(document, evict("el", "x"), start("x", "n0:0+1", after=("el",)))
    one = moment(nodes(3), queues, [el, {"name": "x", "gpus": 1}])
    assert kinds(one, evict("el", "x", "n0:2/2"), start("x", "n0:2", after=("el",))) == set()


def test_inside_its_minimum_runtime_a_job_loses_what_came_last():
    el = {"name": "el", "queue": "b", "min": 1, "gpus": 1, "min_runtime": "2d", "at": ["n0:0", "n0:1"]}
    document = moment(nodes(2), LENT, [el, {"name": "x", "gpus": 1}])
    assert kinds(document, evict("el", "x", "n0:1/1"), start("x", "n0:1", after=("el",))) == set()
    assert "min-runtime" in kinds(document, evict("el", "x", "n0:0/0"), start("x", "n0:0", after=("el",)))


def test_nobody_is_disturbed_for_nobody():
    assert "in-vain" in kinds(reclaimed(), evict("y", "x"))


def test_a_gang_does_not_run_on_below_its_minimum():
    document = moment(
        nodes(2), LENT, [{"name": "y", "queue": "b", "gpus": 1, "at": ["n0:0", "n0:1"]}, {"name": "x", "gpus": 1}]
    )
    assert "below-minimum" in kinds(document, evict("y", "x", "n0:1/1"), start("x", "n0:1", after=("y",)))
    assert kinds(document, evict("y", "x"), start("x", "n0:1", after=("y",))) == set()


def test_a_borrower_moves_only_its_own_priority_or_lower():
    jobs = [
        {"name": "y", "queue": "a", "gpus": 1, "priority": 90, "at": ["n0:0"]},
        {"name": "w", "gpus": 1, "at": ["n1:0"]},
    ]
    queues = [{"name": "a", "quota": 2}, {"name": "b", "quota": 0, "weight": 0}]
    document = moment(nodes(2, 2), queues, [*jobs, {"name": "x", "queue": "b", "gpus": 2}])
    assert "no-right-to-move" in kinds(document, move("y", "x", ["n0:0"], ["n1:1"]), start("x", "n0:0+1", after=("y",)))
    assert kinds(document, move("w", "x", ["n1:0"], ["n0:1"]), start("x", "n1:0+1", after=("w",))) == set()


# --- nobody entitled is left ------------------------------------------------------------------------------------------


def test_who_fits_is_started():
    assert kinds(lone()) == {"refused-start"}
    assert kinds(lone(held=True)) == set()


def test_who_would_fit_if_others_moved_is_not_left_waiting():
    jobs = [{"name": f"y{i}", "gpus": 1, "at": [f"n{i}:0"]} for i in range(2)]
    document = moment(nodes(2, 2), ONE, [*jobs, {"name": "x", "gpus": 2}])
    assert kinds(document) == {"refused-move"}
    assert kinds(document, move("y0", "x", ["n0:0"], ["n1:1"]), start("x", "n0:0+1", after=("y0",))) == set()


def test_who_may_take_is_not_left_waiting():
    assert kinds(reclaimed()) == {"refused-take"}
    document = reclaimed()
    document["jobs"][1]["gpus"] = 3
    assert kinds(document) == set()


def test_two_borrowers_of_two_queues_make_room_together():
    queues = [{"name": "c", "quota": 2}, {"name": "a", "quota": 1}, {"name": "b", "quota": 1}]
    jobs = [
        {"name": f"{q}{i}", "queue": q, "gpus": 1, "at": [f"n0:{2 * (q == 'b') + i}"]} for q in "ab" for i in range(2)
    ]
    document = moment(nodes(4), queues, [*jobs, {"name": "c0", "gpus": 2}])
    assert kinds(document) == {"refused-take"}


def test_a_take_that_stops_one_and_moves_another_is_not_left():
    jobs = [
        {"name": "low", "gpus": 1, "priority": 10, "at": ["n1:0"]},
        {"name": "same", "gpus": 1, "at": ["n0:0"]},
        {"name": "rock", "gpus": 1, "preemptible": False, "at": ["n1:1"]},
    ]
    document = moment(nodes(2, 2), ONE, [*jobs, {"name": "x", "gpus": 2}])
    assert kinds(document) == {"refused-mixed"}
    mixed = [evict("low", "x"), move("same", "x", ["n0:0"], ["n1:0"], ("low",)), start("x", "n0:0+1", after=("same",))]
    assert kinds(document, *mixed) == set()


def test_who_is_whole_grows_into_what_is_free():
    document = moment(nodes(2), ONE, [{"name": "el", "gpus": 1, "tasks": 2, "min": 1, "at": ["n0:0"]}])
    document["jobs"][0]["tasks"] = 2
    assert kinds(document) == {"refused-growth"}
    assert kinds(document, start("el", "n0:1/1")) == set()


def test_the_higher_priority_grows_first():
    jobs = [
        {"name": n, "gpus": 1, "tasks": 2, "min": 1, "priority": p, "at": [at]}
        for n, p, at in (("hi", 90, "n0:0"), ("lo", 10, "n0:1"))
    ]
    document = moment(nodes(3), ONE, jobs)
    assert kinds(document, start("hi", "n0:2/1")) == set()
    assert kinds(document, start("lo", "n0:2/1")) == {"growth-order"}


def test_a_reservation_that_is_kept_refuses_nobody_who_must_wait():
    document = moment(
        nodes(2),
        ONE,
        [
            {"name": "rock", "gpus": 1, "preemptible": False, "at": ["n0:0"]},
            {"name": "big", "gpus": 2},
            {"name": "x", "gpus": 1, "submitted": NOW},
        ],
    )
    document["reservations"] = [{"job": "big", "placements": [{"node": "n0", "gpus": [0, 1]}]}]
    assert kinds(document) == set()
    assert kinds(document, start("x", "n0:1")) == {"gap"}


def test_who_ends_before_the_reservation_begins_uses_the_gap():
    document = moment(
        nodes(2),
        ONE,
        [
            {"name": "rock", "gpus": 1, "preemptible": False, "time_limit": "25h", "at": ["n0:0"]},
            {"name": "big", "gpus": 2},
            {"name": "x", "gpus": 1, "submitted": NOW, "time_limit": "30m"},
        ],
    )
    document["reservations"] = [
        {"job": "big", "placements": [{"node": "n0", "gpus": [0, 1]}], "until": "2026-01-01T01:00:00Z"}
    ]
    assert kinds(document) == {"refused-start"}
    assert kinds(document, start("x", "n0:1")) == set()


def test_a_reservation_says_when_time_limits_let_it_begin():
    document = moment(
        nodes(1), ONE, [{"name": "rock", "gpus": 1, "preemptible": False, "at": ["n0:0"]}, {"name": "big", "gpus": 1}]
    )
    kept = {"action": "reserve", "job": "big", "placements": [place("n0:0")], "reason": {"code": "Reserved"}}
    told = plan(document)
    for until, expected in ((None, set()), ("2026-01-01T01:00:00Z", {"until"})):
        told["actions"] = [kept | ({"until": until} if until else {})]
        assert {v.kind for v in judge(document, lambda _: told, again=False)} == expected


def in_turn(*others: str) -> Document:
    """`high` may stop `low` of its own queue; whoever of the others is there may then take in turn."""
    jobs = [
        {"name": "low", "gpus": 2, "at": ["n1:0+1"]},
        {"name": "firm", "queue": "b", "gpus": 2, "at": ["n0:0+1"]},
        {"name": "high", "gpus": 3, "priority": 90},
        {"name": "third", "queue": "b", "gpus": 2, "priority": 10},
        {"name": "fourth", "queue": "b", "gpus": 3},
    ]
    queues = [{"name": "a", "quota": 2}, {"name": "b", "quota": 4}]
    return moment(nodes(3, 3), queues, [job for job in jobs if "at" in job or job["name"] in others])


def test_who_may_stop_a_lower_priority_is_not_left_waiting():
    assert kinds(in_turn("high")) == {"refused-take"}


def test_claims_that_lead_back_to_where_all_stood_are_not_made():
    assert kinds(in_turn("high", "third", "fourth")) == set()


def test_jobs_that_change_places_move_in_a_circle_and_those_that_follow_each_other_do_not():
    here, there, far = (tuple(read_spots(at)) for at in ("n0:0", "n0:1", "n1:0"))
    assert circle_in({"x": here, "y": there}, {"x": there, "y": here})
    assert not circle_in({"x": here, "y": there}, {"x": there, "y": far})
    assert not circle_in({"x": here, "y": there}, {"x": there, "y": ()})


def read_spots(*at: str) -> list[Spot]:
    """Places as the oracle has them."""
    return [spot_of(place(text)) for text in at]


def test_one_who_was_stopped_may_claim_in_turn_before_it_stands_again():
    queues = [{"name": "d", "quota": 0.5}, {"name": "b", "quota": 1, "parent": "d"}]
    queues += [{"name": "a", "quota": 1, "parent": "d"}, {"name": "c", "quota": 0}]
    chain = moment(
        nodes(2, 2, 2),
        queues,
        [
            {"name": "back", "queue": "b", "gpus": 1, "at": ["n0:0"]},
            {"name": "gone", "queue": "a", "gpus": 2, "at": ["n1:0+1", "n2:0+1"], "priority": 10},
            {"name": "stays", "queue": "c", "gpus": 1, "at": ["n0:1"]},
            {"name": "x", "queue": "c", "gpus": 1},
        ],
    )
    told = kinds(chain, evict("gone", "x"), start("x", "n1:1", after=("gone",)))
    assert "no-right" not in told


# --- best, in order, and staying --------------------------------------------------------------------------------------


def pair(**first: Any) -> Document:
    """Two borrowers of one GPU each, and `x` that needs one."""
    jobs = [
        {"name": "y", "queue": "b", "gpus": 1, "at": ["n0:0"], **first},
        {"name": "z", "queue": "b", "gpus": 1, "at": ["n0:1"]},
    ]
    return moment(nodes(2), LENT, [*jobs, {"name": "x", "gpus": 1}])


@pytest.mark.parametrize(
    ("key", "trait"),
    [
        ("priority", {"priority": 90}),
        ("evictions", {"evictions": 1}),
        ("lost-work", {"started": "2025-12-30T00:00:00Z"}),
        ("lost-work", {"warm_up": "1h"}),
        ("younger", {"submitted": "2025-12-30T00:00:00Z"}),
    ],
)
def test_of_two_victims_the_one_goes_that_comes_first_in_the_keys(key: str, trait: Document):
    document = pair(**trait)
    assert f"not-best-{key}" in kinds(document, evict("y", "x"), start("x", "n0:0", after=("y",)))
    assert kinds(document, evict("z", "x"), start("x", "n0:1", after=("z",))) == set()


def test_below_its_quota_may_be_said_of_gpus_or_of_anything_that_is_counted():
    queues = [
        {"name": "a", "quota": {"gpu": 2, "cpu": 8}},
        {"name": "b", "quota": {"gpu": 0, "cpu": 2}},
        {"name": "c", "quota": {"gpu": 0, "cpu": 0}},
    ]
    y = {"name": "y", "queue": "b", "gpus": 1, "cpu": 2, "at": ["n0:0"]}
    z = {"name": "z", "queue": "c", "gpus": 1, "at": ["n0:1"], "started": "2025-12-30T00:00:00Z"}
    document = moment(nodes(2), queues, [y, z, {"name": "x", "gpus": 1}])
    assert kinds(document, evict("y", "x"), start("x", "n0:0", after=("y",))) == set()
    assert kinds(document, evict("z", "x"), start("x", "n0:1", after=("z",))) == set()


def test_what_is_better_must_be_better_than_whoever_went_first_and_took_from_others_then():
    jobs = [
        {"name": "first", "queue": "b", "tasks": 2, "min": 1, "gpus": 1, "at": ["n1:0"]},
        {"name": "el", "queue": "b", "min": 1, "gpus": 1, "evictions": 1, "at": ["n1:1", "n0:0"]},
        {"name": "own", "gpus": 1, "preemptible": False, "at": ["n2:0", "n2:1"]},
        {"name": "firm", "queue": "b", "gpus": 2, "preemptible": False, "at": ["n1:2+3"]},
        {"name": "last", "gpus": 1, "at": ["n0:1"]},
        {"name": "x", "tasks": 2, "gpus": 1, "priority": 90},
    ]
    queues = [{"name": "a", "quota": 1}, {"name": "b", "quota": 2}]
    policy = {"reserve_after": "30d", "preempt_across_queues": "borrowed", "critical_priority": 90}
    document = moment(nodes(2, 4, 2), queues, jobs, policy=policy)
    gone = [evict("el", "x", "n0:0/1", code="Critical"), evict("last", "x", code="Preempted")]
    assert kinds(document, *gone, start("x", "n0:0", "n0:1", after=("el", "last"))) == set()


def test_an_extra_goes_before_a_gang():
    el = {"name": "el", "queue": "b", "min": 1, "gpus": 1, "at": ["n0:1", "n0:2"]}
    document = moment(
        nodes(3), LENT, [{"name": "y", "queue": "b", "gpus": 1, "at": ["n0:0"]}, el, {"name": "x", "gpus": 1}]
    )
    assert "not-best-gang" in kinds(document, evict("y", "x"), start("x", "n0:0", after=("y",)))
    assert kinds(document, evict("el", "x", "n0:2/1"), start("x", "n0:2", after=("el",))) == set()


def test_no_more_go_than_needed():
    document = pair()
    both = [evict("y", "x"), evict("z", "x"), start("x", "n0:0", after=("y",))]
    assert "too-many" in kinds(document, *both)


def test_who_could_have_been_moved_is_not_stopped():
    document = moment(
        nodes(2, 1), LENT, [{"name": "y", "queue": "b", "gpus": 1, "at": ["n0:0"]}, {"name": "x", "gpus": 2}]
    )
    assert "take-where-move" in kinds(document, evict("y", "x"), start("x", "n0:0+1", after=("y",)))
    assert kinds(document, move("y", "x", ["n0:0"], ["n1:0"]), start("x", "n0:0+1", after=("y",))) == set()


def test_who_comes_first_and_fits_starts():
    document = moment(nodes(1), ONE, [{"name": "hi", "gpus": 1, "priority": 90}, {"name": "lo", "gpus": 1}])
    assert kinds(document, start("hi", "n0:0")) == set()
    assert "order" in kinds(document, start("lo", "n0:0"))


def test_a_queue_within_its_quota_comes_first():
    document = moment(
        nodes(1), LENT, [{"name": "x", "gpus": 1, "submitted": NOW}, {"name": "y", "queue": "b", "gpus": 1}]
    )
    assert kinds(document, start("x", "n0:0")) == set()
    assert {"order", "refused-take"} <= kinds(document, start("y", "n0:0"))


def test_who_comes_first_may_go_with_another_who_starts_beside_it_and_shows_as_little():
    queues = [{"name": "a", "quota": 1}, {"name": "b", "quota": 3}]
    both = [{"name": "first", "gpus": 1}, {"name": "large", "queue": "b", "gpus": 3, "submitted": NOW}]
    taken = start("large", "n0:0+1+2")
    assert kinds(moment(nodes(3), queues, both), taken) == {"order"}
    beside = {"name": "beside", "gpus": 2, "priority": 10}
    assert kinds(moment(nodes(3), queues, [*both, beside]), taken) == set()


def test_nobody_moves_who_could_have_stayed():
    document = moment(nodes(2, 2), ONE, [{"name": "y", "gpus": 1, "at": ["n0:0"]}, {"name": "x", "gpus": 2}])
    there = [move("y", "x", ["n0:0"], ["n0:1"]), start("x", "n1:0+1")]
    assert "could-have-stayed" in kinds(document, *there)
    around = [move("y", "x", ["n0:0"], ["n1:0"]), start("x", "n0:0+1", after=("y",))]
    assert "rest-fits-around" in kinds(document, *around)
    assert kinds(document, start("x", "n1:0+1")) == set()


def test_a_part_joins_a_gpu_that_is_shared_in_the_rack_with_less_room():
    racks = [{**node, "domains": {"rack": f"r{i}"}} for i, node in enumerate(nodes(2, 2))]
    jobs = [{"name": "y", "fraction": 0.5, "at": ["n1:0"]}, {"name": "x", "fraction": 0.5}]
    document = moment(racks, ONE, jobs, topology=["rack"])
    assert kinds(document, start("x", "n1:0")) == set()
    assert kinds(document, start("x", "n0:0")) == {"roomy-domain"}
    assert kinds(document, start("x", "n1:1")) == {"opened"}


def test_a_task_of_slices_or_without_gpus_may_go_to_the_rack_where_more_whole_ones_are_free():
    racks = [{**node, "domains": {"rack": f"r{i}"}} for i, node in enumerate(nodes(2, 3))]
    document = moment(racks, ONE, [{"name": "x"}], topology=["rack"])
    assert kinds(document, start("x", "n0:")) == kinds(document, start("x", "n1:")) == set()
    slices = {"n0": ["3g.20gb", "3g.20gb"], "n1": ["3g.20gb"]}
    cut = [{**node, "mig": {"0": slices[node["name"]]}} for node in racks]
    document = moment(cut, ONE, [{"name": "x", "mig": "3g.20gb"}], topology=["rack"])
    least = start("x", "n1:0")
    least["placements"][0]["mig"] = ["3g.20gb"]
    assert kinds(document, least) == set()


def test_a_stale_gang_goes_when_its_grace_is_over_and_not_before():
    gang = {"name": "y", "gpus": 1, "at": ["n0:0"], "stale_since": "2025-12-31T23:50:00Z"}
    document = moment(nodes(1), ONE, [gang])
    document["jobs"][0]["tasks"] = 2
    assert kinds(document) == {"stale"}
    assert kinds(document, evict("y", "", code="Stale")) == set()
    document["jobs"][0]["stale_since"] = "2025-12-31T23:59:30Z"
    assert kinds(document) == set()
    assert kinds(document, evict("y", "", code="Stale")) == {"stale"}


def test_planning_again_changes_nothing():
    document = lone()
    restless = judge(document, lambda d: plan(d, start("x", "n0:0")) if d is document else plan(d, evict("x", "y")))
    assert [v.kind for v in restless] == ["restless"]
    assert judge(document, lambda d: plan(d, start("x", "n0:0")) if d is document else plan(d)) == []


# --- what it stands on ------------------------------------------------------------------------------------------------


def test_shares_go_down_the_tree_quota_first_then_priority_then_weight():
    queues = [
        {"name": "d", "quota": 2, "priority": 1},
        {"name": "a", "quota": 1, "parent": "d"},
        {"name": "b", "quota": 0, "parent": "d", "weight": 3},
        {"name": "c", "quota": 2},
    ]
    jobs = [{"name": q, "queue": q, "gpus": 8} for q in "abc"]
    shares = fair_shares(read(moment(nodes(4, 4), queues, jobs)))
    assert {q: float(shares[q][0]) for q in "dabc"} == {"d": 6.0, "a": 2.25, "b": 3.75, "c": 2.0}


def test_the_order_asks_the_head_of_each_queue():
    queues = [{"name": "a", "quota": 1}, {"name": "b", "quota": 1}]
    jobs = [
        {"name": "big", "gpus": 3, "priority": 90},
        {"name": "small", "gpus": 1},
        {"name": "other", "queue": "b", "gpus": 1, "submitted": NOW},
    ]
    here = read(moment(nodes(4), queues, jobs))
    assert first_in_order(here, {}, ["big", "small", "other"], fair_shares(here), frozenset()) == "other"
    assert first_in_order(here, {}, ["small", "other"], fair_shares(here), frozenset()) == "small"


def test_random_moments_are_tiny_valid_and_the_same_each_time():
    for seed in range(30):
        document = draw(seed)
        here = read(document)
        assert document == draw(seed)
        assert sum(len(node.devices) for node in here.nodes.values()) <= 8
        assert len(here.jobs) <= 8
        assert list(Load.of(here, here.state).broken()) == []
