"""A day of 1,024 GPUs, three teams and a bad mix of jobs: the alerts are all true, none is missing, one for each cause.

What is true is found by a reader of its own, from what the simulated world did (who came, ran, stopped and ended, which
nodes were closed) by plain counting: none of the brain's code is asked.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cache

import pytest

from gpuyard.model.actions import Plan
from gpuyard.model.alerts import Alert, AlertKind
from gpuyard.model.events import Event, JobEvicted, NodeSeen
from gpuyard.model.job import Job, JobClass, TaskGroup, one_group
from gpuyard.model.node import Closure, Gpu, Node
from gpuyard.model.policy import Policy
from gpuyard.model.queue import Allowance, Queue
from gpuyard.model.resources import WHOLE, Request
from gpuyard.model.snapshot import Snapshot
from gpuyard.model.topology import TopologyAsk
from gpuyard.runtime.clock import SystemClock
from gpuyard.runtime.driving.driver import Driver
from gpuyard.runtime.driving.loop import Loop
from gpuyard.runtime.simulating.alert_spans import AlertSpans
from gpuyard.worlds.sim.lives import Live
from gpuyard.worlds.sim.traces.trace import Arrival, Trace, by_time
from gpuyard.worlds.sim.world import Rules, SimWorld
from tests.support.hearing import Heard

pytestmark = pytest.mark.slow

HOUR, DAY = 3600.0, 86_400.0
NODES, GPUS, RACK = 128, 8, 8
QUOTAS = {"research": 512, "product": 384, "students": 128}
AFTER = {"training": HOUR, "batch": 6 * HOUR, "interactive": HOUR / 6, "inference": HOUR / 6}
"""What a class may wait, as the policy's page says."""
SLACK = 15.0
"""Kinds of jobs are looked into a few at a time, a second apart."""


# --- the day -------------------------------------------------------------------------------------


def fleet() -> Snapshot:
    nodes = tuple(
        Node(f"n{n:03}", "h100", "H100-SXM5-80GB", "hopper", 80 << 30, tuple(Gpu(i) for i in range(GPUS)),
             domains=(("rack", f"r{n // RACK:02}"),))
        for n in range(NODES)
    )  # fmt: skip
    queues = tuple(Queue(name, quota=Allowance(quota * WHOLE)) for name, quota in QUOTAS.items())
    policy = replace(
        Policy(), search_limit=8, search_total=64, claim_again=HOUR
    )  # the alarms are tried, not the searches
    return Snapshot(topology=("rack",), policy=policy, nodes=nodes, queues=queues)


def job(name: str, queue: str, gpus: int, at: float, tasks: int = 1, of: JobClass = JobClass.TRAINING) -> Job:
    level = TopologyAsk(required="rack") if tasks > 1 else TopologyAsk()
    gang = one_group(TaskGroup(tasks=tasks, min=tasks, request=Request(gpus=gpus)), level)
    return Job(name, gang, queue, job_class=of, submitted=at)


def arrivals() -> list[Arrival]:
    """Small jobs that stay all day and scatter, wide ones that come late, gangs of a rack, some that can never run."""
    dice = random.Random(20260101)
    found: list[Arrival] = []

    def come(name: str, queue: str, gpus: int, at: float, work: float, **more: object) -> None:
        found.append(Arrival(at, job(name, queue, gpus, at, **more), work))  # type: ignore[arg-type]

    for n in range(120):
        come(f"small{n}", "research", dice.choice((1, 2, 3)), 60.0 * n, dice.uniform(2, 16) * HOUR)
    for n in range(90):
        come(f"wide{n}", "product", 8, 2 * HOUR + 120.0 * n, dice.uniform(3, 9) * HOUR)
    for n in range(10):
        come(f"gang{n}", "research", 8, 3 * HOUR + 600.0 * n, dice.uniform(4, 8) * HOUR, tasks=6)
    for n in range(60):
        come(f"batch{n}", "students", 4, 1 * HOUR + 300.0 * n, dice.uniform(6, 14) * HOUR, of=JobClass.BATCH)
    for n in range(12):
        come(f"api{n}", "product", 2, 5 * HOUR + 900.0 * n, 20 * HOUR, of=JobClass.INFERENCE)
    for n in range(3):
        come(f"never{n}", "students", 9, 4 * HOUR + 1800.0 * n, HOUR)
    return found


EVICTED = (8 * HOUR, 9 * HOUR, 10 * HOUR)
"""When somebody from outside takes the longest small job's GPUs."""
CLOSED = (("n003", 6 * HOUR, 9 * HOUR), ("n004", 6 * HOUR, 8 * HOUR), ("n100", 20 * HOUR, 21 * HOUR))


# --- what happened, by plain counting ------------------------------------------------------------


@dataclass
class Moment:
    """What is true once a plan was applied."""

    at: float
    overdue: dict[tuple[str, str], set[str]]
    shapes: set[tuple[str, str, tuple[int, int]]]
    """Kinds of jobs among those who are late."""
    entitled: set[str]
    """Queues that ask for no more than their quota leaves."""
    closed: int
    protected: int
    stranded: float
    """Share of the free GPUs that the last day's shapes could not use."""
    stranded_gpus: float
    alerts: tuple[Alert, ...] = ()


@dataclass
class Reader(Heard):
    """Listens to the world and counts."""

    jobs: dict[str, Job] = field(default_factory=dict)
    since: dict[str, float] = field(default_factory=dict)
    """Who waits, since when."""
    places: dict[str, Live] = field(default_factory=dict)
    evicted: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    closed: set[str] = field(default_factory=set)

    def arrived(self, now: float, live: Live) -> None:
        name = live.arrival.job.name
        self.jobs[name], self.since[name] = live.arrival.job, now

    def placed(self, now: float, live: Live, moved: bool) -> None:
        self.since.pop(live.arrival.job.name, None)
        self.places[live.arrival.job.name] = live

    def stopped(self, now: float, live: Live, lost: float) -> None:
        self.since[live.arrival.job.name] = now
        self.places.pop(live.arrival.job.name, None)

    def finished(self, now: float, live: Live) -> None:
        self.places.pop(live.arrival.job.name, None)
        self.jobs.pop(live.arrival.job.name, None)

    def moment(self, now: float) -> Moment:
        overdue: dict[tuple[str, str], set[str]] = defaultdict(set)
        for name, since in self.since.items():
            of = self.jobs[name].job_class.value
            if now >= since + AFTER[of]:
                overdue[self.jobs[name].queue, of].add(name)
        free, stranded = self._stranded(now)
        today = {name: sum(now - at < DAY for at in times) for name, times in self.evicted.items()}
        protected = sum(count >= 3 for name, count in today.items() if name in self.jobs)
        share = stranded / free if free else 0.0
        late = {(*key, gpus_of(self.jobs[name])) for key, names in overdue.items() for name in names}
        return Moment(now, dict(overdue), late, self._entitled(), len(self.closed), protected, share, stranded)

    def _entitled(self) -> set[str]:
        used: dict[str, int] = defaultdict(int)
        for name, live in self.places.items():
            used[self.jobs[name].queue] += sum(len(place.gpus) for place in live.placements)
        return {
            self.jobs[name].queue
            for name in self.since
            if gpus_of(self.jobs[name])[0] <= GPUS
            and used[self.jobs[name].queue] + asked(self.jobs[name]) <= QUOTAS[self.jobs[name].queue]
        }

    def _stranded(self, now: float) -> tuple[int, float]:
        """Free GPUs, and those that the shapes of the last day could not use, each by the GPUs it asked for."""
        free = dict.fromkeys((f"n{n:03}" for n in range(NODES)), GPUS)
        for live in self.places.values():
            for place in live.placements:
                free[place.node] -= len(place.gpus)
        for name in self.closed:
            free[name] = 0
        total = sum(free.values())
        weights: dict[tuple[int, int], float] = defaultdict(float)
        for arrival in self.came:
            if int(arrival.at // HOUR) > int(now // HOUR) - 24 and arrival.at <= now:
                weights[gpus_of(arrival.job)] += asked(arrival.job)
        fitting = {shape: weight for shape, weight in weights.items() if shape[0] <= GPUS}
        lost = sum(weight * max(0, total - usable(free, shape)) for shape, weight in fitting.items())
        return total, lost / sum(fitting.values()) if fitting else 0.0

    came: list[Arrival] = field(default_factory=list)


def gpus_of(each: Job) -> tuple[int, int]:
    group = each.task_groups()[0]
    return group.request.gpus, group.tasks


def asked(each: Job) -> int:
    gpus, tasks = gpus_of(each)
    return gpus * tasks


def usable(free: dict[str, int], shape: tuple[int, int]) -> int:
    gpus, tasks = shape
    if tasks == 1:
        return sum(each // gpus * gpus for each in free.values())
    racks: dict[int, int] = defaultdict(int)
    for name, each in free.items():
        racks[int(name[1:]) // RACK] += each // gpus
    return sum(room // tasks * tasks * gpus for room in racks.values())


class Told(SimWorld):
    """The simulated world, and what it told of evictions and nodes."""

    def tell(self, event: Event) -> None:
        super().tell(event)
        reader = self.listener
        assert isinstance(reader, Reader)
        if isinstance(event, JobEvicted):
            reader.evicted[event.name].append(event.at)
        elif isinstance(event, NodeSeen):
            (reader.closed.add if event.node.closed else reader.closed.discard)(event.node.name)


@cache
def the_day() -> tuple[list[Moment], AlertSpans]:
    reader = Reader(came=arrivals())
    trace = Trace("a bad day", by_time(reader.came))
    world = Told(trace, Rules(), reader, fleet())
    for name, begin, end in CLOSED:
        node = world.nodes[name]
        closed = replace(node, closed=Closure("fan", "ops", since=begin))
        world.at(begin, lambda closed=closed: world.tell(NodeSeen(closed)))  # type: ignore[misc]
        world.at(end, lambda node=node: world.tell(NodeSeen(node)))  # type: ignore[misc]
    longest = max((each for each in reader.came if each.job.name.startswith("small")), key=lambda each: each.work or 0)
    for moment in EVICTED:
        world.at(moment, lambda: world._evict(world.jobs[longest.job.name], ()))
    loop = Loop(world, SystemClock())
    spans, moments = AlertSpans(world.now), []

    def hear(plan: Plan) -> None:
        spans.hear(plan)
        moments.append(replace(reader.moment(world.now()), alerts=plan.alerts))

    loop.heard = hear
    loop.open()
    driver = Driver(loop, SystemClock())
    while world.now() < DAY and world.wait():
        driver.turn()
    return moments, spans


def standing(moment: Moment, kind: AlertKind) -> list[Alert]:
    return [alert for alert in moment.alerts if alert.kind is kind]


# --- all true, none missing ----------------------------------------------------------------------


def test_whoever_has_waited_too_long_is_counted_once_and_nobody_else():
    moments, _ = the_day()
    before, changed_at, checked = None, 0.0, 0
    for moment in moments:
        kinds = {key: len(names) for key, names in moment.overdue.items()}
        if moment.shapes != before:
            before, changed_at = moment.shapes, moment.at
        told: dict[tuple[str, str], int] = defaultdict(int)
        for alert in standing(moment, AlertKind.WAIT):
            about = dict(alert.about)
            told[about["queue"], about["class"]] += alert.count
            assert set(alert.jobs) <= moment.overdue[about["queue"], about["class"]], (
                "it names somebody who is not late"
            )
        assert set(told) <= set(kinds), "an alert for a queue and class in which nobody is late"
        assert all(told[key] <= kinds[key] for key in told), "more are counted than are late"
        if moment.at > changed_at + SLACK:
            checked += 1
            assert told == kinds, f"at {moment.at}"
    assert checked > 100


def test_no_cause_is_told_twice_at_a_time_and_each_stands_until_it_is_over():
    moments, spans = the_day()
    for moment in moments:
        keys = [alert.key for alert in moment.alerts]
        assert len(keys) == len(set(keys))
    by_key: dict[str, float] = {}
    for span in spans.told():
        assert span.begin >= by_key.get(span.alert.key, 0.0), "raised while it stood"
        by_key[span.alert.key] = span.end if span.end is not None else float("inf")


def test_those_that_can_never_run_are_one_alert_that_stands_to_the_end():
    _, spans = the_day()
    never = [span for span in spans.told() if "can never run here" in span.alert.sentence]
    assert [(span.alert.key, span.end) for span in never] == [("wait/students/training/ShapeImpossible", None)]
    assert abs(never[0].begin - 5 * HOUR) <= SLACK


def test_closed_nodes_are_told_exactly_while_they_are_closed_and_once_for_their_common_reason():
    moments, spans = the_day()
    for moment in moments:
        assert sum(alert.count for alert in standing(moment, AlertKind.CLOSED)) == moment.closed
    closed = [(span.begin, span.end) for span in spans.told() if span.alert.kind is AlertKind.CLOSED]
    assert closed == [(6 * HOUR, 9 * HOUR), (20 * HOUR, 21 * HOUR)]


def test_protected_victims_are_counted_as_the_world_counted_their_evictions():
    moments, _ = the_day()
    assert {moment.protected for moment in moments} == {0, 1}
    for moment in moments:
        assert sum(alert.count for alert in standing(moment, AlertKind.PROTECTED)) == moment.protected


def test_a_queue_is_below_its_quota_for_an_hour_exactly_when_it_asked_all_that_time():
    moments, _ = the_day()
    since: dict[str, float] = {}
    for moment in moments:
        since = {queue: since.get(queue, moment.at) for queue in moment.entitled}
        due = {queue for queue, begin in since.items() if moment.at >= begin + HOUR}
        told = {dict(alert.about)["queue"] for alert in standing(moment, AlertKind.BELOW_QUOTA)}
        assert told == due


def test_scattered_gpus_are_told_while_they_are_and_are_not_while_they_are_not():
    moments, spans = the_day()
    at = {moment.at: moment for moment in moments}
    for span in spans.told():
        if span.alert.kind is AlertKind.FRAGMENTATION:
            assert at[span.begin].stranded >= 0.5 - 1e-6
            assert at[span.begin].stranded_gpus >= 8 - 1e-6
    begun = None
    for moment in moments:
        bad = moment.stranded >= 0.5 and moment.stranded_gpus >= 8
        begun = (begun if begun is not None else moment.at) if bad else None
        if begun is not None and moment.at - begun > 600 + 2 * 300 + SLACK:
            assert standing(moment, AlertKind.FRAGMENTATION), f"nobody was told at {moment.at}"


def test_nothing_is_told_that_did_not_happen():
    _, spans = the_day()
    kinds = {span.alert.kind for span in spans.told()}
    assert kinds >= {
        AlertKind.WAIT,
        AlertKind.BELOW_QUOTA,
        AlertKind.PROTECTED,
        AlertKind.CLOSED,
        AlertKind.FRAGMENTATION,
    }
    assert len(spans.told()) < 30, "a handful for a bad day"
    assert not kinds & {AlertKind.DEADLOCK, AlertKind.RESERVATION}, (
        "no gang was halved and nobody was promised a moment"
    )
