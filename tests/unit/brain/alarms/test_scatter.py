"""Fragmentation is seen before somebody waits: by what was asked for in the last day, shape by shape."""

from __future__ import annotations

from dataclasses import replace

from gpuyard.brain import foresee
from gpuyard.brain.controllers.alarms.remembering import AlarmsKept
from gpuyard.brain.decide import decide, observe
from gpuyard.brain.engine.defrag.asked import SHAPES_KEPT, AskedShape, DayAsked, asked_by
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.files import parse_snapshot
from gpuyard.model.alerts import Alert, AlertKind
from gpuyard.model.events import Event, JobGone, JobSeen
from gpuyard.model.job import Job, TaskGroup, one_group
from gpuyard.model.resources import WHOLE, Request
from gpuyard.model.snapshot import Snapshot
from gpuyard.model.topology import TopologyAsk

HEADER = "apiVersion: gpuyard.dev/v1\nkind: Snapshot\nnow: 2026-01-01T12:00:00Z\n"
HOUR, DAY = 3600.0, 86_400.0


def scattered(nodes: int = 4, policy: str = "") -> Snapshot:
    """One small job on every node of eight GPUs; nobody waits."""
    jobs = "".join(
        f"  - {{name: s{n}, gpus: 2, started: 2026-01-01T11:00:00Z, placements: [{{node: n{n}, gpus: [0, 1]}}]}}\n"
        for n in range(nodes)
    )
    listed = ", ".join(f"{{name: n{n}, gpus: 8, model: H100, pool: h100}}" for n in range(nodes))
    return parse_snapshot(f"{HEADER}{policy}nodes: [{listed}]\njobs:\n{jobs}", "here", 0.0)


def asked(gpus: int, count: int, now: float) -> list[JobSeen]:
    return [
        JobSeen(Job(f"j{gpus}-{now:g}-{n}", one_group(TaskGroup(request=Request(gpus=gpus))), submitted=now))
        for n in range(count)
    ]


class Watched:
    """A scattered yard, looked at again and again."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot, self.fleet, self.memory = snapshot, Fleet(snapshot), Memory()
        self.look_again: float | None = None

    def after(self, seconds: float, *events: Event) -> list[Alert]:
        now = self.snapshot.now + seconds
        self.memory, _ = observe(self.fleet, self.memory, events, now)
        plan, memory = decide(self.fleet, self.memory, now)
        self.memory, self.look_again = Memory.from_document(memory.to_document()), plan.look_again_at
        return [alert for alert in plan.alerts if alert.kind is AlertKind.FRAGMENTATION]

    def come_and_go(self, seconds: float, gpus: int, count: int) -> None:
        """Jobs that were asked for and are gone: nobody waits for their shape now."""
        jobs = asked(gpus, count, self.snapshot.now + seconds)
        self.after(seconds, *jobs)
        self.after(seconds + 1, *(JobGone(event.job.name) for event in jobs))


def test_what_nobody_waits_for_now_is_stranded_all_the_same_if_it_was_asked_for_today():
    yard = Watched(scattered())
    yard.come_and_go(0, gpus=8, count=3)
    assert yard.after(301) == []
    (alert,) = yard.after(905)
    assert alert.key == "fragmentation/h100"
    assert alert.sentence == (
        "24 of 24 free GPUs of pool h100 are of no use where they lie to what was asked for in the last day; "
        "the shape 8 fits 0 times"
    )
    assert alert.command == "yard defrag --dry-run"
    pool = yard.memory.of(AlarmsKept).stranding["h100"]
    assert (pool["free"], pool["stranded"]) == (24, 24)
    assert foresee.fragmentation(scattered()).ratio == 0.0, "the ratio of those who wait says nothing"


def test_the_alert_is_over_when_the_demand_of_the_day_is_another_or_the_gaps_are_closed():
    yard = Watched(scattered())
    yard.come_and_go(0, gpus=8, count=3)
    yard.after(301)
    assert yard.after(905) != []
    assert yard.after(2000, JobGone("s0"), JobGone("s1"), JobGone("s2"), JobGone("s3")) == []
    again = Watched(scattered())
    again.come_and_go(0, gpus=8, count=1)
    again.after(301)
    assert again.after(905) != []
    again.come_and_go(DAY + HOUR, gpus=1, count=1)
    assert again.after(DAY + 2 * HOUR) == [], "what was asked for yesterday is forgotten"


def test_a_policy_sets_the_share_the_least_number_and_the_patience():
    for policy, expected in (
        ("{fragmentation: 0}", 0), ("{fragmentation_gpus: 25}", 0), ("{fragmentation_after: 1h}", 0),
        ("{fragmentation: 0.9, fragmentation_gpus: 24}", 1),
    ):  # fmt: skip
        yard = Watched(scattered(policy=f"policy: {{alerts: {policy}}}\n"))
        yard.come_and_go(0, gpus=8, count=3)
        yard.after(301)
        assert len(yard.after(905)) == expected, policy


def test_it_is_measured_every_few_minutes_at_most_and_the_plan_says_when_it_is_next():
    yard = Watched(scattered())
    yard.come_and_go(0, gpus=8, count=3)
    begin = yard.snapshot.now
    assert yard.look_again == begin + 10, "the first plan of all has enough to do"
    yard.after(20)
    first = yard.memory.of(AlarmsKept).looked_at
    assert first == begin + 20
    yard.after(30, *asked(1, 1, begin + 30))
    assert yard.memory.of(AlarmsKept).looked_at == first
    assert yard.look_again is not None
    assert yard.look_again <= first + 300


def test_shapes_are_weighed_by_the_gpus_that_were_asked_for_and_gangs_by_their_level():
    text = HEADER + (
        "topology: [rack]\n"
        "nodes: [{name: n0, gpus: 4, pool: p, domains: {rack: a}}, {name: n1, gpus: 4, pool: p, domains: {rack: b}}]\n"
        "jobs:\n"
        "  - {name: a, gpus: 1, started: 2026-01-01T11:00:00Z, placements: [{node: n0, gpus: [0]}]}\n"
        "  - {name: b, tasks: 2, gpus: 3, topology: {required: rack}, held: true}\n"
    )
    (pool,) = foresee.fragmentation(parse_snapshot(text, "here", 0.0)).day
    found = {shape.shape: (shape.fits, shape.stranded // WHOLE) for shape in pool.shapes}
    assert found == {"1": (7, 0), "2×3 in one rack": (0, 7)}
    assert round(pool.share, 3) == round(6 / 7, 3)


def test_a_group_of_which_none_need_run_counts_by_its_first_task():
    """Once it was remembered as a gang of no tasks, and every measurement of the day failed."""
    inside = TopologyAsk(required="nvlink")
    workers = TaskGroup("workers", tasks=2, min=0, request=Request(gpus=2), topology=inside)
    job = Job("duo", one_group(workers))
    assert [shape.tasks for shape, _ in asked_by(job)] == [1]
    watched = Watched(scattered())
    watched.after(0, JobSeen(job))
    watched.after(1, JobGone("duo"))
    watched.after(HOUR)
    assert watched.memory.of(AlarmsKept).stranding["h100"]["shapes"]["1×2 in one nvlink"]


def test_what_is_remembered_is_bounded_and_a_restart_counts_nobody_twice():
    part = DayAsked()
    for n in range(3 * SHAPES_KEPT):
        part = part.with_asked({AskedShape(WHOLE, 1, "", (f"m{n}",)).key: float(n + 1)}, 0.0)
    assert len(part.gpus) == SHAPES_KEPT
    assert min(part.total(0.0).values()) > SHAPES_KEPT
    yard = Watched(scattered())
    jobs = asked(8, 3, yard.snapshot.now)
    yard.after(0, *jobs)
    before = yard.memory.of(DayAsked).total(yard.snapshot.now)
    yard.fleet = Fleet(replace(yard.snapshot, jobs=()))
    yard.after(10, *(JobSeen(job) for job in yard.snapshot.jobs), *jobs)
    assert yard.memory.of(DayAsked).total(yard.snapshot.now) == before


def test_what_was_asked_for_counts_for_a_day_and_is_then_forgotten():
    key, hour = AskedShape(WHOLE, 1, "", ()).key, 3600.0
    part = DayAsked().with_asked({key: 2.0}, 10 * hour)
    assert part.total(33.9 * hour) == {key: 2.0}
    assert part.total(34 * hour) == {}
    assert part.with_asked({key: 1.0}, 33.9 * hour).gpus == {key: {"10": 2.0, "33": 1.0}}
    assert part.with_asked({key: 1.0}, 34 * hour).gpus == {key: {"34": 1.0}}
    assert part.with_asked({}, 34 * hour).gpus == {}


def test_every_job_that_comes_counts_for_the_gpus_it_asks_for_and_those_alike_together():
    yard = Watched(scattered())
    yard.after(0, *asked(8, 3, yard.snapshot.now), *asked(2, 1, yard.snapshot.now))
    eight, two = (AskedShape(gpus * WHOLE, 1, "", ()).key for gpus in (8, 2))
    assert yard.memory.of(DayAsked).total(yard.snapshot.now) == {eight: 24.0, two: 2.0}


def test_a_shape_reads_back_from_its_key():
    for shape in (AskedShape(WHOLE, 4, "rack", ("H100", "A100")), AskedShape(WHOLE // 2, 1, "", ())):
        assert AskedShape.of_key(shape.key) == shape


def test_a_snapshot_says_at_once_what_is_scattered_for_its_time_stands_still():
    busy = scattered()
    wide = parse_snapshot(
        HEADER + "nodes: [{name: x, gpus: 8, pool: h100}]\njobs:\n"
        "  - {name: w, gpus: 8, started: 2026-01-01T11:00:00Z, placements: [{node: x, gpus: [0,1,2,3,4,5,6,7]}]}\n",
        "here", 0.0,
    )  # fmt: skip
    found = foresee.alerts(replace(busy, nodes=(*busy.nodes, *wide.nodes), jobs=(*busy.jobs, *wide.jobs)))
    assert [(alert.kind, alert.since) for alert in found] == [(AlertKind.FRAGMENTATION, busy.now)]


def test_one_figure_an_hour_is_kept_for_a_day():
    yard = Watched(scattered())
    yard.come_and_go(0, gpus=8, count=3)
    begin = yard.snapshot.now
    for seconds in (20.0, 330.0, 3615.0, 3925.0, 4500.0):
        yard.after(seconds)
    assert [at - begin for at, _ in yard.memory.of(AlarmsKept).trend["h100"]] == [20.0, 3925.0]
    for hour in range(2, 30):
        yard.after(hour * HOUR + 400)
    kept = yard.memory.of(AlarmsKept).trend["h100"]
    assert (len(kept), kept[-1][0] - begin) == (24, 29 * HOUR + 400)


def test_a_pool_that_becomes_an_alert_between_two_measurements_is_measured_then():
    yard = Watched(scattered(policy="policy: {alerts: {fragmentation_after: 400s}}\n"))
    yard.come_and_go(0, gpus=8, count=3)
    begin = yard.snapshot.now
    yard.after(20)
    yard.after(330)
    assert yard.memory.of(AlarmsKept).looked_at == begin + 330
    assert yard.look_again == begin + 420
    assert yard.after(419) == []
    assert yard.memory.of(AlarmsKept).looked_at == begin + 330, "nothing is due yet"
    (alert,) = yard.after(420)
    assert (alert.since, yard.memory.of(AlarmsKept).looked_at) == (begin + 420, begin + 420)


def test_between_measurements_the_alert_stands_and_an_event_says_when_the_next_one_is():
    yard = Watched(scattered())
    yard.come_and_go(0, gpus=8, count=3)
    yard.after(301)
    (raised,) = yard.after(905)
    begin = yard.snapshot.now
    assert yard.after(1000, JobSeen(replace(yard.snapshot.jobs[0], priority=51))) == [raised]
    assert yard.look_again == begin + 905 + 300
