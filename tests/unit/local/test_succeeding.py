"""What succeeded has succeeded: no task number is run again that did, and those that never ran come first (rule 22)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.yards import ADMIN, TestYard, sh

pytestmark = pytest.mark.slow


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[TestYard]:
    made = TestYard(tmp_path / "state", "nodes: [{name: n0, gpus: 2}, {name: n1, gpus: 2}]")
    made.start()
    yield made
    made.stop()


def ran(tmp_path: Path) -> list[str]:
    path = tmp_path / "ran"
    return path.read_text().split() if path.exists() else []


def until_ran(yard: TestYard, tmp_path: Path, *ranks: str) -> None:
    end = time.monotonic() + 300
    while not {*ranks} <= {*ran(tmp_path)}:
        assert time.monotonic() < end, ran(tmp_path)
        yard.wait_events(yard.store.last_event, 0.02)


def test_an_elastic_gang_runs_every_number_once(yard: TestYard, tmp_path: Path):
    """The attack: tasks 4, min 2, room for two ran ranks 0, 1, 0, 1."""
    yard.drain(ADMIN, {"node": "n1"})
    yard.put(sh(f"echo $RANK >> {tmp_path}/ran; sleep 0.$RANK", name="a", tasks=4, min=2, gpus=1))
    assert yard.until("a")["phase"] == "succeeded"
    assert sorted(ran(tmp_path)) == ["0", "1", "2", "3"]


def test_also_where_all_that_ran_end_at_once(yard: TestYard, tmp_path: Path):
    yard.drain(ADMIN, {"node": "n1"})
    script = f"echo $RANK >> {tmp_path}/ran; while [ $(wc -l < {tmp_path}/ran) -lt 2 ]; do sleep 0.01; done"
    yard.put(sh(script, name="a", tasks=5, min=2, gpus=1))
    assert yard.until("a")["phase"] == "succeeded"
    assert sorted(ran(tmp_path)) == ["0", "1", "2", "3", "4"]


HALF = "echo $RANK >> {ran}; [ $RANK = 0 ] || [ -e {go} ] || sleep 600"


@pytest.mark.parametrize("way", ["drain", "hold", "requeue", "restart"])
def test_a_task_that_succeeded_is_not_run_again_when_its_attempt_was_stopped(tmp_path: Path, way: str):
    fleet = "nodes: [{name: n0, gpus: 2}, {name: n1, gpus: 2}]"
    yard = TestYard(tmp_path / "state", fleet)
    yard.start()
    yard.put(sh(HALF.format(ran=tmp_path / "ran", go=tmp_path / "go"), name="a", tasks=2, gpus=1))
    until_ran(yard, tmp_path, "0", "1")
    end = time.monotonic() + 300
    while yard.job(ADMIN, "a")["history"][0]["tasks"][0].get("outcome") != "succeeded":
        assert time.monotonic() < end
        yard.wait_events(yard.store.last_event, 0.02)
    (tmp_path / "go").touch()
    if way == "drain":
        (node,) = {place["node"] for place in yard.job(ADMIN, "a")["placements"]}
        yard.drain(ADMIN, {"node": node})
    elif way == "requeue":
        yard.act(ADMIN, "a", "requeue")
    else:
        yard.act(ADMIN, "a", "requeuehold")
        yard.until("a", "held")
        if way == "restart":
            yard.close()
            yard = TestYard(tmp_path / "state", fleet)
            yard.start()
        yard.act(ADMIN, "a", "release")
    assert yard.until("a")["phase"] == "succeeded"
    assert sorted(ran(tmp_path)) == ["0", "1", "1"]
    yard.act(ADMIN, "a", "requeue")  # it has ended, and its owner wants all of it again
    assert yard.until("a")["phase"] == "succeeded"
    assert sorted(ran(tmp_path)) == ["0", "0", "1", "1", "1"]
    yard.stop()


def test_a_job_whose_every_task_has_succeeded_is_not_cancelled_any_more(yard: TestYard, tmp_path: Path):
    script = f"trap 'touch {tmp_path}/told; exit 0' USR1; echo $RANK >> {tmp_path}/ran; while :; do sleep 0.02; done"
    yard.put(sh(script, name="a", gpus=1, checkpoint={"grace": "20s"}))
    until_ran(yard, tmp_path, "0")
    yard.act(ADMIN, "a", "requeuehold")
    assert yard.until("a", "held")["phase"] == "held"  # told to stop, it stopped: that is no success
    yard.act(ADMIN, "a", "cancel")
    assert yard.until("a")["phase"] == "cancelled"


def test_numbers_that_never_ran_come_before_those_that_were_stopped():
    from gpuyard.brain.engine.picture.fleet import Fleet
    from tests.support.yards import fleet

    job = "jobs: [{name: a, tasks: 6, min: 1, gpus: 1, succeeded: 1, ended: [0], tried: [1, 2]}]"
    row = Fleet(fleet(f"nodes: [{{name: n0, gpus: 8}}]\n{job}"))._row("a")
    assert row.lowest_free_tasks(0, 5) == [3, 4, 5, 1, 2]
