"""The local world with a pretended launcher and a clock that stands still: the same code without any process."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from gpuyard import files
from gpuyard.model.actions import Evict, Move, Plan, Start, Terminate, Warn
from gpuyard.model.errors import Conflict
from gpuyard.model.events import ActionFailed
from gpuyard.model.job import Placement
from gpuyard.model.node import Health
from gpuyard.model.ownership import Caps, Owner
from gpuyard.model.reasons import Code, Reason
from gpuyard.runtime.driving.loop import Loop
from gpuyard.worlds.local.attempts.desk import Desk
from gpuyard.worlds.local.attempts.gates import Gates
from gpuyard.worlds.local.attempts.lifecycle import Lifecycle
from gpuyard.worlds.local.launching import orders
from gpuyard.worlds.local.ports import TaskKey
from gpuyard.worlds.local.seam.breakage import Fault
from gpuyard.worlds.local.state import book as books
from gpuyard.worlds.local.state.records import Attempt, Entry
from gpuyard.worlds.local.state.store import Store, StoreError
from gpuyard.worlds.local.world import LocalWorld
from tests.support.pretend import Pretender, StillClock
from tests.support.yards import fleet

ME = Owner("me")


class Bench:
    """A world on a bench."""

    def __init__(self, folder: Path, faults: tuple[Fault, ...] = (), begun: Collection[TaskKey] = ()) -> None:
        self.clock = StillClock()
        self.launcher = Pretender(self.clock, begun)
        self.store = Store(folder / "yard.db")
        desk = Desk(self.store, self.launcher, self.clock, orders.surroundings("here", {}))
        nodes = "nodes: [{name: n0, gpus: 4, model: H100}, {name: n1, gpus: 4, model: H100}]"
        snapshot = fleet(f"{nodes}\npolicy: {{defragment: 'off'}}")
        desk.book = books.load(self.store)
        self.world = LocalWorld(desk, snapshot, Lifecycle(desk, Gates(desk)), faults)
        self.world.adopt()
        self.loop = Loop(self.world, self.clock)
        self.loop.open()

    def put(self, **keys: Any) -> None:
        document = {"run": {"command": ["true"]}, **keys}
        asked = files.read_submission({**document, "user": "me"}, self.clock.at)
        self.world.requests.accept(self.world.requests.take(ME, [(asked, document)]))

    def turn(self, times: int = 4) -> None:
        for _ in range(times):
            self.world.look_at_once()
            assert self.world.wait()
            self.loop.turn()

    def place(self, name: str) -> Placement:
        attempt = self.world.desk.book.get(name).attempt
        assert attempt is not None
        return attempt.live()[0].placement

    def phase(self, name: str) -> str:
        return str(self.store.rows("SELECT phase FROM jobs WHERE name = ?", (name,))[0][0])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_gang_gets_its_word_when_all_are_ready(bench: Bench):
    bench.put(name="g", tasks=3, gpus=2)
    bench.turn()
    assert [order.rank for order in bench.launcher.prepared] == [0, 1, 2]
    assert bench.phase("g") == "running"
    for order in bench.launcher.prepared:
        bench.launcher.end(order.key, "succeeded")
    bench.turn()
    assert bench.phase("g") == "succeeded"
    assert bench.launcher.gone == [(1, 1, 0)]


def test_nothing_is_started_before_its_row_is_on_disk(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    bench.put(name="a", gpus=1)
    monkeypatch.setattr(bench.store, "_write", refusing)
    bench.turn(2)
    assert bench.launcher.prepared == []
    assert "is full" in bench.world.desk.trouble
    with pytest.raises(StoreError, match="is full"):
        bench.put(name="b", gpus=1)
    assert not bench.world.desk.book.is_taken("b")
    monkeypatch.undo()
    bench.turn(3)
    assert len(bench.launcher.prepared) == 1
    assert bench.world.desk.trouble == ""
    assert bench.phase("a") == "running"


def test_what_was_cancelled_on_a_full_disk_is_known_as_over(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    """The store knows it as waiting still; who asks again must not be answered by that."""
    bench.put(name="a", gpus=1)
    desk = bench.world.desk
    monkeypatch.setattr(bench.store, "_write", refusing)
    entry = desk.known("a")
    assert entry is not None
    bench.world.requests.cancel(entry, "cancelled by me")
    assert "is full" in desk.trouble
    assert bench.phase("a") == "waiting"
    again = desk.known("a")
    assert again is not None
    assert again.over
    with pytest.raises(Conflict, match="has ended already: cancelled"):
        bench.world.requests.cancel(again, "cancelled by me")
    monkeypatch.undo()
    desk.retry()
    assert bench.phase("a") == "cancelled"
    written = desk.known("a")
    assert written is not None
    assert written is not entry, "what is on disk is read from there"


def test_a_job_is_not_known_before_it_is_accepted(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    """Its row is on disk a moment before it is in the book; whoever guesses its name meanwhile does nothing to it."""
    seen: list[object] = []
    monkeypatch.setattr(bench.world.desk.book, "make_way", lambda _: seen.append(bench.world.desk.known("a")))
    bench.put(name="a", gpus=1)
    assert seen == [None]
    assert bench.phase("a") == "waiting"
    assert bench.world.desk.known("a") is not None


def refusing(_batches: Any) -> None:
    raise sqlite3.OperationalError("database or disk is full")


def test_a_promised_gpu_is_not_used_before_its_holder_is_gone(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    bench.put(name="low", tasks=2, gpus=4, priority=1)
    bench.turn()
    monkeypatch.setattr(bench.launcher, "stop", lambda key, order: None)
    bench.put(name="high", gpus=4, priority=99)
    bench.turn()
    assert bench.phase("low") == "stopping"
    assert bench.phase("high") == "starting"
    assert len(bench.launcher.prepared) == 2
    for order in list(bench.launcher.prepared):
        bench.launcher.end(order.key, "stopped")
    bench.turn()
    assert bench.phase("high") == "running"
    assert bench.phase("low") == "waiting"


def test_a_move_keeps_its_target_and_restarts_the_gang_there(bench: Bench):
    for name in ("a", "b"):
        bench.put(name=name, gpus=3)
    bench.put(name="c", gpus=1)
    bench.turn()
    bench.put(name="wide", gpus=4, topology={"required": "node"})
    bench.turn(6)
    phases = {name: bench.phase(name) for name in ("a", "b", "c", "wide")}
    assert list(phases.values()).count("running") >= 3


def test_faults_come_at_their_time(tmp_path: Path):
    start = StillClock().at
    bench = Bench(tmp_path, (Fault(start + 5, "n0", 0, kills=True), Fault(start + 9, "n1", lasts=30.0)))
    bench.put(name="a", tasks=2, gpus=4)
    bench.turn(2)
    bench.clock.at = start + 6
    bench.turn(1)
    assert bench.world.desk.nodes["n0"].gpus[0].sick
    bench.clock.at = start + 10
    bench.turn(1)
    assert "n1" not in bench.world.desk.nodes
    bench.clock.at = start + 40
    bench.turn(1)
    assert "n1" in bench.world.desk.nodes


def test_ten_thousand_members_are_cheap(bench: Bench):
    bench.put(name="sweep", gpus=1, array="0-9999%4")
    bench.turn(2)
    assert len(bench.launcher.prepared) == 4
    size = bench.store.rows("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")[0][0]
    assert size / 10_000 < 300


def test_a_lost_task_does_not_count_as_a_failure_and_is_tried_more_patiently(bench: Bench):
    bench.put(name="a", gpus=1)
    for expected in (1, 2, 3):
        bench.turn(3)
        assert len(bench.launcher.prepared) == expected
        bench.launcher.end(bench.launcher.prepared[-1].key, "lost")
        bench.turn(1)
        assert bench.phase("a") == "waiting"
        bench.clock.at += 300


def test_tasks_that_were_to_join_an_elastic_gang_and_cannot_leave_it_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    bench.put(name="other", gpus=4, preemptible=False)
    bench.put(name="e", tasks=6, min=2, gpus=1)
    bench.turn()
    first = [order.key for order in bench.launcher.prepared if order.key.job == 2]
    assert len(first) == 4
    prepare = bench.launcher.prepare

    def fails(orders: Any) -> None:
        prepare(orders)
        bench.launcher.pending.clear()
        bench.launcher.end(orders[0].key, "failed", 127)

    monkeypatch.setattr(bench.launcher, "prepare", fails)
    bench.launcher.end(bench.launcher.prepared[0].key, "succeeded")
    bench.turn(6)
    assert bench.phase("e") == "running"
    assert all(key not in bench.launcher.stopped for key in first)


def test_a_promise_of_a_gpu_that_falls_sick_is_taken_back(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    bench.put(name="low", tasks=2, gpus=4, priority=1)
    bench.turn()
    monkeypatch.setattr(bench.launcher, "stop", lambda key, order: None)
    bench.put(name="high", gpus=4, priority=99)
    bench.turn()
    node = bench.place("high").node
    bench.world.breakage.set_health(node, 0, Health.SICK)
    assert bench.world.desk.book.get("high").attempt is None
    for order in list(bench.launcher.prepared):
        bench.launcher.end(order.key, "stopped")
    bench.turn()
    assert bench.phase("high") == "running"
    assert bench.place("high").node != node


def test_a_move_to_a_node_that_is_gone_waits_again(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    bench.put(name="a", gpus=1)
    bench.turn()
    monkeypatch.setattr(bench.launcher, "stop", lambda key, order: None)
    source = bench.place("a")
    other = "n1" if source.node == "n0" else "n0"
    move = Move("a", (source,), (Placement(other, (0,)),), Reason(Code.CONSOLIDATED))
    bench.world.apply(Plan((move,)), 1)
    bench.world.breakage.lose_node(other)
    bench.launcher.end(bench.launcher.prepared[0].key, "stopped")
    bench.turn()
    assert bench.phase("a") == "running"
    assert bench.place("a").node == source.node


def test_the_brain_is_not_woken_to_hear_that_its_own_plan_has_begun(bench: Bench):
    bench.put(name="a", gpus=1)
    bench.turn(1)
    slept = bench.clock.at
    assert bench.world.wait()
    assert bench.clock.at >= slept + 10  # when the brain itself asked to be, to measure what is free
    assert bench.phase("a") == "running"


def test_a_task_that_never_got_its_devices_is_over_as_soon_as_it_is_not_wanted(bench: Bench):
    bench.put(name="b", gpus=4)
    bench.put(name="e", tasks=2, min=1, gpus=1)
    bench.turn()
    entry, taken = bench.world.desk.book.get("e"), bench.place("b")
    attempt = entry.attempt
    assert attempt is not None
    late = Placement(taken.node, (taken.gpus[0],), "main", 1)
    with bench.world.desk.change():
        bench.world.life.shrink(entry, [task for task in attempt.live() if task.rank == 1])
        bench.world.life.grow(entry, [late])
    assert [order.rank for order in bench.launcher.prepared].count(1) == 1
    bench.world.deeds.carry_out([Evict("e", Reason(Code.RECLAIMED), placements=(late,))])
    assert [task.state for task in attempt.tasks.values() if task.placement == late] == ["ended"]
    bench.turn()
    assert bench.phase("e") == "running"


def test_who_did_its_work_though_it_was_to_stop_is_not_run_again_by_who_was_to_come_in_its_place(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    entry, attempt, late = shrunk_and_grown(bench, monkeypatch, on="its own GPU")
    bench.launcher.end(bench.launcher.prepared[1].key, "succeeded")
    bench.turn()
    assert [order.rank for order in bench.launcher.prepared] == [0, 1]
    assert [task.outcome for task in attempt.tasks.values() if task.placement == late][-1] == "stopped"
    assert entry.job().task_groups()[0].ended == (1,)
    bench.launcher.end(bench.launcher.prepared[0].key, "succeeded")
    bench.turn()
    assert bench.phase("e") == "succeeded"


def test_two_tasks_of_one_number_are_never_at_work_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    _, _, late = shrunk_and_grown(bench, monkeypatch, on="another GPU")
    bench.turn()
    assert [order.rank for order in bench.launcher.prepared] == [0, 1]
    bench.launcher.end(bench.launcher.prepared[1].key, "stopped")
    bench.turn()
    assert [order.rank for order in bench.launcher.prepared] == [0, 1, 1]
    assert bench.place("e").node == late.node


def test_after_a_crash_who_waits_for_a_gpu_waits_until_who_has_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    bench = Bench(tmp_path)
    shrunk_and_grown(bench, monkeypatch, on="its own GPU")
    bench.store.close()
    begun = {order.key for order in bench.launcher.prepared}
    again = Bench(tmp_path, begun=begun)
    again.turn()
    assert again.launcher.prepared == []
    again.launcher.end(TaskKey(1, 1, 1), "stopped")
    again.turn()
    assert [(order.key, order.rank) for order in again.launcher.prepared] == [(TaskKey(1, 1, 2), 1)]


def shrunk_and_grown(bench: Bench, monkeypatch: pytest.MonkeyPatch, on: str) -> tuple[Entry, Attempt, Placement]:
    """An elastic gang of two whose rank 1 is told to stop, takes its time, and is to begin again."""
    bench.put(name="e", tasks=2, min=1, gpus=1)
    bench.turn()
    entry = bench.world.desk.book.get("e")
    attempt = entry.attempt
    assert attempt is not None
    monkeypatch.setattr(bench.launcher, "stop", lambda *_: None)
    leaving = next(task for task in attempt.live() if task.rank == 1)
    gpus = leaving.placement.gpus if on == "its own GPU" else (3,)
    late = Placement(leaving.placement.node, gpus, "main", 1)
    with bench.world.desk.change():
        bench.world.life.shrink(entry, [leaving])
        bench.world.life.grow(entry, [late])
    return entry, attempt, late


def test_a_job_is_warned_before_its_limit_and_once_more_at_its_end(bench: Bench):
    bench.put(name="train", gpus=1, time_limit="100s", checkpoint={"signal": "SIGUSR2", "grace": "5s"})
    bench.put(name="plain", gpus=1, time_limit="100s")
    bench.turn()
    bench.clock.at += 91
    bench.turn(1)
    told = {warning.signal: warning.told for warning in bench.launcher.warned.values()}
    assert told[""].endswith(" left of its time limit of 1m40s")
    assert told["SIGUSR2"].endswith(" left of its time limit of 1m40s; told by SIGUSR2: save your work")
    assert not bench.launcher.stopped
    bench.launcher.warned.clear()
    bench.clock.at += 10
    bench.turn(1)
    assert not bench.launcher.warned
    ends = {order.signal: order.told for order in bench.launcher.stopped.values()}
    assert ends == {
        "": "its time limit of 1m40s is over: it ends now",
        "SIGUSR2": "its time limit of 1m40s is over: 5s to save its work, told by SIGUSR2",
    }


def test_a_gpu_that_is_held_and_falls_sick_is_not_taken_off_the_free_ones_twice(bench: Bench):
    bench.put(name="train", gpus=4)
    bench.turn()
    desk, place = bench.world.desk, bench.place("train")
    for index in place.gpus:
        bench.world.breakage.set_health(place.node, index, Health.SICK)
    assert (desk.holdings.devices(), desk.holdings.free_devices(desk.nodes.values())) == (4, 4)
    bench.world.cordon("n1" if place.node == "n0" else "n0", closed=True)
    assert desk.holdings.free_devices(desk.nodes.values()) == 0


@pytest.mark.parametrize(
    "late",
    [
        lambda uids, source: Evict("a", Reason(Code.PREEMPTED), uids=uids),
        lambda uids, source: Terminate("a", Reason(Code.TIME_LIMIT), uids=uids),
        lambda uids, source: Warn("a", Reason(Code.TIME_LIMIT), uids=uids),
        lambda uids, source: Move("a", source, (Placement("n1", (0,)),), Reason(Code.CONSOLIDATED)),
    ],
    ids=["evict", "terminate", "warn", "move"],
)
def test_an_order_for_an_attempt_that_has_a_successor_does_nothing_and_says_so(bench: Bench, late: Any):
    bench.put(name="a", gpus=1)
    bench.turn()
    entry = bench.world.desk.book.get("a")
    source = entry.job().placements
    uids = tuple(place.uid for place in source)
    bench.world.requests.requeue(entry)
    bench.turn()
    assert (entry.attempts, bench.phase("a")) == (2, "running")
    bench.world.observe()
    told = bench.world.apply(Plan((late(uids, source),)), 99)
    assert [(event.job, event.reason.code) for event in told if isinstance(event, ActionFailed)] == [
        ("a", Code.WORLD_CHANGED)
    ]
    assert uids[0] in str(next(event.reason for event in told if isinstance(event, ActionFailed)))
    bench.turn()
    assert (entry.attempts, bench.phase("a"), bench.loop.unknown) == (2, "running", [])
    assert not bench.launcher.warned


def failed(events: Any) -> list[tuple[str, str]]:
    """Who was told that what a plan wanted did not come about, and why."""
    return [(event.job, event.reason.message) for event in events if isinstance(event, ActionFailed)]


@pytest.mark.parametrize(
    "late",
    [
        lambda source: Start("a", (Placement("lost", (1,)),), Reason(Code.GROWS)),
        lambda source: Move("a", source, (Placement("lost", (0,)),), Reason(Code.CONSOLIDATED)),
    ],
    ids=["start", "move"],
)
def test_an_order_for_a_node_that_is_gone_does_nothing_and_says_so(bench: Bench, late: Any):
    bench.put(name="a", gpus=1)
    bench.turn()
    source = bench.world.desk.book.get("a").job().placements
    told = bench.world.apply(Plan((late(source),)), 99)
    assert failed(told) == [("a", "lost is not there any more")]
    assert bench.world.desk.book.get("a").job().placements == source


def test_growth_that_cannot_be_is_told_once_and_again_after_it_could(bench: Bench):
    bench.put(name="other", gpus=4, priority=90)
    bench.put(name="a", tasks=3, min=1, gpus=4)
    bench.turn()
    grow, more = (Plan((Start("a", (Placement("n0", (0,), task=task),), Reason(Code.GROWS)),)) for task in (1, 2))
    bench.world.observe()
    bench.world.gates.crowd.caps = Caps(tasks=2)
    told = [failed(bench.world.apply(grow, at)) for at in (97, 98)]
    assert told == [[("a", "2 tasks run here, and 2 may at once; a has 1 and follows when some end")], []]
    bench.world.gates.crowd.caps = Caps(tasks=3)
    assert failed(bench.world.apply(grow, 99)) == []
    bench.world.gates.crowd.caps = Caps(tasks=2)
    assert [len(failed(bench.world.apply(more, at))) for at in (100, 101)] == [1, 0]


def test_the_plan_names_the_attempt_it_means(bench: Bench):
    bench.put(name="low", gpus=4, priority=1)
    bench.put(name="other", gpus=4, priority=50)
    bench.turn()
    uid = bench.world.desk.book.get("low").job().placements[0].uid
    bench.put(name="high", gpus=4, priority=99)
    bench.world.look_at_once()
    assert bench.world.wait()
    (evict,) = [action for action in bench.loop.turn().actions if isinstance(action, Evict)]
    assert (evict.job, evict.uids) == ("low", (uid,))


def test_moves_that_are_only_proposed_are_told_to_those_who_follow_the_yard(bench: Bench):
    places = (Placement("n0", (0,)),)
    move = Move("train", places, (Placement("n1", (0,)),), Reason(Code.DEFRAGMENTED))
    bench.world.apply(Plan(proposed=(move,)), 1)
    (told,) = [text for kind, text in bench.store.rows("SELECT kind, document FROM events") if kind == "proposed"]
    assert "1 task of 1 job to move; `yard defrag --dry-run` shows them" in told
