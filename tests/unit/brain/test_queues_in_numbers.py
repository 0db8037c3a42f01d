"""Queues in numbers: what they hold, what they refuse, what they are due, and whose turn it is (rules 1 to 7)."""

from __future__ import annotations

from math import inf

import pytest

from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.engine.queueing import admission, ordering
from gpuyard.brain.engine.queueing.ordering import Bucket, Turns
from gpuyard.brain.engine.sharing import fair_share
from gpuyard.brain.engine.sharing.quota import NOT_COUNTED, Excess, QueueTree
from gpuyard.model.queue import Allowance, Queue
from gpuyard.model.resources import UNLIMITED, WHOLE
from tests.support.moments import moment

GI = 1 << 30


def tree_of(*queues: Queue) -> QueueTree:
    return QueueTree(queues)


# --- books ----------------------------------------------------------------------------------------

MANY = tree_of(
    Queue("a", quota=Allowance(4, cpu=8000), limit=Allowance(UNLIMITED, models=(("H100", 2),))),
    Queue("b", parent="a", quota=Allowance(2, memory=GI)),
)


def test_resources_are_gpus_then_what_any_queue_names_then_models():
    assert MANY.resources == ("gpu", "cpu", "memory", "H100")
    assert [queue.name for queue in MANY.queues] == ["root", "a", "b"]
    assert MANY.paths == [(0,), (1, 0), (2, 1, 0)]
    assert MANY.children == [[1], [2], []]
    assert MANY.quota == [
        [UNLIMITED, NOT_COUNTED, NOT_COUNTED, NOT_COUNTED],
        [4, 8000, NOT_COUNTED, NOT_COUNTED],
        [2, NOT_COUNTED, GI, NOT_COUNTED],
    ]
    assert MANY.limit[1] == [UNLIMITED, UNLIMITED, UNLIMITED, 2]
    assert MANY.vector(3, 5, 7, "H100-SXM5-80GB") == [3, 5, 7, 3]
    assert MANY.vector(3, 5, 7, "A100") == [3, 5, 7, 0]
    cpu_only = tree_of(Queue("a", quota=Allowance(1, cpu=1)))
    assert cpu_only.vector(3, 5, 7, "A100") == [3, 5]
    memory_only = tree_of(Queue("a", quota=Allowance(1, memory=1)))
    assert memory_only.vector(3, 5, 7, "A100") == [3, 7]
    models = tree_of(Queue("a", quota=Allowance(1, models=(("A100", 1), ("H100", 1), ("T4", 1)))))
    assert models.vector(3, 5, 7, "T4") == [3, 0, 0, 3]


@pytest.mark.parametrize(
    ("quota", "prices"),
    [
        ("quota: 8", [[2 * WHOLE], [2 * WHOLE]]),
        ("quota: {gpu: 8, cpu: 64}", [[2 * WHOLE, 4000], [2 * WHOLE, 1000]]),
        ("quota: {gpu: 8, T4: 1}", [[2 * WHOLE, 0], [2 * WHOLE, 2 * WHOLE]]),
    ],
    ids=["GPUs", "and CPU", "and a model"],
)
def test_a_place_costs_what_queues_count_and_equals_cost_the_very_same(quota: str, prices: list[list[int]]):
    found = moment(f"""
    nodes: [{{name: m, gpus: 8, cpu: 64, model: A100}}, {{name: n, gpus: 8, cpu: 64, model: T4}}]
    queues: [{{name: q, {quota}}}]
    jobs: [{{name: a, queue: q, gpus: 2, cpu: 4, at: ["m:0-1"]}}, {{name: b, queue: q, gpus: 2, cpu: 1, at: ["n:0-1"]}},
           {{name: c, queue: q, gpus: 2, cpu: 1, at: ["n:2-3"]}}]
    """)
    fleet = Fleet(found)
    a, b, c = (fleet.price(fleet.jobs[name].held[0]) for name in "abc")
    assert [a, b] == prices
    assert b is c


def test_what_is_held_is_held_at_every_level_and_by_the_firm_apart():
    tree = tree_of(Queue("a", quota=Allowance(4)), Queue("b", parent="a", quota=Allowance(2)))
    tree.charge(2, [3], False, 1)
    tree.charge(2, [1], True, 1)
    assert (tree.used, tree.firm) == ([[4], [4], [4]], [[1], [1], [1]])
    tree.charge(1, [2], False, 1)
    assert (tree.used, tree.firm) == ([[6], [6], [4]], [[1], [1], [1]])
    tree.charge(2, [1], True, -1)
    assert (tree.used, tree.firm) == ([[5], [5], [3]], [[0], [0], [0]])
    assert tree.changed == [2, 2, 1, 2]


@pytest.mark.parametrize(
    ("asked", "firm", "excess"),
    [
        (2, False, None),
        (3, False, ("b", "limit", 5, 3)),
        (1, True, None),
        (2, True, ("b", "quota", 2, 1)),
        (0, True, None),
    ],
)
def test_a_limit_binds_everybody_and_a_quota_those_who_are_firm(asked: int, firm: bool, excess: object):
    tree = tree_of(Queue("a", quota=Allowance(4)), Queue("b", parent="a", quota=Allowance(2), limit=Allowance(5)))
    tree.charge(2, [2], False, 1)
    tree.charge(2, [1], True, 1)
    found = tree.refuses(2, [asked], firm)
    assert (None if found is None else (found.queue, found.kind, found.allowed, found.used)) == excess
    tree.charge(2, [asked], firm, 1)
    charged = tree.exceeds(2, [asked], firm)
    assert (None if charged is None else (charged.queue, charged.kind, charged.allowed, charged.used)) == excess
    assert tree.used[2] == [3 + asked]


def test_a_queue_is_within_its_due_up_to_it_and_above_it_from_a_grain_more():
    tree = tree_of(Queue("a", quota=Allowance(4, cpu=100)))
    tree.charge(1, [3, 50], False, 1)
    assert tree.within_quota(1, [1, 50])
    assert not tree.within_quota(1, [2, 50])
    assert not tree.within_quota(1, [1, 51])
    assert tree.within_quota(1, [0, 0])
    assert not tree.above(1, [3, 50])
    assert tree.above(1, [2, 50])
    assert tree.above(1, [3, 49])


# --- what queues are due --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capacity", "queues", "demand", "due"),
    [
        (10, [(2, 1, 0), (2, 1, 0)], [10, 10], [5.0, 5.0]),
        (10, [(2, 3, 0), (2, 1, 0)], [10, 10], [6.5, 3.5]),
        (10, [(2, 3, 0), (2, 1, 0)], [4, 10], [4.0, 6.0]),
        (10, [(2, 1, 1), (2, 1, 0)], [10, 10], [8.0, 2.0]),
        (10, [(2, 1, 1), (2, 1, 0)], [5, 10], [5.0, 5.0]),
        (10, [(2, 0, 0), (2, 1, 0)], [10, 4], [2.0, 4.0]),
        (10, [(8, 1, 0), (8, 1, 0)], [10, 10], [8.0, 8.0]),
        (10, [(8, 1, 0), (8, 1, 0)], [1, 0], [1.0, 0.0]),
        (10, [(UNLIMITED, 1, 0), (2, 1, 0)], [7, 10], [7.0, 3.0]),
    ],
)
def test_shares_are_quotas_as_far_as_there_is_demand_and_by_priority_and_weight_what_is_left(
    capacity: int, queues: list[tuple[int, int, int]], demand: list[int], due: list[float]
):
    given = [
        Queue(f"q{i}", quota=Allowance(quota), weight=weight, priority=priority)
        for i, (quota, weight, priority) in enumerate(queues)
    ]
    tree = tree_of(*given)
    shares = fair_share.fair_shares(tree, [[0], *([each] for each in demand)], [capacity])
    assert [shares[tree.index[f"q{i}"]][0] for i in range(len(queues))] == due
    assert shares[tree.root] == [float(capacity)]


def test_children_divide_their_parent_s_share_and_what_is_due_is_no_less_than_the_quota():
    tree = tree_of(
        Queue("a", quota=Allowance(6)),
        Queue("b", quota=Allowance(2)),
        Queue("a1", parent="a", quota=Allowance(1), limit=Allowance(2)),
        Queue("a2", parent="a", quota=Allowance(UNLIMITED)),
    )
    demand = [[9] if queue.name in ("a1", "a2") else [0] for queue in tree.queues]
    shares = fair_share.fair_shares(tree, demand, [10])
    told = {queue.name: shares[i][0] for i, queue in enumerate(tree.queues)}
    assert told == {"root": 10.0, "a": 10.0, "b": 0.0, "a1": 1.0, "a2": 9.0}
    dues = fair_share.dues(tree, shares)
    assert {queue.name: dues[i][0] for i, queue in enumerate(tree.queues)} == {
        "root": 10.0, "a": 10.0, "b": 2.0, "a1": 1.0, "a2": 10.0,
    }  # fmt: skip


# --- refusals in words ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("excess", "needed", "free", "message"),
    [
        (Excess("q", "gpu", "limit", 4 * WHOLE, 3 * WHOLE, 2 * WHOLE), 2 * WHOLE, WHOLE,
         "j needs 2 GPUs; queue q has 1 left of its limit of 4"),
        (Excess("q", "gpu", "quota", 4 * WHOLE, 5 * WHOLE, WHOLE), WHOLE, 0,
         "j needs 1 GPU; queue q has 0 left of its quota for non-preemptible jobs of 4"),
        (Excess("q", "cpu", "limit", 4000, 2500, 2000), 2000, 1500,
         "j needs 2 cpu; queue q has 1.5 left of its limit of 4"),
        (Excess("q", "memory", "limit", 4 * GI, 2 * GI, 3 * GI), 3 * GI, 2 * GI,
         "j needs 3Gi memory; queue q has 2Gi left of its limit of 4Gi"),
        (Excess("q", "H100", "limit", 4 * WHOLE, 4 * WHOLE, WHOLE), WHOLE, 0,
         "j needs 1 GPU; queue q has 0 left of its limit of 4 (H100)"),
    ],
)  # fmt: skip
def test_a_refusal_names_what_is_needed_and_left(excess: Excess, needed: int, free: int, message: str):
    row = Fleet(moment("nodes: [{name: n0, gpus: 1}]\njobs: [{name: j, gpus: 1}]")).jobs["j"]
    reason = admission.over_reason(row, excess)
    assert (reason.needed, reason.free, reason.where, reason.message) == (needed, free, "q", message)


@pytest.mark.parametrize(
    ("job", "ended"),
    [
        ("tasks: 4, min: 3, failed: 1", False),
        ("tasks: 4, min: 3, failed: 2", True),
        ("tasks: 4, min: 3, failed: 2, succeeded: 1", True),
        ("tasks: 4, min: 3, succeeded: 3", False),
        ("min_groups: 1, groups: [{name: a, gpus: 1, failed: 1}, {name: b, gpus: 1}]", False),
        ("min_groups: 2, groups: [{name: a, gpus: 1, failed: 1}, {name: b, gpus: 1}]", True),
        ("groups: [{name: a, groups: [{name: c, gpus: 1}, {name: d, gpus: 1, failed: 1}]}, {name: b, gpus: 1}]", True),
        ("min_groups: 1, groups: [{name: a, groups: [{name: c, gpus: 1}, {name: d, gpus: 1, failed: 1}]}, "
         "{name: b, gpus: 1}]", False),
        ("min_groups: 1, groups: [{name: a, groups: [{name: c, gpus: 1}, {name: d, gpus: 1, failed: 1}]}, "
         "{name: b, gpus: 1, failed: 1}]", True),
    ],
)  # fmt: skip
def test_a_job_waits_for_new_members_once_too_few_are_left_for_its_minimum(job: str, ended: bool):
    row = Fleet(moment(f"nodes: [{{name: n0, gpus: 1}}]\njobs: [{{name: j, {job}}}]")).jobs["j"]
    assert admission._members_ended(row) is ended


# --- turns ----------------------------------------------------------------------------------------

YARD = """
nodes: [{name: n, times: 2, gpus: 8}]
queues:
  - {name: a, quota: 4}
  - {name: b, quota: 4, priority: 1}
  - {name: c, quota: 2}
jobs:
  - {name: a0, queue: a, gpus: 2, at: "n0:0-1"}
  - {name: b0, queue: b, gpus: 6, at: "n0:2-7"}
  - {name: a1, queue: a, gpus: 1, submitted: -3h}
  - {name: a2, queue: a, gpus: 1, submitted: -2h}
  - {name: a3, queue: a, gpus: 3, submitted: -4h, priority: 10}
  - {name: b1, queue: b, gpus: 1, submitted: -5h}
  - {name: c1, queue: c, gpus: 1, submitted: -1h}
"""


def test_turns_follow_the_queues_and_inside_a_queue_priority_and_age():
    draft = Draft(Fleet(moment(YARD)), Memory(), 0.0)
    turns = Turns(draft, ordering.buckets(draft.fleet))
    order = []
    while (bucket := turns.next()) is not None:
        order.append(bucket.head.name)
        if bucket.head.name in ("a1", "c1"):
            turns.started(bucket)
        else:
            turns.parked(bucket)
    # within quota first, the least used first; of those over it the queue of the higher priority
    assert order == ["a1", "a2", "c1", "b1", "a3"]
    assert turns.next() is None
    assert turns.rest() == []


def test_a_rank_says_above_its_share_over_its_quota_priority_and_by_how_much():
    draft = Draft(Fleet(moment(YARD)), Memory(), 0.0)
    turns = Turns(draft, ordering.buckets(draft.fleet))
    tree, rows = draft.fleet.tree, draft.fleet.jobs

    def rank(queue: str, gpus: int) -> tuple[object, ...]:
        return turns._rank(tree.index[queue], [gpus * WHOLE], rows[f"{queue}1"])[:5]

    due = {name: draft.dues[tree.index[name]][0] / WHOLE for name in "abc"}
    assert (due["a"], due["b"]) == (7.0, 7.0)
    assert rank("a", 1) == (False, False, 0, 3 / due["a"], 2 / due["a"])
    assert rank("a", 2) == (False, False, 0, 4 / due["a"], 2 / due["a"])
    assert rank("a", 3) == (False, True, 0, 5 / due["a"], 2 / due["a"])
    assert rank("b", 1) == (False, True, -1, 7 / due["b"], 6 / due["b"])
    assert rank("c", 1) == (False, False, 0, 1 / due["c"], 0.0)
    draft.shares[tree.index["b"]][0] = 5.0 * WHOLE
    assert rank("b", 1)[0] is True
    draft.shares[tree.index["b"]][0] = 6.0 * WHOLE
    assert rank("b", 1)[0] is False


def test_where_cores_are_counted_too_and_nobody_asks_for_any_queues_have_the_same_ranks():
    ranks = []
    for quota in ("4", "{gpu: 4, cpu: 64}"):
        draft = Draft(Fleet(moment(YARD.replace("{name: b, quota: 4", f"{{name: b, quota: {quota}"))), Memory(), 0.0)
        turns = Turns(draft, ordering.buckets(draft.fleet))
        tree, rows = draft.fleet.tree, draft.fleet.jobs
        asked = [[gpus * WHOLE, *[0] * (len(tree.resources) - 1)] for gpus in (0, 1, 3)]
        ranks.append([turns._rank(tree.index[q], each, rows[f"{q}1"]) for q in "abc" for each in asked])
    assert ranks[0] == ranks[1]


@pytest.mark.parametrize(("amount", "due", "ratio"), [(0, 0.0, 0.0), (-1, 5.0, 0.0), (3, 6.0, 0.5), (3, 0.0, inf)])
def test_use_is_measured_by_what_is_due(amount: int, due: float, ratio: float):
    assert ordering._ratio(amount, due) == ratio


def test_whoever_stands_before_somebody_asked_of_its_queue_has_that_queue_s_turn():
    fleet = Fleet(moment(YARD))
    rows = fleet.jobs
    one = {name: Bucket(rows[name].queue, [WHOLE], (rows[name],)) for name in ("a1", "a2", "a3", "b1", "c1")}
    others = {one["a1"], one["b1"]}
    assert ordering.ahead_of([one["a2"], one["c1"]], others) == {one["a1"]}
    assert ordering.ahead_of([one["a2"]], others) == frozenset()
    assert ordering.ahead_of([one["a2"], one["c1"]], set()) == frozenset()
    assert ordering.ahead_of([one["a1"], one["c1"]], {one["a2"]}) == set()
    assert ordering.ahead_of([one["a1"], one["a3"], one["c1"]], {one["a2"]}) == {one["a2"]}
