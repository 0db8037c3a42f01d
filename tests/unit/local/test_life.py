"""What becomes of jobs: retries, losses, stops, holds, arrays, dependencies, and who is told what."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from gpuyard.model.errors import Conflict, Denied, Never, NotFound, Refused
from gpuyard.model.node import Health
from gpuyard.model.ownership import Caps
from gpuyard.runtime.service import Caller
from gpuyard.worlds.local.supervising.confine import own_cgroup
from tests.support.yards import ADMIN, ME, TestYard, gated, once_gated, sh

pytestmark = pytest.mark.slow


def test_a_failed_job_is_tried_again_as_often_as_it_asked(yard: TestYard, tmp_path: Path):
    script = f"echo x >> {tmp_path}/tries; test $(wc -l < {tmp_path}/tries) -ge 3"
    yard.put(sh(script, name="a", run={"retries": 2}))
    document = yard.until("a")
    assert (document["phase"], document["attempts"]) == ("succeeded", 3)
    codes = [attempt["tasks"][0]["exit_code"] for attempt in yard.job(ME, "a")["history"]]
    assert codes == [1, 1, 0]


def test_one_failed_rank_ends_a_rigid_gang(yard: TestYard):
    yard.put(sh("test $RANK -eq 1 && exit 7; sleep 30", name="g", tasks=3, gpus=1))
    document = yard.until("g")
    assert (document["phase"], document["exit_code"], document["message"]) == ("failed", 7, "rank 1: exit code 7")


def test_one_failed_rank_shrinks_an_elastic_gang(yard: TestYard):
    yard.put(sh("test $RANK -eq 1 && exit 7; sleep 0.5", name="g", tasks=3, min=2, gpus=1))
    document = yard.until("g")
    assert (document["phase"], document["attempts"]) == ("succeeded", 1)


def test_a_gang_with_a_rank_that_cannot_start_starts_none(yard: TestYard, tmp_path: Path):
    job = {"name": "g", "tasks": 3, "gpus": 1, "run": {"command": ["touch", "x"], "workdir": str(tmp_path / "none")}}
    yard.put(job)
    assert yard.until("g")["message"].endswith(f": the working folder {tmp_path}/none does not exist")
    assert not own_cgroup() or not list(Path(own_cgroup()).glob(f"gpuyard-{yard.world.desk.around.mark}*"))


def test_a_killed_supervisor_takes_its_task_with_it_and_the_job_is_tried_again(yard: TestYard, tmp_path: Path):
    yard.put(sh(f"[ -e {tmp_path}/go ] && exit 0; sleep 600 & wait", name="a", gpus=1))
    yard.until("a", "running")
    (tmp_path / "go").touch()
    task = yard.job(ME, "a")["history"][0]["tasks"][0]["pid"]
    supervisor = int(Path(f"/proc/{task}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(supervisor, signal.SIGKILL)
    document = yard.until("a")
    assert (document["phase"], document["losses"]) == ("succeeded", 1)
    assert not Path(f"/proc/{task}/cmdline").exists() or Path(f"/proc/{task}/cmdline").read_bytes() == b""


def test_a_killed_task_is_a_failure_told_by_its_signal(yard: TestYard):
    yard.put(sh("kill -9 $$", name="a", gpus=1))
    document = yard.until("a")
    assert (document["phase"], document["exit_code"]) == ("failed", -9)
    assert document["message"] == "rank 0: ended by SIGKILL"


@pytest.mark.parametrize("confined", [True, False])
def test_a_task_that_forks_away_is_ended_with_its_job(tmp_path: Path, monkeypatch, confined: bool):
    if not confined:
        monkeypatch.setattr("gpuyard.runtime.embedded.control_plane.own_cgroup", str)
    yard = TestYard(tmp_path)
    yard.start()
    seconds = f"33.{os.getpid()}{int(confined)}"
    yard.put(sh(f"setsid sleep {seconds} & exit 0", name="a"))
    yard.until("a")
    assert seconds.encode() not in b"".join(command_lines())
    yard.stop()
    group = own_cgroup()
    marked = f"gpuyard-{yard.world.desk.around.mark}"
    assert not group or not [name for name in os.listdir(group) if name.startswith(marked)]


def command_lines() -> list[bytes]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes())
    return found


def test_preemption_gives_a_job_its_signal_and_time_to_save(yard: TestYard):
    script = "trap 'echo saved; exit 0' USR1; echo up; while :; do sleep 0.05; done"
    checkpoint = {"signal": "SIGUSR1", "grace": "60s"}
    yard.put(sh(script, name="low", tasks=2, gpus=8, priority=1, checkpoint=checkpoint))
    yard.until("low", "running")
    for task in (0, 1):
        yard.until_said("low", "up", task)
    yard.put(sh("true", name="high", gpus=8, priority=99))
    assert yard.until("high")["phase"] == "succeeded"
    assert "saved\n" in yard.output("low")
    yard.act(ME, "low", "cancel")
    assert yard.until("low")["phase"] == "cancelled"


def test_a_job_that_will_not_stop_is_killed(yard: TestYard):
    yard.put(sh("trap '' TERM; while :; do sleep 0.05; done", name="a"))
    yard.until("a", "running")
    yard.act(ME, "a", "cancel")
    assert yard.until("a")["phase"] == "cancelled"


def test_hold_release_and_requeue(yard: TestYard, tmp_path: Path):
    yard.put(sh(once_gated(tmp_path / "go"), name="a", held=True))
    assert yard.until("a", "held")["reason"]["code"] == "Held"
    yard.act(ME, "a", "release")
    yard.until("a", "running")
    (tmp_path / "go").touch()
    yard.act(ME, "a", "requeue")
    assert yard.until("a")["attempts"] == 2
    yard.act(ME, "a", "requeue")
    assert yard.until("a")["attempts"] == 3
    with pytest.raises(Conflict):
        yard.act(ME, "a", "cancel")


def test_holding_stops_no_work(yard: TestYard):
    """The attack: `yard hold` of a running job stopped it, lost its work and said "is held"."""
    yard.put(sh("sleep 600", name="a", gpus=1))
    yard.until("a", "running")
    assert yard.act(ME, "a", "hold") == {"name": "a", "phase": "running", "jobs": 1, "running": 1}
    yard.act(ME, "a", "release")
    yard.act(ME, "a", "hold")
    yard.put(sh("true", name="b"))
    yard.until("b")
    job = yard.job(ME, "a")
    assert (job["phase"], job["attempts"]) == ("running", 1)
    yard.act(ME, "a", "requeue")  # whatever stops it now, it does not start again by itself
    assert yard.until("a", "held")["attempts"] == 1
    yard.act(ME, "a", "release")
    assert yard.until("a", "running")["attempts"] == 2


def test_holding_and_queueing_again_stops_what_runs(yard: TestYard):
    yard.put(sh("sleep 600", name="a", gpus=1))
    yard.until("a", "running")
    assert yard.act(ME, "a", "requeuehold")["running"] == 0
    assert yard.until("a", "held")["attempts"] == 1


def test_a_job_that_is_held_while_it_runs_may_still_be_moved(yard: TestYard):
    """A move is no start: the held one goes on elsewhere."""
    yard.put(sh("sleep 600", name="a", gpus=1))
    node = yard.until("a", "running")["placements"][0]["node"]
    yard.act(ME, "a", "hold")
    yard.drain(ADMIN, {"node": node})
    job = yard.until("a", "running", "held")
    while job["phase"] == "running" and job["placements"][0]["node"] == node:
        yard.wait_events(yard.store.last_event, 0.2)
        job = yard.until("a", "running", "held")
    assert (job["phase"], job["attempts"]) == ("running", 2)


def test_a_held_job_that_was_cancelled_and_is_queued_again_is_still_held(yard: TestYard):
    yard.put(sh("true", name="a", held=True))
    yard.until("a", "held")
    yard.act(ME, "a", "cancel")
    yard.until("a", "cancelled")
    yard.act(ME, "a", "requeue")
    assert yard.until("a", "held")["reason"]["code"] == "Held"
    yard.act(ME, "a", "release")
    assert yard.until("a")["phase"] == "succeeded"


def test_an_array_runs_as_many_at_once_as_it_says(yard: TestYard):
    names = yard.put(sh("echo $GPUYARD_ARRAY_INDEX; sleep 0.1", name="sweep", array="0-5%2", gpus=1))
    assert names == [f"sweep-{n}" for n in range(6)]
    most = 0
    while any(job["phase"] != "succeeded" for job in yard.jobs(ME)):
        most = max(most, sum(job["phase"] in ("starting", "running") for job in yard.jobs(ME)))
        yard.wait_events(yard.store.last_event, 0.2)
    assert most == 2
    assert yard.output("sweep-4") == "4\n"


def test_an_array_is_cancelled_by_its_name(yard: TestYard):
    yard.put(sh("sleep 30", name="sweep", array="0-9%3", gpus=1))
    assert yard.act(ME, "sweep", "cancel")["jobs"] == 10
    for number in range(10):
        assert yard.until(f"sweep-{number}")["phase"] == "cancelled"


def test_a_job_waits_for_those_it_follows(yard: TestYard, tmp_path: Path):
    yard.put(sh(gated(tmp_path / "go", "exit 1"), name="a"), sh("true", name="b"))
    yard.put(sh("true", name="anyhow", after=["a:any", "b"]), sh("true", name="only-well", after=["a:ok"]))
    assert yard.why(ME, "anyhow")["message"] == "anyhow waits until a has ended"
    (tmp_path / "go").touch()
    assert yard.until("anyhow")["phase"] == "succeeded"
    document = yard.until("only-well")
    assert (document["phase"], document["message"]) == (
        "cancelled",
        "a failed, and only-well was to follow its success",
    )
    with pytest.raises(NotFound, match="c is to follow nobody, which nobody knows"):
        yard.put(sh("true", name="c", after=["nobody"]))


def test_a_job_waits_for_a_whole_array(yard: TestYard):
    yard.put(sh("sleep 0.1", name="sweep", array="0-3%2"), sh("true", name="last", after=["sweep"]))
    assert yard.until("last")["phase"] == "succeeded"
    ended = {job["name"]: job["ended"] for job in yard.jobs(ME)}
    assert max(ended, key=lambda name: ended[name]) == "last"


def test_a_repeated_submission_with_a_key_is_one(yard: TestYard):
    assert yard.put(sh("true", name="a"), key="k") == yard.put(sh("true", name="a"), key="k") == ["a"]
    with pytest.raises(Conflict, match="the key k was used for another submission"):
        yard.put(sh("false", name="a"), key="k")


def test_a_name_is_taken_until_its_job_has_ended(yard: TestYard, tmp_path: Path):
    yard.put(sh(gated(tmp_path / "go"), name="a"))
    with pytest.raises(Conflict, match="there is a job a already"):
        yard.put(sh("true", name="a"))
    (tmp_path / "go").touch()
    yard.until("a")
    yard.put(sh("true", name="a"))
    yard.until("a")
    assert sorted(job["name"] for job in yard.jobs(ME)) == ["a", "a@1"]


@pytest.mark.parametrize(
    ("job", "error", "told"),
    [
        (sh("true", name="a", gpus=9), Never, "could never run on this fleet"),
        (sh("true", name="a", queue="nobodys"), NotFound, "stands in queue nobodys, which does not exist"),
        ({"name": "a"}, Refused, "says nothing to run"),
        (sh("true", name="a", gpus="many"), Refused, "gpus must be"),
        (sh("true", name="a", run={"image": "-x"}), Refused, "is the name of an image"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(yard: TestYard, job, error, told):
    with pytest.raises(error, match=told) as caught:
        yard.put(job)
    assert "\n" not in str(caught.value)
    assert yard.jobs(ME) == []


def test_a_job_that_could_never_run_may_be_queued_anyway(yard: TestYard):
    yard.put(sh("true", name="a", gpus=9), queue_anyway=True)
    assert yard.until("a", "waiting")["phase"] == "waiting"


def test_a_sick_gpu_gets_nothing_new(tmp_path: Path):
    yard = TestYard(tmp_path, "nodes: [{name: n0, gpus: 2, model: H100}]")
    yard.start()
    yard.world.breakage.set_health("n0", 0, Health.SICK)
    yard.put(sh("true", name="a", gpus=1))
    assert yard.until("a")["phase"] == "succeeded"
    assert yard.job(ME, "a")["history"][0]["tasks"][0]["gpus"] == [1]
    yard.stop()


def test_queue_rights_and_caps(tmp_path: Path):
    text = "nodes: [{name: n0, gpus: 2, model: H100}]\nqueues: [{name: a, users: [ann], groups: [ops]}, {name: b}]"
    yard = TestYard(tmp_path, text, caps=Caps(jobs=2))
    yard.start()
    with pytest.raises(Denied, match="bob may not use queue a; it is open to ann, group ops"):
        yard.put(sh("true", name="x", queue="a"), caller=Caller("bob"))
    yard.put(sh("sleep 5", name="x", queue="a"), caller=Caller("bob", groups=("ops",)))
    yard.put(sh("sleep 5", name="y", queue="b"), caller=Caller("bob"))
    with pytest.raises(Refused, match="bob has 2 jobs that are not over, and 2 are allowed"):
        yard.put(sh("true", name="z", queue="b"), caller=Caller("bob"))
    with pytest.raises(Denied, match="x belongs to bob"):
        yard.act(Caller("ann"), "x", "cancel")
    yard.act(ADMIN, "x", "cancel")
    yard.stop()


def test_a_node_that_comes_back_takes_jobs_again(tmp_path: Path):
    yard = TestYard(tmp_path, "nodes: [{name: n0, gpus: 4, model: H100}]")
    yard.start()
    yard.put(sh("sleep 60", name="a", gpus=4))
    yard.until("a", "running")
    yard.world.breakage.lose_node("n0")
    yard.until("a", "waiting")
    yard.world.breakage.return_node("n0")
    assert yard.until("a", "running")["attempts"] == 2
    yard.stop()


def test_members_of_an_array_may_be_followed_from_beside_it(yard: TestYard):
    yard.put(sh("true", name="a", array="0-2"), sh("true", name="b", after=["a-1", "a"]))
    assert yard.until("b")["phase"] == "succeeded"


def test_nobody_is_called_as_an_ended_job_is_once_its_name_is_used_again(yard: TestYard):
    """The attack: a job `a@1` in the way of the next `a`, which then could never be submitted again."""
    yard.put(sh("true", name="a"))
    yard.until("a")
    with pytest.raises(Refused, match="choose a name that does not end in @ and a number"):
        yard.put(sh("true", name="a@1"))
    yard.put(sh("true", name="a"), sh("true", name="a@b"))
    assert yard.until("a")["id"] == 2
    assert yard.job(ME, "a@1")["phase"] == "succeeded"
