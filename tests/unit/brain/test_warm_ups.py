"""What a restart costs: by class until jobs like it have shown it, learned from start to first progress; and ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuyard.brain import decide
from gpuyard.brain.engine.giving_way import victims
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory, Progresses
from gpuyard.brain.engine.reserving import eta
from gpuyard.brain.foresee import Foresight
from gpuyard.files import parse_snapshot
from gpuyard.model.actions import Evict
from gpuyard.model.events import Event, JobGone, JobProgressed, JobSeen, TasksRunning
from gpuyard.model.snapshot import Snapshot

HEADER = "apiVersion: gpuyard.dev/v1\nkind: Snapshot\nnow: 2026-01-01T03:00:00Z\n"
RUNNING = "started: 2026-01-01T02:50:00Z, priority: 10"
JOBS = f"""
nodes: [{{name: n0, gpus: 4, model: H100}}]
jobs:
  - {{name: a, gpus: 1, {RUNNING}, placements: [{{node: n0, gpus: [0]}}]}}
  - {{name: b, gpus: 1, class: batch, {RUNNING}, placements: [{{node: n0, gpus: [1]}}]}}
  - {{name: c, gpus: 2, {RUNNING}, placements: [{{node: n0, gpus: [2, 3]}}]}}
"""


def moment(text: str = JOBS) -> Snapshot:
    return parse_snapshot(HEADER + text, "here", 0.0)


def learned(snapshot: Snapshot, *events: JobProgressed | JobGone) -> tuple[Fleet, Memory]:
    fleet, memory = Fleet(snapshot), Memory()
    for event in events:
        memory = decide.observe(fleet, memory, [event], snapshot.now).memory
    return fleet, memory


def begun(snapshot: Snapshot, seconds: float) -> float:
    return (snapshot.jobs[0].started or 0.0) + seconds


@pytest.mark.parametrize(
    ("kind", "seconds"), [("training", 120), ("batch", 30), ("interactive", 10), ("inference", 60)]
)
def test_a_restart_costs_something_by_default(kind: str, seconds: float):
    snapshot = moment(f"nodes: [{{name: n0, gpus: 4}}]\njobs: [{{name: a, class: {kind}, gpus: 1}}]")
    fleet = Fleet(snapshot)
    assert victims.warm_up(Draft(fleet, Memory(), snapshot.now), fleet.jobs["a"]) == seconds


def test_it_is_learned_from_start_to_first_progress_for_jobs_of_one_shape():
    snapshot = moment()
    starts = [replace(job, started=begun(snapshot, shift)) for shift in (0, 10, 20) for job in snapshot.jobs[:1]]
    memory = Memory()
    for job, takes in zip(starts, (300.0, 500.0, 400.0), strict=True):
        fleet = Fleet(replace(snapshot, jobs=(job, *snapshot.jobs[1:])))
        told = [JobProgressed("a", (job.started or 0.0) + takes + step, 1.0 + step) for step in (0.0, 1.0)]
        memory = decide.observe(fleet, memory, told, snapshot.now).memory
    fleet = Fleet(snapshot)
    draft = Draft(fleet, memory, snapshot.now)
    assert memory.of(Progresses).warm_ups == {"default/training/1x1": (300.0, 500.0, 400.0)}
    assert [victims.warm_up(draft, fleet.jobs[name]) for name in "abc"] == [400.0, 30.0, 120.0]
    assert Memory.from_document(memory.to_document()) == memory


def test_who_is_cheaper_to_restart_is_the_victim_though_both_have_run_as_long():
    text = JOBS + "  - {name: claimant, gpus: 1, priority: 90}\n"
    plan = decide.decide(Fleet(moment(text)), Memory(), moment(text).now).plan
    assert [action.job for action in plan.actions if isinstance(action, Evict)] == ["b"]


def test_the_bill_counts_the_warm_up():
    text = JOBS + "  - {name: claimant, gpus: 1, priority: 90}\n"
    (toll,) = Foresight(moment(text)).outlook().bill.tolls
    assert (toll.job, toll.lost_gpu_s) == ("b", 600 + 30)


def test_a_job_that_tells_how_far_it_is_says_when_others_may_start():
    snapshot = moment(JOBS + "  - {name: next, gpus: 2, priority: 5}\n")
    now = snapshot.now
    fleet, memory = learned(
        snapshot, JobProgressed("c", now - 400, 100, 1000), JobProgressed("c", now - 100, 400, 1000)
    )
    span = eta.estimate(Draft(fleet, memory, now), fleet.jobs["next"])
    assert span == (250.0, 500.0)  # 600 steps are left at a second each, 100 s ago


def test_who_saved_its_work_lately_is_the_victim_and_the_bill_says_so():
    text = JOBS + "  - {name: claimant, gpus: 1, priority: 90}\n"
    snapshot = moment(text)
    fleet, memory = learned(snapshot, JobProgressed("a", snapshot.now - 5, 9, saved=snapshot.now - 400))
    plan = decide.decide(fleet, memory, snapshot.now).plan
    assert [each.job for each in plan.actions if isinstance(each, Evict)] == ["a"]  # the other loses 600 s + 30 s
    (toll,) = Foresight(replace(snapshot, memory=memory.to_document())).outlook().bill.tolls
    assert (toll.job, toll.lost_gpu_s) == ("a", 400 + 120)


def test_work_saved_before_the_last_start_is_not_saved_twice():
    snapshot = moment()
    fleet, memory = learned(snapshot, JobProgressed("a", begun(snapshot, 9), 1, saved=begun(snapshot, -300)))
    assert victims.unsaved(Draft(fleet, memory, snapshot.now), fleet.jobs["a"]) == 600


def test_before_a_job_has_a_pace_of_its_own_that_of_jobs_like_it_says_when_it_ends():
    snapshot = moment(JOBS + "  - {name: next, gpus: 2, priority: 5}\n")
    now, memory = snapshot.now, Memory()
    for second in (2.0, 4.0, 3.0):
        told = [JobProgressed("c", now - 500, 100, 1000), JobProgressed("c", now - 500 + 100 * second, 200, 1000)]
        memory = decide.observe(Fleet(snapshot), memory, [*told, JobGone("c")], now).memory
    assert memory.of(Progresses).paces == {"default/training/1x2": (2.0, 4.0, 3.0)}
    fleet = Fleet(snapshot)
    memory = decide.observe(fleet, memory, [JobProgressed("c", now - 30, 900, 1000)], now).memory
    assert eta.estimate(Draft(fleet, memory, now), fleet.jobs["next"]) == (135.0, 270.0)


def test_a_start_and_the_first_word_may_come_in_one_breath():
    snapshot = moment()
    ran = snapshot.jobs[0]
    before = Fleet(replace(snapshot, jobs=(replace(ran, placements=(), started=None), *snapshot.jobs[1:])))
    began = begun(snapshot, 0)
    told: list[Event] = [TasksRunning("a", ran.placements, began), JobProgressed("a", began + 70, 1, 2, None, began)]
    assert decide.observe(before, Memory(), told, snapshot.now).memory.of(Progresses).warm_ups == {
        "default/training/1x1": (70.0,)
    }
    bare = Fleet(replace(snapshot, jobs=()))
    told = [JobSeen(ran), JobProgressed("a", began + 80, 1, 2)]
    assert decide.observe(bare, Memory(), told, snapshot.now).memory.of(Progresses).warm_ups == {
        "default/training/1x1": (80.0,)
    }


def test_counting_from_nothing_is_no_step_and_old_news_change_nothing():
    snapshot = moment()
    began = begun(snapshot, 0)
    told = [JobProgressed("a", began + 1, 0, 10), JobProgressed("a", began + 60, 1, 10)]
    _, memory = learned(snapshot, *told, JobProgressed("a", began + 90, 3, 10))
    assert memory.of(Progresses).warm_ups == {"default/training/1x1": (60.0,)}
    _, again = learned(snapshot, *told, JobProgressed("a", began + 90, 3, 10), *told)
    assert again == memory


def test_who_is_gone_is_forgotten_and_who_is_unknown_is_no_mistake():
    snapshot = moment()
    _, memory = learned(snapshot, JobProgressed("a", snapshot.now, 1, 2), JobProgressed("x", 0.0, 1), JobGone("a"))
    assert memory.of(Progresses).jobs == {}
