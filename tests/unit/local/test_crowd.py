"""Tasks without GPUs are processes too: how many run at once is bounded, for each user and in all; the rest waits."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuyard.model.errors import Refused
from gpuyard.model.ownership import Caps
from gpuyard.runtime.service import Caller
from tests.support.yards import ADMIN, TestYard, sh

pytestmark = pytest.mark.slow

ANN, BOB = Caller("ann"), Caller("bob")
MakeYard = Callable[[Caps], TestYard]


@pytest.fixture
def make(tmp_path: Path):
    made: list[TestYard] = []

    def make(caps: Caps) -> TestYard:
        made.append(TestYard(tmp_path / "state", caps=caps))
        made[-1].start()
        return made[-1]

    yield make
    for yard in made:
        yard.stop()


def live(yard: TestYard) -> list[str]:
    return sorted(job["name"] for job in yard.jobs(ADMIN) if job["phase"] in ("starting", "running"))


def all_seen(yard: TestYard) -> None:
    """The loop has turned over everything that was submitted."""
    seen = yard._plane.turns
    yard.world.desk.launcher.wake()
    while yard._plane.turns < seen + 1 and yard.world.desk.has_news:
        yard.wait_events(yard.store.last_event, 0.1)


def test_a_users_tasks_are_bounded_and_the_rest_waits_with_the_numbers(make: MakeYard, tmp_path: Path):
    yard = make(Caps(user_tasks=3))
    script = f"while [ ! -e {tmp_path}/end ]; do sleep 0.02; done"
    yard.put(sh(script, name="a", array="0-9"), caller=ANN)
    for name in ("a-0", "a-1", "a-2"):
        yard.until(name, "running")
    yard.put(sh(script, name="b", tasks=2), caller=BOB)
    yard.until("b", "running")
    assert live(yard) == ["a-0", "a-1", "a-2", "b"]
    reason = next(job["reason"] for job in yard.jobs(ADMIN) if job["name"] == "a-7")
    assert reason["code"] == "WaitsItsTurn"
    assert "3 tasks of ann run, and 3 may at once; a-7 has 1 and follows when some end" in reason["message"]
    assert "3 may at once" in yard.why(ADMIN, "a-7")["message"]
    (tmp_path / "end").touch()
    for number in range(10):
        yard.until(f"a-{number}", "succeeded")


def test_one_job_of_very_many_tasks_is_refused_where_they_could_never_run(make: MakeYard):
    yard = make(Caps(jobs=5, user_tasks=100, tasks=200))
    with pytest.raises(Refused, match="job crowd has 400 tasks, and 100 may run at once here; give it fewer"):
        yard.put(sh("sleep 600", name="crowd", tasks=400), caller=ANN)
    with pytest.raises(Refused, match="and 200 may run at once"):
        yard.put(sh("sleep 600", name="crowd", tasks=400), caller=ADMIN)


def test_the_machine_has_a_bound_whoever_they_are(make: MakeYard, tmp_path: Path):
    yard = make(Caps(user_tasks=3, tasks=4))
    script = f"while [ ! -e {tmp_path}/end ]; do sleep 0.02; done"
    for caller in (ANN, BOB):
        yard.put(sh(script, name=caller.user, array="0-3"), caller=caller)
    while len([job for job in yard.jobs(ADMIN) if job["phase"] == "running"]) < 4:
        yard.wait_events(yard.store.last_event, 0.2)
    assert len(live(yard)) == 4
    (tmp_path / "end").touch()
    for name in ("ann-3", "bob-3"):
        yard.until(name, "succeeded")


def test_an_elastic_job_grows_no_further_than_its_users_bound(make: MakeYard, tmp_path: Path):
    yard = make(Caps(user_tasks=3))
    script = f"while [ ! -e {tmp_path}/end ]; do sleep 0.02; done"
    yard.put(sh(script, name="e", tasks=8, min=2), caller=ANN)
    all_seen(yard)
    assert sum(len(job.get("placements", ())) for job in yard.jobs(ADMIN)) <= 3


def test_the_more_urgent_goes_first_when_there_is_room_again(make: MakeYard, tmp_path: Path):
    yard = make(Caps(user_tasks=1))
    yard.put(sh(f"while [ ! -e {tmp_path}/end ]; do sleep 0.02; done", name="first"), caller=ANN)
    yard.until("first", "running")
    line = f"echo $GPUYARD_JOB >> {tmp_path}/order"
    yard.put(sh(line, name="low", priority=10), sh(line, name="high", priority=80), caller=ANN)
    (tmp_path / "end").touch()
    yard.until("low", "succeeded")
    assert (tmp_path / "order").read_text().split() == ["high", "low"]


def test_who_was_cancelled_or_held_in_the_line_takes_nobody_s_turn(make: MakeYard, tmp_path: Path):
    """They were called when there was room, and nobody else was: with nothing running nobody called again."""
    yard = make(Caps(user_tasks=1))
    yard.put(sh(f"while [ ! -e {tmp_path}/end ]; do sleep 0.02; done", name="a"), caller=ANN)
    yard.until("a", "running")
    yard.put(*(sh("true", name=name) for name in ("b", "c", "d")), caller=ANN)
    yard.act(ANN, "b", "cancel")
    yard.act(ANN, "c", "hold")
    (tmp_path / "end").touch()
    yard.until("d", "succeeded")
    yard.act(ANN, "c", "release")
    yard.until("c", "succeeded")


def test_who_waits_is_in_the_line_once_however_often_it_was_held_and_released(make: MakeYard):
    yard = make(Caps(user_tasks=1))
    yard.put(sh("sleep 600", name="a"), caller=ANN)
    yard.until("a", "running")
    yard.put(sh("true", name="crowded"), caller=ANN)
    yard.put(sh("true", name="after", after=["a"]), caller=ANN)
    yard.put(sh("true", name="turn", array="0-1%1"), caller=BOB)
    yard.put(sh("exit 1", name="tired", run={"retries": 1}), caller=ADMIN)
    gates = yard.world.gates
    for _ in range(5):
        for who, name in ((ANN, "crowded"), (ANN, "after"), (BOB, "turn-1")):
            if yard.job(ADMIN, name)["phase"] == "waiting":
                yard.act(who, name, "hold")
                yard.act(who, name, "release")
    with yard.world.desk.lock:
        lines = [len(each) for each in (gates.crowd._waiting.get("ann", []), *gates._dependents.values())]
        lines += [len(each) for each in yard.world.desk.book.gated.values()]
    assert max(lines) == 1, lines


def test_a_job_that_begins_again_counts_like_a_new_one(make: MakeYard):
    """The attack: jobs that end at once, and are then all requeued past the cap."""
    yard = make(Caps(jobs=2))
    for number in range(3):
        yard.put(sh("true" if number else "sleep 600", name=f"a{number}"), caller=ANN)
        yard.until(f"a{number}", *(() if number else ("running",)))
    yard.put(sh("sleep 600", name="a3"), caller=ANN)
    with pytest.raises(Refused, match="ann has 2 jobs that are not over, and 2 are allowed"):
        yard.act(ANN, "a1", "requeue")
    assert yard.job(ANN, "a1")["phase"] == "succeeded"
    yard.act(ADMIN, "a1", "requeue")
    assert yard.until("a1")["attempts"] == 2


def test_a_name_that_was_given_to_another_user_does_not_inherit_what_was_used_of_a_cap(tmp_path: Path):
    if os.geteuid() != 0:
        pytest.skip("only root can run tasks as somebody else")
    yard = TestYard(tmp_path / "state", shared=True, caps=Caps(jobs=1, user_tasks=1))
    yard.start()
    old, new = (Caller("nobody", pwd.getpwnam(name).pw_uid) for name in ("nobody", "daemon"))
    yard.put(sh("sleep 600", name="a", gpus=1), caller=old)
    yard.until("nobody/a", "running")
    yard.put(sh("sleep 600", name="b", gpus=1), caller=new)
    yard.until("nobody/b", "running")
    assert [line["uid"] for line in yard.report(ADMIN, "user", 0.0)] == sorted((old.uid, new.uid))
    for caller in (old, new):
        (line,) = yard.report(caller, "user", 0.0)
        assert (line["uid"], line["tasks"]) == (caller.uid, 1)
    yard.stop()
