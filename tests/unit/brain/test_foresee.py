"""What an outlook lists beside its actions, and what a fleet learns from tasks that end."""

from __future__ import annotations

import pytest

from gpuyard.brain import foresee
from gpuyard.brain.decide import decide
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.foresee import outlook
from gpuyard.model.events import JobGone, TasksEnded
from gpuyard.model.job import Bundle, TaskGroup
from gpuyard.model.reasons import Outcome
from gpuyard.model.resources import UNLIMITED, WHOLE, Request
from tests.support.moments import moment


def test_the_root_is_listed_only_if_it_bounds_something():
    nodes = "nodes: [{name: n0, gpus: 4}]\n"
    assert [q.name for q in outlook(moment(nodes)).queues] == ["default"]
    for bound in ("quota: 3", "limit: 3"):
        more = [bound, "quota: unlimited" if bound.startswith("limit") else "limit: unlimited"]
        text = nodes + f"queues: [{{name: root, {', '.join(more)}}}, {{name: q, quota: 1}}]\n"
        assert sorted(q.name for q in outlook(moment(text)).queues) == ["q", "root"]


def test_a_queue_is_listed_with_what_it_uses_and_who_waits():
    found = outlook(
        moment(
            """
            nodes: [{name: n0, gpus: 4}]
            queues: [{name: q, quota: 2, limit: 3}, {name: idle, quota: 1}]
            jobs: [{name: a, queue: q, at: "n0:0-1"}, {name: b, queue: q, gpus: 2}, {name: c, queue: q, gpus: 2}]
            """
        )
    )
    lines = {line.name: line for line in found.queues}
    assert (lines["q"].quota, lines["q"].limit, lines["q"].used) == (2 * WHOLE, 3 * WHOLE, 2 * WHOLE)
    assert (lines["q"].waiting, lines["idle"].waiting) == (2, 0)
    assert (lines["idle"].used, lines["idle"].limit) == (0, UNLIMITED)


NESTED = """
nodes: [{name: n0, gpus: 4}]
jobs:
  - name: j
    groups:
      - {name: outer, groups: [{name: w, tasks: 2, gpus: 1}, {name: v, tasks: 1, gpus: 1}]}
      - {name: last, tasks: 1, gpus: 1}
    at:
      - {node: n0, gpus: [0], group: w, task: 0}
      - {node: n0, gpus: [1], group: w, task: 1}
      - {node: n0, gpus: [2], group: v, task: 0}
      - {node: n0, gpus: [3], group: last, task: 0}
"""


def test_a_member_of_a_nested_group_that_ends_is_counted_there_and_nowhere_else():
    fleet = Fleet(moment(NESTED))
    row = fleet.jobs["j"]
    gone = tuple(place for place in row.placements if place.group == "w" and place.task == 1)
    assert fleet.apply([TasksEnded("j", gone, succeeded=0, failed=1)]) == []
    gang = fleet.jobs["j"].job.gang
    assert isinstance(gang, Bundle)
    counted = {g.name: (g.succeeded, g.failed, g.ended) for g in gang.leaves()}
    assert counted == {"w": (0, 1, (1,)), "v": (0, 0, ()), "last": (0, 0, ())}
    assert len(fleet.jobs["j"].held) == 3


def test_a_claim_refused_a_moment_ago_is_asked_again_in_time_only_if_something_happened():
    found = moment(
        """
        nodes: [{name: n0, gpus: 4}]
        jobs: [{name: firm, preemptible: false, at: "n0:0-3"}, {name: high, priority: 90, gpus: 4}, {name: x, gpus: 1}]
        """
    )
    fleet, now = Fleet(found), found.now
    first = decide(fleet, Memory(), now)
    quiet = decide(fleet, first.memory, now + 1).plan.look_again_at
    assert quiet == now + fleet.policy.reserve_after, "a reservation comes due, nothing else"
    fleet.apply([JobGone("x")])
    assert decide(fleet, first.memory, now + 1).plan.look_again_at == now + fleet.policy.claim_again


def test_counting_how_often_a_gang_fits_stops_at_the_most_anybody_asks_for(monkeypatch: pytest.MonkeyPatch):
    snapshot, group = moment("nodes: [{name: n0, gpus: 4}]"), TaskGroup(request=Request(gpus=1))
    assert foresee.fits(snapshot, group) == 4
    monkeypatch.setattr(foresee, "MOST_FITS", 3)
    assert foresee.fits(snapshot, group) == 3


def test_gangs_that_fit_are_counted_up_to_as_many_as_anybody_asks_for(monkeypatch: pytest.MonkeyPatch):
    yard = moment("nodes: [{name: n0, gpus: 4}]\nqueues: [{name: q, quota: 2, limit: 3}]")
    one = TaskGroup(request=Request(gpus=1))
    assert foresee.fits(yard, one) == 4
    assert foresee.fits(yard, one, "q") == 3
    monkeypatch.setattr(foresee, "MOST_FITS", 2)
    assert foresee.fits(yard, one) == 2


def test_what_keeps_a_job_off_as_many_nodes_as_something_else_is_told_by_the_alphabet():
    yard = """
    nodes:
      - {name: n0, gpus: 1, taints: [{key: zoo, effect: NoSchedule}]}
      - {name: n1, gpus: 1, taints: [{key: ant, effect: NoSchedule}]}
      - {name: n2, gpus: 1, taints: [{key: cat, effect: NoSchedule}]}
      - {name: n3, gpus: 1, taints: [{key: cat, effect: NoSchedule}]}
    jobs: [{name: w, gpus: 1}]
    """
    (told,) = outlook(moment(yard)).waiting
    assert [told.reason.message.find(key) for key in ("cat", "ant", "zoo")] == sorted(
        told.reason.message.find(key) for key in ("cat", "ant", "zoo")
    )
    assert "zoo" in told.reason.message


@pytest.mark.parametrize("wish", ["near", "apart", "even"])
def test_where_there_are_no_nodes_whoever_minds_its_neighbours_waits_as_anybody_does(wish: str):
    yard = """
    topology: [rack]
    nodes: []
    jobs:
      - name: w
        gpus: 1
        labels: {app: x}
        WISH: [{level: rack, matchExpressions: [{key: app, operator: In, values: [x]}]}]
        avoid: {level: rack, queues: [default]}
    """
    (told,) = outlook(moment(yard.replace("WISH", wish))).waiting
    assert (told.job, told.reason.outcome) == ("w", Outcome.NEVER)


RACKS = """
topology: [rack]
nodes:
{nodes}
jobs:
{held}
  - {{name: g, tasks: 2, gpus: 4, topology: {{required: rack}}}}
"""


@pytest.mark.parametrize(
    ("racks", "outcome"),
    [("abcdefghhijklmno", Outcome.NOT_NOW), ("abcdefghijklmnop", Outcome.NEVER), ("aabcdefghijklmno", Outcome.NOT_NOW)],
)
def test_whether_a_job_could_ever_run_is_a_matter_of_all_nodes_though_few_are_looked_at_first(
    racks: str, outcome: Outcome
):
    nodes = "\n".join(f"  - {{name: n{i:02}, gpus: 4, domains: {{rack: {rack}}}}}" for i, rack in enumerate(racks))
    held = "\n".join(f'  - {{name: h{i}, priority: 99, at: "n{i:02}:0-3"}}' for i in range(len(racks)))
    told = outlook(moment(RACKS.format(nodes=nodes, held=held))).waiting
    assert [(each.job, each.reason.outcome) for each in told] == [("g", outcome)]
