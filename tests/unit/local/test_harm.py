"""Harm is said before it is done, and afterwards to whom it was done: who gives way, for whom, at what cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuyard.runtime.service import Caller
from tests.support.yards import ADMIN, ME, TestYard, sh

pytestmark = pytest.mark.slow

ONE = "nodes: [{name: n0, gpus: 4}]"


@pytest.fixture
def yard(tmp_path: Path):
    yard = TestYard(tmp_path, ONE)
    yard.start()
    yield yard
    yard.stop()


def preview(yard: TestYard, caller: Caller = ME, **job: Any) -> dict[str, Any]:
    return yard.preview(caller, [sh("true", **job)])[0]


def test_whom_a_job_would_stop_is_told_before_and_after(yard: TestYard):
    """The attack: an interactive job stopped a training, and nobody was told, neither before nor after."""
    yard.put(sh("sleep 600", name="train", gpus=4, priority=10))
    yard.until("train", "running")
    told = preview(yard, name="peek", gpus=1, priority=90)
    assert (told["verdict"], told["message"]) == ("starts", "starts on n0 once room is made")
    (hit,) = told["disturbs"]
    assert (hit["job"], hit["must"], hit["gpus"], hit["for"]) == ("train", "stop", 4, "peek")
    assert hit["message"].startswith("train would be stopped (4 GPUs, ")
    assert hit["message"].endswith(" to do again)")
    (accepted,) = yard.submit(ME, [sh("sleep 600", name="peek", gpus=1, priority=90)])
    assert accepted["forecast"]["disturbs"][0]["job"] == "train"
    yard.until("train", "waiting")
    why = yard.why(ME, "train")
    assert why["disturbed"]["message"].startswith("stopped for peek, ")
    assert why["disturbed"]["at"] == yard.job(ME, "train")["history"][0]["stopped"]
    kinds = {
        event["kind"]: event.get("message", "") for event in yard.events(ME, 0, 100) if event.get("job") == "train"
    }
    assert kinds["evicted"].startswith("attempt 1 is stopped for peek, ")
    assert "of work lost" in kinds["evicted"]
    yard.act(ME, "peek", "cancel")
    yard.until("train", "running")
    assert yard.why(ME, "train")["disturbed"]["message"].startswith("stopped for peek, ")


def test_whoever_gains_reads_in_its_own_history_whom_it_displaced(yard: TestYard):
    yard.put(sh("sleep 600", name="train", gpus=4, priority=10))
    yard.until("train", "running")
    yard.put(sh("sleep 600", name="peek", gpus=1, priority=90))
    yard.until("peek", "running")
    (told,) = [each["message"] for each in yard.job(ME, "peek")["events"] if each["kind"] == "displaced"]
    assert told.startswith("train was stopped for it, ")
    assert told.endswith(" of work lost")


def test_a_job_that_disturbs_nobody_says_nothing_of_it(yard: TestYard):
    yard.put(sh("sleep 600", name="a", gpus=2))
    yard.until("a", "running")
    assert "disturbs" not in preview(yard, name="b", gpus=2, priority=90)
    told = preview(yard, name="b", gpus=4, priority=50)  # no right to anything
    assert (told["verdict"], "disturbs" in told) == ("waits", False)


def test_a_job_that_saves_its_work_is_said_to(yard: TestYard):
    script = "trap 'exit 0' USR1; while :; do sleep 0.05; done"
    yard.put(sh(script, name="train", gpus=4, priority=10, checkpoint={"grace": "20s"}))
    yard.until("train", "running")
    (hit,) = preview(yard, name="peek", gpus=1, priority=90)["disturbs"]
    assert hit["message"] == "train would be stopped (4 GPUs, told to save its work first)"


def test_every_member_of_an_array_counts(yard: TestYard):
    yard.put(*(sh("sleep 600", name=f"t{n}", gpus=1, priority=10) for n in range(4)))
    for n in range(4):
        yard.until(f"t{n}", "running")
    told = preview(yard, name="sweep", array="0-2", gpus=1, priority=90)
    assert len(told["disturbs"]) == 3


def test_who_would_be_moved_is_told_with_where_to(tmp_path: Path):
    yard = TestYard(tmp_path, "nodes: [{name: n0, gpus: 2}, {name: n1, gpus: 2}]")
    yard.start()
    for name, gpus in (("a", 1), ("b", 2), ("c", 1)):
        yard.put(sh("sleep 600", name=name, gpus=gpus))
        yard.until(name, "running")
    yard.act(ME, "b", "cancel")
    yard.until("b")
    yard.put(sh("sleep 600", name="d", gpus=1))  # a and c fill their node
    yard.until("d", "running")
    yard.act(ME, "a", "cancel")
    yard.until("a")
    (hit,) = preview(yard, name="pair", gpus=2)["disturbs"]
    assert (hit["must"], hit["job"] in "cd", hit["message"].split(" (")[0].endswith(hit["to"][0])) == (
        "move",
        True,
        True,
    )
    yard.put(sh("sleep 600", name="pair", gpus=2))
    yard.until("pair", "running")
    yard.until(hit["job"], "running")
    assert yard.why(ME, hit["job"])["disturbed"]["message"].startswith("moved for pair, ")
    yard.stop()


def test_a_quota_that_takes_back_says_from_whom(tmp_path: Path):
    queues = "queues: [{name: research, quota: 0}, {name: prod, quota: 0}]"
    yard = TestYard(tmp_path, f"{ONE}\n{queues}")
    yard.start()
    yard.put(sh("sleep 600", name="r", gpus=4, queue="research"))
    yard.until("r", "running")
    yard.put(sh("sleep 600", name="p", gpus=4, queue="prod", preemptible=False))
    while "p" not in yard.snapshot(ADMIN).get("memory", {}).get("refused", {}):
        yard.wait_events(yard.store.last_event, 0.02)  # that it was refused with other queues counts for nothing
    told = yard.set_queue(ADMIN, {"name": "prod", "quota": 4}, dry_run=True)
    assert (told["evicted"], told["started"]) == (["r"], ["p"])
    assert told["message"].startswith("r would be stopped (4 GPUs, ")
    assert told["message"].endswith("; p could start")
    yard.set_queue(ADMIN, {"name": "prod", "quota": 4}, dry_run=False)
    yard.until("r", "waiting")
    assert yard.why(ME, "r")["disturbed"]["message"].startswith("stopped for p, ")
    yard.stop()


# --- what a job follows --------------------------------------------------------------------------


def test_a_job_that_follows_another_is_not_said_to_start_now(yard: TestYard):
    yard.put(sh("sleep 600", name="first", gpus=1))
    told = preview(yard, name="second", after=["first"])
    assert (told["verdict"], told["message"]) == ("waits", "waits until first has succeeded")
    (accepted,) = yard.submit(ME, [sh("true", name="second", after=["first:any"])])
    assert accepted["forecast"]["message"] == "waits until first has ended"
    together = yard.preview(ME, [sh("true", name="x"), sh("true", name="y", after=["x"])])
    assert [each["verdict"] for each in together] == ["starts", "waits"]


def test_a_job_that_follows_a_failure_is_told_that_it_will_not_run(yard: TestYard):
    yard.put(sh("exit 3", name="first"))
    yard.until("first", "failed")
    told = preview(yard, name="second", after=["first"])
    assert told["message"] == "would be cancelled at once: first failed, and it is to follow its success"
    assert preview(yard, name="second", after=["first:any"])["verdict"] == "starts"
