"""Promises that are not kept, knots and closed nodes: each raised once, each cleared when it is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpuyard.brain.decide import decide, observe
from gpuyard.brain.engine.giving_way import victims
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Evictions, Memory
from gpuyard.files import parse_snapshot
from gpuyard.model.alerts import Alert, AlertKind, Severity
from gpuyard.model.events import Event, JobEvicted, JobGone, NodeSeen
from gpuyard.model.node import Closure
from gpuyard.model.snapshot import Snapshot

HEADER = "apiVersion: gpuyard.dev/v1\nkind: Snapshot\nnow: 2026-01-01T12:00:00Z\n"
HOUR, DAY = 3600.0, 86_400.0


class Watched:
    """One yard, looked at again and again."""

    def __init__(self, text: str, memory: Memory | None = None) -> None:
        self.snapshot: Snapshot = parse_snapshot(HEADER + text, "here", 0.0)
        self.fleet = Fleet(self.snapshot)
        self.memory = memory or Memory()
        self.look_again: float | None = None

    def after(self, seconds: float, *events: Event, kind: AlertKind) -> Sequence[Alert]:
        now = self.snapshot.now + seconds
        self.memory, _ = observe(self.fleet, self.memory, events, now)
        plan, memory = decide(self.fleet, self.memory, now)
        self.memory = Memory.from_document(memory.to_document())
        self.look_again = plan.look_again_at
        return [alert for alert in plan.alerts if alert.kind is kind]


# --- quotas --------------------------------------------------------------------------------------

LENT = """
nodes: [{name: n0, gpus: 8, model: H100}]
queues: [{name: a, quota: 4}, {name: b, quota: 4}]
jobs:
  - {name: big, queue: b, gpus: 8, preemptible: false, started: 2026-01-01T09:00:00Z,
     placements: [{node: n0, gpus: [0, 1, 2, 3, 4, 5, 6, 7]}]}
  - {name: mine, queue: a, gpus: %s, submitted: 2026-01-01T12:00:00Z}
"""


def test_a_queue_that_asks_for_its_quota_in_vain_alerts_after_a_while_and_no_more_once_it_is_served():
    yard = Watched(LENT % 4)
    assert yard.after(0, kind=AlertKind.BELOW_QUOTA) == []
    assert yard.look_again is not None
    assert yard.look_again <= yard.snapshot.now + HOUR
    assert yard.after(HOUR - 1, kind=AlertKind.BELOW_QUOTA) == []
    (alert,) = yard.after(HOUR, kind=AlertKind.BELOW_QUOTA)
    assert (alert.key, alert.since, alert.command) == ("below-quota/a", yard.snapshot.now + HOUR, "yard why mine")
    assert alert.sentence == (
        "queue a has asked for longer than 1 h for what its quota guarantees: it holds 0 of 4 GPUs, and mine waits"
    )
    assert yard.after(2 * HOUR, JobGone("big"), kind=AlertKind.BELOW_QUOTA) == []


def test_a_queue_that_asks_for_more_than_its_quota_leaves_has_nothing_to_complain_of():
    yard = Watched(LENT % 5)
    assert yard.after(0, kind=AlertKind.BELOW_QUOTA) == []
    assert yard.after(5 * HOUR, kind=AlertKind.BELOW_QUOTA) == []


def test_a_parent_s_quota_is_a_promise_to_its_children():
    text = (LENT % 4).replace("{name: a, quota: 4}", "{name: p, quota: 4}, {name: a, parent: p}")
    yard = Watched(text)
    yard.after(0, kind=AlertKind.BELOW_QUOTA)
    (alert,) = yard.after(HOUR, kind=AlertKind.BELOW_QUOTA)
    assert alert.key == "below-quota/p"


# --- reservations --------------------------------------------------------------------------------

PROMISED = """
nodes: [{name: n0, gpus: 4, model: H100}, {name: n1, gpus: 4, model: H100}]
jobs:
  - {name: limited, gpus: 4, time_limit: 1h, preemptible: false, started: 2026-01-01T11:30:00Z,
     placements: [{node: n0, gpus: [0, 1, 2, 3]}]}
  - {name: gang, tasks: 2, gpus: 4, submitted: 2026-01-01T12:00:00Z}
"""


def test_a_start_that_a_reservation_promised_and_that_does_not_come_alerts():
    yard = Watched(PROMISED)
    assert yard.after(0, kind=AlertKind.RESERVATION) == []
    assert yard.after(HOUR / 2 + 299, kind=AlertKind.RESERVATION) == []
    (alert,) = yard.after(HOUR / 2 + 300, kind=AlertKind.RESERVATION)
    assert alert.sentence == (
        "the reservation of gang cannot be met: it was to start by 2026-01-01 12:30 UTC and still waits"
    )
    assert yard.after(HOUR, JobGone("limited"), kind=AlertKind.RESERVATION) == []


def test_a_reservation_whose_places_are_gone_for_good_alerts():
    yard = Watched(PROMISED.replace(" time_limit: 1h,", ""))
    assert yard.after(2 * HOUR, kind=AlertKind.RESERVATION) == []
    n1 = yard.snapshot.nodes[1]
    events = [NodeSeen(replace(n1, gpus=n1.gpus[:2]))]
    (alert,) = yard.after(2 * HOUR + 1, *events, kind=AlertKind.RESERVATION)
    assert alert.sentence.endswith("it had room reserved, and no place is left that could hold it")


# --- victims -------------------------------------------------------------------------------------


def test_a_job_that_was_evicted_too_often_alerts_until_the_day_is_over():
    yard = Watched(LENT % 4)
    begin = yard.snapshot.now
    for n in range(2):
        assert yard.after(n, JobEvicted("mine", begin + n), kind=AlertKind.PROTECTED) == []
    (alert,) = yard.after(2, JobEvicted("mine", begin + 2), kind=AlertKind.PROTECTED)
    assert (alert.key, alert.count, alert.since) == ("protected/a", 1, begin + 2)
    assert alert.sentence == "1 job was evicted 3 times in a day and may not be evicted again for now: mine"
    assert yard.after(DAY - 1, kind=AlertKind.PROTECTED) != []
    assert yard.look_again == begin + DAY
    assert yard.after(DAY, kind=AlertKind.PROTECTED) == []


def test_of_several_jobs_that_were_evicted_too_often_the_first_three_are_named():
    more = "".join(f"  - {{name: {name}, queue: a, gpus: 1}}\n" for name in "dcba")
    evicted = Memory().keeping(Evictions(dict.fromkeys("abcd", (1767268700.0,) * 3)))
    (alert,) = Watched(LENT % 4 + more, evicted).after(1, kind=AlertKind.PROTECTED)
    assert (alert.count, alert.jobs) == (4, ("a", "b", "c"))


def test_where_none_is_too_many_whoever_was_evicted_at_all_is_protected_and_alerts_and_nobody_else():
    begin = 1767268800.0
    times = {"big": (), "mine": (begin - 200, begin - 100)}
    yard = Watched("policy: {protect_after: 0}\n" + LENT % 4, Memory().keeping(Evictions(times)))
    draft = Draft(yard.fleet, yard.memory, begin)
    assert {name: victims.spared(draft, row) for name, row in yard.fleet.jobs.items()} == {"big": False, "mine": True}
    (alert,) = yard.after(0, kind=AlertKind.PROTECTED)
    assert (alert.key, alert.count, alert.since) == ("protected/a", 1, begin - 200)
    assert alert.sentence == "1 job was evicted 1 time in a day and may not be evicted again for now: mine"
    assert yard.after(DAY - 101, kind=AlertKind.PROTECTED) != []
    assert yard.after(DAY - 100, kind=AlertKind.PROTECTED) == []


def test_a_job_that_is_gone_is_protected_no_longer():
    gone = Memory().keeping(Evictions({"ghost": (1767268800.0,) * 3}))
    yard = Watched(LENT % 4, gone)
    assert yard.after(1, kind=AlertKind.PROTECTED) == []


# --- knots and closed nodes ----------------------------------------------------------------------

KNOT = """
policy: {deadlock: %s}
nodes: [{name: n0, gpus: 4}]
jobs:
  - {name: A, tasks: 4, gpus: 1, submitted: 2026-01-01T11:40:00Z, started: 2026-01-01T11:50:00Z,
     stale_grace: -1s, placements: [{node: n0, gpus: [0]}, {node: n0, gpus: [1]}]}
  - {name: B, tasks: 4, gpus: 1, submitted: 2026-01-01T11:45:00Z, started: 2026-01-01T11:50:00Z,
     stale_grace: -1s, placements: [{node: n0, gpus: [2]}, {node: n0, gpus: [3]}]}
"""


def test_a_deadlock_is_critical_while_nobody_breaks_it_and_good_to_know_where_the_plan_does():
    (told,) = Watched(KNOT % "break").after(0, kind=AlertKind.DEADLOCK)
    assert (told.severity, told.jobs) == (Severity.INFO, ("A", "B"))
    assert told.sentence.endswith("; B gives way")
    yard = Watched(KNOT % "propose")
    (first,) = yard.after(0, kind=AlertKind.DEADLOCK)
    (again,) = yard.after(600, kind=AlertKind.DEADLOCK)
    assert (again.key, again.since, again.severity) == (first.key, yard.snapshot.now, Severity.CRITICAL)
    assert again.sentence.endswith("; `yard requeue B` would end it (2 GPUs disturbed, 44m of GPU time to do again)")


def test_closed_nodes_are_one_alert_for_each_reason_and_over_once_they_are_open():
    nodes = ", ".join(f"{{name: n{n}, gpus: 4}}" for n in range(6))
    yard = Watched(f"nodes: [{nodes}]\n")
    assert yard.after(0, kind=AlertKind.CLOSED) == []
    fan = Closure("fan", "ops", drains=True, since=yard.snapshot.now)
    closed = [NodeSeen(replace(node, closed=fan)) for node in yard.snapshot.nodes[:5]]
    odd = yard.snapshot.nodes[5]
    gpu = replace(odd.gpus[1], closed=Closure("somebody else has it"))
    one = NodeSeen(replace(odd, gpus=(odd.gpus[0], gpu, *odd.gpus[2:])))
    found = yard.after(1, *closed, one, kind=AlertKind.CLOSED)
    assert [(alert.count, alert.sentence) for alert in found] == [
        (5, "n0, n1, n2 and 2 more take nothing new: drained by ops (fan)"),
        (1, "n5:1 takes nothing new: closed (somebody else has it)"),
    ]
    opened = [NodeSeen(node) for node in yard.snapshot.nodes]
    assert yard.after(2, *opened, kind=AlertKind.CLOSED) == []
