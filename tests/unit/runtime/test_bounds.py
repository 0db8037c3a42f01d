"""How long a job may ask for: what is beyond it is refused at once, with whose bound it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.model.errors import Refused
from tests.support.yards import ADMIN, TestYard, sh

FLEET = """
nodes: [{name: n0, gpus: 8}]
policy: {classes: {batch: {max_time_limit: 1d}}}
queues:
  - {name: team, max_grace: 2m}
  - {name: quick, parent: team, max_time_limit: 1h, max_min_runtime: 5m}
  - {name: default, quota: 8}
"""


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[TestYard]:
    made = TestYard(tmp_path, FLEET)
    made.start()
    yield made
    made.stop()


@pytest.mark.parametrize(
    ("job", "told"),
    [
        ({"checkpoint": {"grace": "1000d"}}, r"asks for checkpoint.grace 1000d, and class training allows at most 30m"),
        ({"min_runtime": "1000d"}, r"min_runtime 1000d, and class training allows .* 4h \(policy classes.training.max"),
        ({"class": "batch", "time_limit": "1000d"}, "time_limit 1000d, and class batch allows at most 1d"),
        (
            {"priority": "urgent"},
            r"priority urgent, which is no name here \(there are: low 10, high 200, critical 1000\)",
        ),
        ({"queue": "quick", "time_limit": "2h"}, "time_limit 2h, and queue quick allows at most 1h"),
        ({"queue": "quick", "min_runtime": "10m"}, "min_runtime 10m, and queue quick allows at most 5m"),
        ({"queue": "quick", "checkpoint": {"grace": "3m"}}, "grace 3m, and queue team allows at most 2m"),
    ],
)
def test_what_is_beyond_a_bound_is_refused_naming_it(yard: TestYard, job: dict[str, Any], told: str):
    with pytest.raises(Refused, match=told):
        yard.put(sh("true", name="a", **job))


def test_what_is_within_is_accepted_and_who_names_no_limit_gets_the_queues(yard: TestYard):
    yard.put(sh("true", name="a", queue="quick", checkpoint={"grace": "2m"}, min_runtime="5m"))
    assert yard.job(ADMIN, "a")["time_limit"] == "1h"
    yard.put(sh("true", name="b", time_limit="400d"))
    assert yard.job(ADMIN, "b")["time_limit"] == "400d"


def test_a_bound_of_a_queue_is_set_while_the_yard_runs(yard: TestYard):
    yard.set_queue(ADMIN, {"name": "default", "max_time_limit": "30m"}, dry_run=False)
    with pytest.raises(Refused, match="queue default allows at most 30m"):
        yard.put(sh("true", name="a", time_limit="1h"))


def test_a_drain_says_who_is_still_there(yard: TestYard):
    """The attack: eight GPUs were held through a long grace, and the node was said to be empty."""
    script = "trap '' USR1 TERM; echo up; while :; do sleep 0.05; done"
    yard.put(sh(script, name="a", gpus=8, checkpoint={"grace": "20m"}))
    while "up" not in yard.output("a"):
        yard.wait_events(yard.store.last_event, 0.02)
    yard.act(ADMIN, "a", "requeuehold")
    answer = yard.drain(ADMIN, {"node": "n0"})
    assert answer["message"] == "n0 (8 GPUs): 1 is stopping already"
    assert (answer["held_gpus"], answer["leaving"][0]["job"]) == (8, "a")
    yard.act(ADMIN, "a", "cancel")
    yard.until("a", "cancelled")
    while yard.drain(ADMIN, {"node": "n0"})["held_gpus"]:
        yard.wait_events(yard.store.last_event, 0.02)
    assert "is empty" in yard.drain(ADMIN, {"node": "n0"})["message"]


def test_a_bound_that_came_later_holds_for_jobs_that_were_accepted_before(yard: TestYard, tmp_path: Path):
    """Their time limits stay: no work ends that was promised its time."""
    asked = {"checkpoint": {"grace": "20m"}, "min_runtime": "3h", "time_limit": "5h"}
    yard.put(sh("sleep 600", name="runs", gpus=8, **asked), sh("true", name="waits", gpus=8, **asked))
    yard.until("runs", "running")
    tight = {"name": "default", "max_grace": "1m", "max_min_runtime": "2m", "max_time_limit": "1h"}
    yard.set_queue(ADMIN, tight, dry_run=False)
    for name in ("runs", "waits"):
        assert _asks(yard, name) == ("1m", "2m", "5h")
    yard.close()
    again = TestYard(tmp_path, FLEET)
    again.start()
    assert _asks(again, "waits") == ("1m", "2m", "5h")
    again.act(ADMIN, "waits", "cancel")
    again.until("waits", "cancelled")
    with pytest.raises(Refused, match="grace 20m, and queue default allows at most 1m"):
        again.act(ADMIN, "waits", "requeue")
    again.stop()
    yard.start()


def _asks(yard: TestYard, name: str) -> tuple[str, str, str]:
    job = yard.job(ADMIN, name)
    return job["checkpoint"]["grace"], job["min_runtime"], job["time_limit"]
