"""What is tried offline is what runs: the brain replayed on a journal, and a plan made on a live yard's snapshot."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gpuyard import files
from gpuyard.brain import foresee
from gpuyard.model.actions import Plan, Reserve
from gpuyard.model.node import Health
from gpuyard.runtime.driving import journal, recording
from gpuyard.runtime.driving.pace import Pace
from gpuyard.runtime.service import EVERYBODY
from gpuyard.worlds.local.seam.archive import StoreArchive
from tests.support.yards import ADMIN, TestYard, sh

FLEET = """
topology: [rack]
nodes:
  - {name: n0, gpus: 4, model: H100, domains: {rack: r0}}
  - {name: n1, gpus: 4, model: H100, domains: {rack: r0}}
  - {name: n2, gpus: 4, model: A100, domains: {rack: r1}}
queues: [{name: a, quota: 6}, {name: b, quota: 6}]
"""


def job(name: str, dice: Random, script: str) -> dict[str, Any]:
    shape: dict[str, Any] = dice.choice(
        [
            {"gpus": 1},
            {"gpus": 2, "tasks": 2},
            {"gpus": 4},
            {"fraction": 0.5},
            {"gpus": 1, "tasks": 6, "min": 2},
            {"gpus": 2, "tasks": 2, "topology": {"required": "rack"}},
            {"gpus": 1, "models": ["A100", "H100"]},
        ]
    )
    keys = {"queue": dice.choice("ab"), "priority": dice.choice([10, 50, 90]), "preemptible": dice.random() < 0.8}
    return sh(script, name=name, **shape, **keys)


def settled(yard: TestYard, names: list[str]) -> None:
    for name in names:
        yard.until(name, seconds=60.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_brain_replayed_on_a_journal_takes_the_decisions_that_were_taken(tmp_path: Path, seed: int):
    dice = Random(seed)
    yard = TestYard(tmp_path, FLEET)
    yard.start()
    names = []
    for number in range(25):
        names += yard.put(job(f"j{number}", dice, f"sleep {dice.choice([0.02, 0.1, 0.3])}"))
        happen(yard, dice)
    heal(yard)
    settled(yard, names)
    yard.store.flush()
    fleet, turns = journal.read(StoreArchive(yard.store))
    assert sum(bool(turn.actions) for turn in turns) >= 10
    for turn, decided in journal.replay(fleet, turns):
        assert decided == turn.actions
    yard.stop()


def happen(yard: TestYard, dice: Random) -> None:
    """Now and then something that is nobody's job."""
    match dice.randrange(12):
        case 0:
            yard.world.breakage.set_health("n0", dice.randrange(4), dice.choice(list(Health)))
        case 1:
            yard.drain(ADMIN, {"node": dice.choice(["n0", "n2"]), "gpu": dice.choice([None, 1])})
        case 2:
            yard.set_queue(ADMIN, {"name": "b", "quota": dice.choice([4, 6, 8])}, dry_run=False)
        case 3 if "n1" in yard.world.desk.nodes:
            yard.world.breakage.lose_node("n1")
        case 4:
            yard.world.breakage.return_node("n1")
        case _:
            yard.wait_events(yard.store.last_event, 0.05)


def heal(yard: TestYard) -> None:
    yard.world.breakage.return_node("n1")
    for place, _ in yard.world.closures.draining():
        yard.undrain(ADMIN, {"node": place.node, "gpu": place.gpu})
    for gpu in range(4):
        yard.world.breakage.set_health("n0", gpu, Health.HEALTHY)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_plan_on_the_snapshot_of_a_live_yard_is_the_yards_next_plan(tmp_path: Path, seed: int):
    dice = Random(seed)
    yard = TestYard(tmp_path, FLEET)
    yard.start()
    names: list[str] = []
    compared = 0
    for number in range(40):  # how often nothing else happens meanwhile depends on the machine
        if compared >= 2:
            break
        if number % 4 == 3:
            settled(yard, names)  # a backlog would keep somebody waiting for GPUs that are not free yet
        pause(yard)
        made = [job(f"r{number}-{n}", dice, f"sleep {dice.choice([0.3, 1])}") for n in range(dice.randint(2, 6))]
        names += yard.put(*made)
        with yard.world.desk.lock:
            listen(yard)
            snapshot, turns = yard.snapshot(EVERYBODY), yard._plane.turns
            known = len(yard.world.desk.events) + len(yard._plane.driver.loop.assumed)
            foreseen = plan_of(snapshot)
            go_on(yard)
        turn = turn_of(yard, turns)
        # Else something ended meanwhile and the brain saw more; or somebody was promised GPUs that are not free yet.
        if len(turn.events) == known and not snapshot.get("reservations"):
            assert foreseen == [each for each in turn.actions if each[0] != "reserve"]
            compared += 1
    assert compared >= 2
    go_on(yard)
    settled(yard, names)
    yard.stop()


class Asleep(Pace):
    """A pace at which no turn comes before the test wants one."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.wake = threading.Event(), threading.Event()

    def rest(self, now: float, took: float, jobs: int) -> float:
        self.reached.set()
        self.wake.wait()
        return 0.0


def pause(yard: TestYard) -> None:
    """The yard decides nothing until it is let go."""
    asleep = yard._plane.driver.pace = Asleep()
    yard.world.look_at_once()
    asleep.reached.wait()


def listen(yard: TestYard) -> None:
    """What supervisors told meanwhile."""
    with yard.world.desk.change():
        for report in yard.world.desk.launcher.reports():
            yard.world.life.hear(report)


def go_on(yard: TestYard) -> None:
    asleep, yard._plane.driver.pace = yard._plane.driver.pace, Pace()
    if isinstance(asleep, Asleep):
        asleep.wake.set()


def turn_of(yard: TestYard, number: int) -> journal.Turn:
    """That turn of the journal, once it has been."""
    while yard._plane.turns == number:
        yard.wait_events(yard.store.last_event, 0.05)
    yard.store.flush()
    return journal.read(StoreArchive(yard.store))[1][number]


def plan_of(snapshot: dict[str, Any]) -> list[Any]:
    """What `yard plan --cycles 1` makes of a snapshot, in the journal's short form; timed work aside."""
    moment = files.parse_snapshot(json.dumps(snapshot), "moment", 0.0)
    actions = foresee.outlook(moment, cycles=1).actions
    return recording.plan_document(Plan(tuple(each for each in actions if not isinstance(each, Reserve))))
