"""What a person first tries: a job is accepted, runs as a process, ends, and all of it can be read."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest

from tests.support.yards import ADMIN, ME, TestYard, sh

pytestmark = pytest.mark.slow


def test_a_job_runs_and_succeeds(yard: TestYard):
    assert yard.put(sh("echo hello", name="a", gpus=2)) == ["a"]
    document = yard.until("a")
    assert (document["phase"], document["exit_code"]) == ("succeeded", 0)
    assert yard.output("a") == "hello\n"


def test_a_failing_command_is_a_failed_job_with_its_exit_code(yard: TestYard):
    yard.put(sh("exit 3", name="a"))
    document = yard.until("a")
    assert (document["phase"], document["exit_code"]) == ("failed", 3)


def test_a_program_that_is_not_there_is_told_in_one_sentence(yard: TestYard):
    yard.put({"name": "a", "run": {"command": ["no-such-program"]}})
    document = yard.until("a")
    assert document["phase"] == "failed"
    assert document["message"] == "rank 0: cannot run no-such-program: No such file or directory"


def test_a_task_sees_its_gpus_by_uuid_and_its_rank(yard: TestYard):
    yard.put(
        sh("echo $RANK $WORLD_SIZE $LOCAL_RANK $PET_NNODES; echo $CUDA_VISIBLE_DEVICES", name="g", tasks=2, gpus=8)
    )
    assert yard.until("g")["phase"] == "succeeded"
    lines = [yard.output("g", rank).splitlines() for rank in (0, 1)]
    assert [line[0] for line in lines] == ["0 2 0 2", "1 2 0 2"]
    uuids = [uuid for line in lines for uuid in line[1].split(",")]
    assert len(set(uuids)) == 16
    assert all(uuid.startswith("GPU-") for uuid in uuids)


def test_nothing_of_the_servers_loader_reaches_a_task(tmp_path):
    environ = {"PATH": "/usr/bin:/bin", "LD_PRELOAD": "x", "PYTHONPATH": "y", "NVIDIA_VISIBLE_DEVICES": "all"}
    yard = TestYard(tmp_path, environ=environ)
    yard.start()
    yard.put(sh("env", name="a"))
    yard.until("a")
    names = {line.split("=")[0] for line in yard.output("a").splitlines()}
    assert not [name for name in names if name.startswith(("LD_", "PYTHON", "NVIDIA_"))]
    yard.stop()


def test_events_have_growing_numbers_and_tell_the_story(yard: TestYard):
    yard.put(sh("true", name="a"))
    yard.until("a")
    events = [event for event in yard.events(ADMIN, 0, 100) if event.get("job") == "a"]
    assert [event["kind"] for event in events] == ["submitted", "starting", "started", "ended"]
    assert [event["id"] for event in events] == sorted(event["id"] for event in events)
    assert [document["name"] for document in yard.jobs(ME)] == ["a"]


def test_a_chain_of_very_many_ends_with_its_first_and_holds_nobody_up(yard: TestYard):
    """The attack: each follows the one before it, and the first fails; what recursed was lost, and waited for ever."""
    chain = [sh("true", name=f"j{n}", after=[f"j{n - 1}"] if n else [], run={}) for n in range(600)]
    chain[0]["run"] = {"command": ["false"]}
    yard.put(*chain)
    assert yard.until("j599")["phase"] == "cancelled"
    yard.put(sh("true", name="other"))
    assert yard.until("other")["phase"] == "succeeded"


def test_whoever_follows_what_has_failed_already_is_told_at_once(yard: TestYard):
    yard.put(sh("false", name="a"))
    yard.until("a", "failed")
    yard.put(sh("true", name="b", after=["a"]), sh("true", name="c", after=["b"]))
    assert yard.until("c")["message"] == "b cancelled, and c was to follow its success"


def test_asking_again_with_the_same_key_hears_the_first_answer_also_while_that_is_being_written(
    yard: TestYard, monkeypatch: pytest.MonkeyPatch
):
    """The client of the first question is gone, and its job's name is taken by nobody but itself."""
    job, written, requests = sh("true", name="a"), threading.Event(), yard.world.requests
    write_down = requests._write_down

    def slowly(*asked: Any) -> None:
        written.wait(300)
        write_down(*asked)

    monkeypatch.setattr(requests, "_write_down", slowly)
    with ThreadPoolExecutor(2) as people:
        first = people.submit(yard.submit, ME, [job], key="k")
        while not yard.world.desk.book.is_taken("a"):
            time.sleep(0.001)
        again = people.submit(yard.submit, ME, [job], key="k")
        wait([again], timeout=0.1)
        written.set()
        assert [each["id"] for each in again.result()] == [each["id"] for each in first.result()] == [1]
    assert [each["name"] for each in yard.jobs(ME)] == ["a"]
