"""What the simulated world does to jobs when it is told to, or when something breaks; no brain here."""

from __future__ import annotations

from typing import Any

import pytest

from gpuyard import files
from gpuyard.model.actions import Evict, Move, Plan, Start
from gpuyard.model.events import ActionFailed, JobSeen, NodeLost
from gpuyard.model.job import Placement
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.resources import WHOLE
from gpuyard.runtime.driving.loop import Loop
from gpuyard.worlds.sim.lives import Live
from gpuyard.worlds.sim.measuring import Measure
from gpuyard.worlds.sim.traces.trace import Arrival, Trace
from gpuyard.worlds.sim.world import Rules, SimWorld
from tests.support import yards
from tests.support.hearing import Heard
from tests.support.pretend import StillClock

WHY = Reason(Code.OVER_QUOTA)


def places(*nodes: str, first: int = 0) -> tuple[Placement, ...]:
    return tuple(Placement(node, (i,), task=i) for i, node in enumerate(nodes, first))


def begun(work: float | None, *nodes: str, overhead: float = 0.0, **keys: Any) -> tuple[SimWorld, Live, Heard]:
    """A world in which one job runs on the nodes."""
    heard = Heard()
    world = SimWorld(Trace("none", ()), Rules(), heard)
    job = files.read_submission({"name": "a", "gpus": 1, "tasks": len(nodes), **keys}, 0.0, "job").job
    world.submit(Arrival(0.0, job, work, overhead))
    live = world.jobs["a"]
    world.apply(Plan((Start("a", places(*nodes), WHY),)), 1)
    world.observe()
    return world, live, heard


def pass_time(world: SimWorld, moment: float) -> None:
    world.at(moment, lambda: None)
    while world.now() < moment:
        assert world.wait()


def driven(work: float | None, overhead: float = 0.0) -> tuple[Loop, SimWorld, Live]:
    """A world under the one loop, in which a job with a limit of ten seconds runs."""
    fleet = yards.fleet("nodes: [{name: n0, gpus: 1, model: H100}, {name: n1, gpus: 1, model: H100}]")
    world = SimWorld(Trace("none", ()), Rules(), Heard(), fleet)
    loop = Loop(world, StillClock())
    loop.open()
    job = files.read_submission({"name": "a", "gpus": 1, "time_limit": "10s"}, 0.0, "job").job
    world.submit(Arrival(0.0, job, work, overhead))
    live = world.jobs["a"]
    loop.turn()
    return loop, world, live


def until_over(loop: Loop, world: SimWorld) -> None:
    while world.jobs and world.wait():
        loop.turn()


@pytest.mark.parametrize(("work", "ends", "expired"), [(30.0, 10.0, True), (None, 10.0, True), (10.0, 10.0, False)])
def test_a_time_limit_ends_whoever_has_work_left(work: float | None, ends: float, expired: bool):
    loop, world, live = driven(work)
    until_over(loop, world)
    assert (world.now(), live.expired) == (ends, expired)


@pytest.mark.parametrize(("work", "expired"), [(10.0, False), (11.0, True)])
def test_what_a_start_costs_does_not_count_against_the_limit(work: float, expired: bool):
    loop, world, live = driven(work, overhead=5.0)
    until_over(loop, world)
    assert (world.now(), live.expired) == (15.0, expired)


def test_each_attempt_has_the_whole_limit():
    loop, world, live = driven(30.0)
    pass_time(world, 6.0)
    world.apply(Plan((Evict("a", WHY),)), 2)
    loop.open()
    loop.turn()
    until_over(loop, world)
    assert (world.now(), live.expired) == (16.0, True)


def test_an_order_for_somebody_who_is_not_there_does_nothing_and_says_so():
    _, world, live = driven(30.0)
    told = world.apply(Plan((Evict("a", WHY, uids=("a.1.0",)),)), 2)
    assert [type(event) for event in told] == [ActionFailed]
    assert (live.running, live.evictions) == (True, 0)


def test_whoever_waits_for_what_a_limit_frees_starts_in_the_same_moment():
    loop, world, _ = driven(30.0)
    job = files.read_submission({"name": "b", "gpus": 1, "tasks": 2}, 0.0, "job").job
    world.submit(Arrival(0.0, job, 5.0))
    other = world.jobs["b"]
    loop.turn()
    until_over(loop, world)
    assert other.first_start == 10.0


def test_a_job_without_end_or_limit_stays_for_ever():
    world, live, _ = begun(None, "n0")
    assert not world.wait()
    assert live.running


def test_a_gang_that_loses_a_member_with_its_node_waits_and_its_work_is_undone():
    world, live, heard = begun(30.0, "n0", "n1")
    pass_time(world, 10.0)
    world.lose_node("n1", lambda _: 4.0)
    seen, lost = world.observe()
    assert (seen, lost) == (JobSeen(world.described(live)), NodeLost("n1"))
    assert (live.placements, live.left, live.evictions) == ((), 24.0, 0)
    assert heard.names[-1] == "stopped"
    world.apply(Plan((Start("a", places("n0", "n0"), WHY),)), 1)
    assert live.attempts == 2


def test_an_elastic_gang_goes_on_without_a_lost_node_down_to_its_minimum():
    world, live, heard = begun(30.0, "n0", "n1", "n2", min=2)
    pass_time(world, 10.0)
    world.lose_node("n2")
    assert (live.placements, live.attempts, heard.names[-1]) == (places("n0", "n1"), 1, "resized")
    world.lose_node("n1")
    assert (live.placements, heard.names[-1]) == ((), "stopped")


def test_a_node_without_tenants_is_lost_too():
    world, live, _ = begun(30.0, "n0")
    world.lose_node("n1")
    assert list(world.observe()) == [NodeLost("n1")]
    assert live.running


def test_an_eviction_of_some_members_leaves_the_others_at_work():
    world, live, _ = begun(30.0, "n0", "n1", min=1)
    pass_time(world, 10.0)
    world.apply(Plan((Evict("a", WHY, placements=places("n1", first=1)),)), 1)
    assert (live.placements, live.evictions) == (places("n0"), 0)
    assert world.wait()
    assert world.now() == 30.0


def test_growing_costs_no_work_and_no_attempt():
    world, live, heard = begun(30.0, "n0", min=1, tasks=2)
    pass_time(world, 10.0)
    world.apply(Plan((Start("a", places("n1", first=1), WHY),)), 1)
    assert (live.placements, live.attempts, heard.names[-1]) == (places("n0", "n1"), 1, "resized")
    assert world.wait()
    assert (world.now(), live.held) == (30.0, 30.0)


def test_evictions_and_moves_are_counted():
    world, live, _ = begun(30.0, "n0")
    world.apply(Plan((Move("a", places("n0"), places("n1"), WHY),)), 1)
    world.apply(Plan((Evict("a", WHY),)), 1)
    assert (live.attempts, live.evictions) == (2, 2)


def test_an_elastic_gang_is_measured_by_what_it_holds_not_by_what_it_might():
    measure = Measure(Trace("none", ()), 4 * WHOLE)
    world = SimWorld(Trace("none", ()), Rules(), measure)
    job = files.read_submission({"name": "a", "gpus": 1, "tasks": 4, "min": 1}, 0.0, "job").job
    world.submit(Arrival(0.0, job, 100.0, 0.0))
    world.apply(Plan((Start("a", places("n0", "n1"), WHY),)), 1)
    pass_time(world, 50.0)
    world.lose_node("n1")
    world.apply(Plan(), 1)
    while world.wait():
        world.apply(Plan(), 1)
    assert measure.figures().utilisation == pytest.approx((50 * 2 + 50 * 1) / (100 * 4))
