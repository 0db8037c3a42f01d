"""A yard keeps what its jobs need: no queue is set and no fleet is taken that leaves a job without its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuyard import files
from gpuyard.brain import foresee
from gpuyard.model.errors import Denied, NotFound, Refused
from tests.support.yards import ADMIN, ME, TestYard, sh

TEAMS = """
nodes: [{name: n0, gpus: 4}, {name: n1, gpus: 4}]
queues: [{name: research, quota: 4}, {name: prod, quota: 4}]
"""
PLAIN = "nodes: [{name: n0, gpus: 4}, {name: n1, gpus: 4}]"


@pytest.fixture
def yard(tmp_path: Path):
    yard = TestYard(tmp_path, TEAMS)
    yard.start()
    yield yard
    yard.stop()


def test_no_queue_is_set_below_one_in_which_jobs_stand(yard: TestYard):
    """The attack: it was accepted, the next job hung or the loop died, and the snapshot could not be read."""
    yard.put(sh("sleep 600", name="a", queue="research"), sh("true", name="b", queue="research", held=True))
    for dry_run in (True, False):
        with pytest.raises(Refused, match=r"newq cannot stand below research, where a, b stand: jobs stand in leaf"):
            yard.set_queue(ADMIN, {"name": "newq", "parent": "research"}, dry_run)
    assert [queue["name"] for queue in yard.queues()] == ["prod", "research"]
    yard.until("a", "running")
    moment = files.parse_snapshot(json.dumps(yard.snapshot(ADMIN)), "the yard's own", 0.0)
    assert foresee.outlook(moment).actions == ()


def test_once_they_have_ended_it_may_be(yard: TestYard):
    yard.put(sh("true", name="a", queue="research"))
    yard.until("a", "succeeded")
    yard.set_queue(ADMIN, {"name": "newq", "parent": "research"}, dry_run=False)
    with pytest.raises(Refused, match="which has queues below it"):
        yard.put(sh("true", name="b", queue="research"))
    with pytest.raises(Refused, match="which has queues below it"):
        yard.act(ME, "a", "requeue")
    yard.put(sh("true", name="c", queue="newq"))
    yard.until("c", "succeeded")


def test_a_job_that_is_just_being_accepted_counts(yard: TestYard, monkeypatch: pytest.MonkeyPatch):
    """It is written outside the lock: a queue set meanwhile must see it."""
    accept = yard.world.requests.accept
    refused: list[str] = []

    def meanwhile(*row: Any) -> None:
        with pytest.raises(Refused) as caught:
            yard.set_queue(ADMIN, {"name": "newq", "parent": "research"}, dry_run=False)
        refused.append(str(caught.value))
        accept(*row)

    monkeypatch.setattr(yard.world.requests, "accept", meanwhile)
    yard.put(sh("true", name="a", queue="research"))
    assert "where a stands" in refused[0]


def test_a_queue_that_changes_while_a_job_is_read_is_looked_at_again(yard: TestYard, monkeypatch: pytest.MonkeyPatch):
    forecasts = yard._submitting._forecasts

    def meanwhile(*asked: Any) -> Any:
        yard.set_queue(ADMIN, {"name": "newq", "parent": "research"}, dry_run=False)
        return forecasts(*asked)

    monkeypatch.setattr(yard._submitting, "_forecasts", meanwhile)
    with pytest.raises(Refused, match="which has queues below it"):
        yard.put(sh("true", name="a", queue="research"))


# --- a fleet that changed ------------------------------------------------------------------------


def test_a_fleet_without_the_queue_of_a_job_is_refused_with_names(tmp_path: Path):
    """The attack: KeyError, the loop dead, and yet it said Up."""
    yard = TestYard(tmp_path, TEAMS)
    yard.start()
    yard.put(sh("sleep 600", name="a", queue="prod"), sh("true", name="b", queue="prod", held=True))
    yard.until("a", "running")
    yard.close()
    with pytest.raises(Refused, match=r"there is no queue prod any more, where a, b stand\. Start the yard with"):
        TestYard(tmp_path, PLAIN).start()
    with pytest.raises(Refused, match="x cannot stand below prod, where a, b stand"):
        TestYard(tmp_path, TEAMS.rstrip(" ]\n") + ", {name: x, parent: prod}]").start()
    again = TestYard(tmp_path, TEAMS)
    again.start()
    assert again.until("a", "running")["attempts"] == 1
    again.stop()


def test_a_queue_set_by_command_is_there_after_a_restart(tmp_path: Path):
    yard = TestYard(tmp_path, PLAIN)
    yard.start()
    yard.set_queue(ADMIN, {"name": "prod", "quota": 2}, dry_run=False)
    yard.put(sh("true", name="a", queue="prod", held=True))
    yard.close()
    again = TestYard(tmp_path, PLAIN)
    again.start()
    again.act(ME, "a", "release")
    again.until("a", "succeeded")
    again.stop()


def test_a_fleet_without_what_a_job_runs_on_is_refused_where_it_is_written_down(tmp_path: Path):
    yard = TestYard(tmp_path, PLAIN)
    yard.start()
    yard.put(sh("sleep 600", name="a", gpus=4), sh("sleep 600", name="b", gpus=4))
    yard.until("a", "running")
    yard.until("b", "running")
    yard.close()
    with pytest.raises(Refused, match=r"there is no n1\[0, 1, 2, 3\] any more, on which [ab] runs"):
        TestYard(tmp_path, "nodes: [{name: n0, gpus: 4}]", keeps_places=True).start()
    again = TestYard(tmp_path, PLAIN, keeps_places=True)
    again.start()
    assert [again.until(name, "running")["attempts"] for name in "ab"] == [1, 1]
    again.stop()


def test_a_job_that_the_new_fleet_could_never_run_waits_and_says_so(tmp_path: Path):
    yard = TestYard(tmp_path, "nodes: [{name: n0, gpus: 8}]")
    yard.start()
    yard.put(sh("true", name="a", gpus=8, held=True))
    yard.close()
    again = TestYard(tmp_path, PLAIN)
    again.start()
    again.act(ME, "a", "release")
    told = again.why(ME, "a")
    assert (told["phase"], "8 GPUs" in told["message"]) == ("waiting", True)
    again.stop()


# --- deleting ------------------------------------------------------------------------------------


def names(yard: TestYard) -> list[str]:
    return [queue["name"] for queue in yard.queues()]


def test_a_queue_is_deleted_when_nobody_stands_in_it_and_stays_so(tmp_path: Path):
    yard = TestYard(tmp_path, TEAMS)
    yard.start()
    yard.put(sh("true", name="a", queue="research", held=True))
    with pytest.raises(Refused, match="there is no queue research any more, where a stands"):
        yard.delete_queue(ADMIN, "research", dry_run=False)
    yard.act(ME, "a", "cancel")
    assert yard.delete_queue(ADMIN, "research", dry_run=True)["applied"] is False
    assert names(yard) == ["prod", "research"]
    yard.delete_queue(ADMIN, "research", dry_run=False)
    yard.close()
    again = TestYard(tmp_path, TEAMS)
    again.start()
    assert names(again) == ["prod"]
    with pytest.raises(Refused, match="is the last"):
        again.delete_queue(ADMIN, "prod", dry_run=False)
    again.set_queue(ADMIN, {"name": "research", "weight": 2}, dry_run=False)
    again.close()
    third = TestYard(tmp_path, TEAMS)
    third.start()
    assert {queue["name"]: queue["quota"] for queue in third.queues()} == {"prod": 4, "research": 0}
    third.stop()


def test_a_queue_with_others_below_it_is_not_deleted(yard: TestYard):
    yard.set_queue(ADMIN, {"name": "newq", "parent": "research"}, dry_run=False)
    with pytest.raises(Refused, match="cannot be deleted while newq stand below it"):
        yard.delete_queue(ADMIN, "research", dry_run=False)
    with pytest.raises(NotFound):
        yard.delete_queue(ADMIN, "ghost", dry_run=False)
    with pytest.raises(Denied):
        yard.delete_queue(ME, "newq", dry_run=False)
