"""Waits that are too long: raised at the threshold of the class, once for each cause, cleared when they are over."""

from __future__ import annotations

from dataclasses import replace

from gpuyard.brain.controllers.alarms.remembering import AlarmsKept
from gpuyard.brain.decide import Decision, decide, observe
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.files import parse_snapshot
from gpuyard.model.alerts import Alert, AlertKind, Severity
from gpuyard.model.events import JobGone, JobSeen
from gpuyard.model.snapshot import Snapshot

HEADER = "apiVersion: gpuyard.dev/v1\nkind: Snapshot\nnow: 2026-01-01T12:00:00Z\n"
HOUR, MINUTE = 3600.0, 60.0
FULL = """
nodes: [{name: n0, gpus: 8, model: H100}, {name: n1, gpus: 8, model: H100}]
queues: [{name: a, quota: 8}, {name: b, quota: 8}]
jobs:
  - {name: one, queue: a, gpus: 8, preemptible: false, started: 2026-01-01T09:00:00Z,
     placements: [{node: n0, gpus: [0, 1, 2, 3, 4, 5, 6, 7]}]}
  - {name: two, queue: b, gpus: 8, preemptible: false, started: 2026-01-01T09:00:00Z,
     placements: [{node: n1, gpus: [0, 1, 2, 3, 4, 5, 6, 7]}]}
"""


def moment(jobs: str = "", fleet: str = FULL) -> Snapshot:
    return parse_snapshot(HEADER + fleet + jobs, "here", 0.0)


def at(snapshot: Snapshot, later: float = 0.0, memory: Memory | None = None) -> Decision:
    """One plan; without a memory the second of two, for who is late is looked into a second after it is found."""
    now = snapshot.now + later
    first = decide(Fleet(snapshot), memory or Memory(), now)
    return first if memory is not None else decide(Fleet(snapshot), first.memory, now + 1)


def settled(snapshot: Snapshot, later: float) -> list[Alert]:
    """A few kinds are looked into in each plan; what stands once all are."""
    decision = at(snapshot, later)
    for more in range(1, 4):
        decision = at(snapshot, later + more, decision.memory)
    return waits(decision)


def waits(decision: Decision) -> list[Alert]:
    return [alert for alert in decision.plan.alerts if alert.kind is AlertKind.WAIT]


def test_a_job_alerts_when_it_has_waited_as_long_as_its_class_may_and_the_plan_says_when_that_is():
    snapshot = moment("  - {name: late, queue: a, gpus: 4, submitted: 2026-01-01T11:30:00Z}\n")
    before = at(snapshot)
    assert waits(before) == []
    assert before.plan.look_again_at is not None
    assert before.plan.look_again_at <= snapshot.now + HOUR / 2
    (alert,) = waits(at(snapshot, HOUR / 2))
    assert (alert.key, alert.count, alert.severity) == ("wait/a/training/NotEnoughGpus", 1, Severity.WARNING)
    assert alert.since == snapshot.now + HOUR / 2
    assert alert.command == "yard why late"
    assert alert.sentence.startswith("late (training, queue a) has waited longer than 1 h: it needs 4 GPUs")


def test_each_class_has_its_own_threshold_and_0_means_none():
    jobs = "".join(
        f"  - {{name: {of}, queue: a, class: {of}, gpus: 4, submitted: 2026-01-01T11:00:00Z, preemptible: true}}\n"
        for of in ("batch", "training", "interactive", "inference")
    )
    snapshot = moment(jobs)
    told = {dict(alert.about)["class"]: alert.severity for alert in settled(snapshot, 7 * HOUR)}
    assert told == {
        "batch": Severity.WARNING, "training": Severity.WARNING, "interactive": Severity.WARNING,
        "inference": Severity.CRITICAL,
    }  # fmt: skip
    early = {dict(alert.about)["class"] for alert in waits(at(snapshot, -50 * MINUTE))}
    assert early == {"interactive", "inference"}
    policy = snapshot.policy
    silent = {of: replace(each, alert_after=0.0) for of, each in policy.classes.items()}
    assert waits(at(replace(snapshot, policy=replace(policy, classes=silent)), 7 * HOUR)) == []


def test_a_thousand_jobs_that_wait_for_the_same_are_one_alert_that_counts_those_overdue():
    jobs = "".join(
        f"  - {{name: j{n}, queue: a, gpus: 4, submitted: 2026-01-01T{n // 100:02}:00:00Z}}\n" for n in range(1000)
    ) + "".join(f"  - {{name: k{n}, queue: a, gpus: 4, submitted: 2026-01-01T11:30:00Z}}\n" for n in range(50))
    decision = at(moment(jobs))
    (alert,) = waits(decision)
    assert (alert.count, alert.jobs) == (1000, ("j0",))
    assert alert.sentence.startswith("1000 training jobs of queue a have waited longer than 1 h, j0 the longest: it ")


def test_jobs_of_other_queues_and_for_other_reasons_are_other_causes():
    jobs = (
        "  - {name: x, queue: a, gpus: 4, submitted: 2026-01-01T10:00:00Z}\n"
        "  - {name: y, queue: b, gpus: 4, submitted: 2026-01-01T10:00:00Z}\n"
        "  - {name: z, queue: a, gpus: 9, submitted: 2026-01-01T10:00:00Z}\n"
    )
    snapshot = moment(jobs)
    first = at(snapshot)
    second = at(snapshot, 2.0, first.memory)
    keys = {alert.key: alert.sentence for alert in waits(second)}
    assert set(keys) == {
        "wait/a/training/NotEnoughGpus", "wait/b/training/NotEnoughGpus", "wait/a/training/ShapeImpossible",
    }  # fmt: skip
    assert "can never run here" in keys["wait/a/training/ShapeImpossible"]
    assert first.plan.look_again_at == snapshot.now + 2.0, "what there was no time for is looked into soon"


def test_an_alert_is_raised_once_and_cleared_when_its_job_starts_or_goes():
    snapshot = moment("  - {name: late, queue: a, gpus: 4, submitted: 2026-01-01T10:00:00Z}\n")
    fleet, memory, now = Fleet(snapshot), Memory(), snapshot.now
    _, memory = decide(fleet, memory, now)
    first, memory = decide(fleet, memory, now + 1)
    (raised,) = (a for a in first.alerts if a.kind is AlertKind.WAIT)
    for later in (60.0, 600.0):
        plan, memory = decide(fleet, memory, now + later)
        (alert,) = (a for a in plan.alerts if a.kind is AlertKind.WAIT)
        assert (alert.key, alert.since) == (raised.key, raised.since)
    memory = Memory.from_document(memory.to_document())
    memory, _ = observe(fleet, memory, [JobGone("one")], now + 900)
    plan, memory = decide(fleet, memory, now + 900)
    assert [a for a in plan.alerts if a.kind is AlertKind.WAIT] == []
    assert not any(key.startswith("wait/") for key in memory.of(AlarmsKept).alerts)


def test_what_is_remembered_of_alerts_reads_back_equal():
    decision = at(moment("  - {name: late, queue: a, gpus: 4, submitted: 2026-01-01T10:00:00Z}\n"))
    assert decision.memory.of(AlarmsKept).alerts
    assert Memory.from_document(decision.memory.to_document()) == decision.memory


def test_a_job_that_ran_before_waits_since_it_stopped_and_one_that_is_held_does_not_wait():
    jobs = (
        "  - {name: again, queue: a, gpus: 4, submitted: 2026-01-01T01:00:00Z,"
        " waiting_since: 2026-01-01T11:30:00Z}\n"
        "  - {name: kept, queue: a, gpus: 4, submitted: 2026-01-01T01:00:00Z, held: true}\n"
    )
    assert waits(at(moment(jobs))) == []
    (alert,) = waits(at(moment(jobs), HOUR))
    assert alert.jobs == ("again",)


def test_a_job_that_this_very_plan_stops_has_not_waited_yet():
    jobs = (
        "nodes: [{name: n0, gpus: 4}]\n"
        "jobs:\n"
        "  - {name: low, priority: 10, gpus: 4, submitted: 2026-01-01T01:00:00Z, started: 2026-01-01T02:00:00Z,\n"
        "     placements: [{node: n0, gpus: [0, 1, 2, 3]}]}\n"
        "  - {name: high, priority: 90, gpus: 4, submitted: 2026-01-01T11:59:00Z}\n"
    )
    decision = at(moment(fleet=jobs))
    assert {type(action).__name__ for action in decision.plan.actions} == {"Evict", "Start"}
    assert waits(decision) == []


def test_why_a_kind_waits_is_looked_into_once_an_hour_whoever_of_it_waits_longest():
    jobs = "".join(f"  - {{name: j{n}, queue: a, gpus: 4, submitted: 2026-01-01T10:00:0{n}Z}}\n" for n in range(3))
    snapshot = moment(jobs)
    fleet = Fleet(snapshot)
    _, memory = decide(fleet, Memory(), snapshot.now - 1)
    first, memory = decide(fleet, memory, snapshot.now)
    memory, _ = observe(fleet, memory, [JobGone("j0")], snapshot.now + 60)
    second, memory = decide(fleet, memory, snapshot.now + 60)
    (told,) = memory.of(AlarmsKept).told.values()
    assert told.at == snapshot.now
    (alert,) = (a for a in second.alerts if a.kind is AlertKind.WAIT)
    assert (alert.count, alert.jobs) == (2, ("j1",))
    assert "j0" not in alert.sentence
    memory, _ = observe(fleet, memory, [JobSeen(replace(snapshot.jobs[-1]))], snapshot.now + 3600)
    _, memory = decide(fleet, memory, snapshot.now + 3600)
    assert {told.at for told in memory.of(AlarmsKept).told.values()} == {snapshot.now + 3600}
    assert first.alerts[0].key == second.alerts[0].key


def test_those_whom_this_plan_stops_are_not_counted_with_those_of_their_kind_who_are_late():
    fleet = (
        "nodes: [{name: n0, gpus: 4}]\n"
        "jobs:\n"
        "  - {name: low, priority: 10, gpus: 4, submitted: 2026-01-01T01:00:00Z, started: 2026-01-01T02:00:00Z,\n"
        "     placements: [{node: n0, gpus: [0, 1, 2, 3]}]}\n"
        "  - {name: late0, priority: 10, gpus: 4, submitted: 2026-01-01T02:00:00Z}\n"
        "  - {name: late1, priority: 10, gpus: 4, submitted: 2026-01-01T03:00:00Z}\n"
        "  - {name: fresh, priority: 10, gpus: 4, submitted: 2026-01-01T11:30:00Z}\n"
        "  - {name: high, priority: 90, gpus: 4, submitted: 2026-01-01T11:59:00Z}\n"
    )
    decision = at(moment(fleet=fleet))
    assert {getattr(action, "job", "") for action in decision.plan.actions} == {"low", "high"}
    (alert,) = waits(decision)
    assert (alert.count, alert.jobs) == (2, ("late0",))
