"""One box, many people: tasks run as their submitter, and nobody sees what is not theirs."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.model.errors import NotFound, Refused
from gpuyard.runtime.service import Caller
from tests.support.yards import ADMIN, TestYard, sh

pytestmark = pytest.mark.slow


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[TestYard]:
    for folder in (tmp_path, *list(tmp_path.parents)[:3]):
        folder.chmod(0o755)  # pytest's own folders are closed to everybody else
    yard = TestYard(tmp_path / "state", shared=True)
    if os.geteuid() != 0:
        with pytest.raises(Refused, match="start it as root"):
            yard.start()
        pytest.xfail("only root can run tasks as somebody else")
    yard.start()
    yield yard
    yard.stop()


def test_a_task_runs_as_its_submitter(shared: TestYard, tmp_path: Path):
    nobody = pwd.getpwnam("nobody")
    caller = Caller("nobody", nobody.pw_uid)
    shared.put(
        sh("id -u; id -g; echo $HOME; cat /proc/self/status | grep CapEff", name="a"),
        caller=caller,
    )
    assert shared.until("nobody/a")["phase"] == "succeeded"
    lines = shared.output("nobody/a").splitlines()
    assert lines[:3] == [str(nobody.pw_uid), str(nobody.pw_gid), nobody.pw_dir]
    assert lines[3].split() == ["CapEff:", "0000000000000000"]


def test_jobs_and_their_output_are_private(shared: TestYard):
    nobody = Caller("nobody", pwd.getpwnam("nobody").pw_uid)
    daemon = Caller("daemon", pwd.getpwnam("daemon").pw_uid)
    shared.put(sh("echo secret", name="a"), caller=nobody)
    shared.until("nobody/a")
    assert [job["name"] for job in shared.jobs(nobody)] == ["a"]
    assert shared.jobs(daemon) == []
    for ask in (shared.job, shared.why, lambda c, n: shared.logs(c, n, 0, 0), lambda c, n: shared.act(c, n, "cancel")):
        with pytest.raises(NotFound, match="there is no job a"):
            ask(daemon, "a")
    assert shared.logs(ADMIN, "nobody/a", 0, 0)[0] == b"secret\n"
    output = shared._plane.launcher.output(1, 0)
    assert (output.stat().st_mode & 0o777, next(output.iterdir()).stat().st_mode & 0o777) == (0o700, 0o600)


def test_nothing_under_the_state_folder_is_for_others_to_read(shared: TestYard):
    """Whatever the umask: orders hold the variables of jobs."""
    before = os.umask(0)
    try:
        for number in range(2):
            shared.put(
                sh("sleep 600", name=f"a{number}", tasks=2), caller=Caller("nobody", pwd.getpwnam("nobody").pw_uid)
            )
            shared.until(f"nobody/a{number}", "running")
        shared.act(ADMIN, "nobody/a0", "cancel")
        shared.until("nobody/a0", "cancelled")
    finally:
        os.umask(before)
    folder = shared.settings.folder
    files = [path for path in folder.rglob("*") if path.is_file() or path.is_fifo()]
    assert len(files) > 10
    assert [path for path in files if path.stat().st_mode & 0o077] == []
    open_to_all = {path.name for path in folder.iterdir() if path.is_dir() and path.stat().st_mode & 0o077}
    assert open_to_all == {"tty", "progress"}  # to go through, not to look around
    assert all((folder / name).stat().st_mode & 0o777 == 0o711 for name in open_to_all)


# --- names, keys and events belong to one owner --------------------------------------------------

NOBODY = Caller("nobody", pwd.getpwnam("nobody").pw_uid)
DAEMON = Caller("daemon", pwd.getpwnam("daemon").pw_uid)


def test_two_people_may_use_the_same_name_and_each_means_their_own(shared: TestYard):
    for caller in (NOBODY, DAEMON):
        assert shared.put(sh("id -un; sleep 600", name="train", gpus=1), caller=caller) == ["train"]
    for caller in (NOBODY, DAEMON):
        shared.until(f"{caller.user}/train", "running")
        assert [job["name"] for job in shared.jobs(caller)] == ["train"]
        assert shared.job(caller, "train")["user"] == caller.user
        assert shared.job(caller, f"{caller.user}/train")["name"] == "train"
    assert {job["name"] for job in shared.jobs(ADMIN)} == {"nobody/train", "daemon/train"}
    assert shared.nodes(DAEMON)[0]["jobs"] == ["other", "train"]
    assert shared.nodes(ADMIN)[0]["jobs"] == ["daemon/train", "nobody/train"]
    shared.act(DAEMON, "train", "cancel")
    shared.until("daemon/train", "cancelled")
    assert shared.job(NOBODY, "train")["phase"] == "running"
    with pytest.raises(NotFound, match=r"there is no job nobody/train$"):
        shared.act(DAEMON, "nobody/train", "cancel")
    with pytest.raises(NotFound, match=r"there is no job train; did you mean nobody/train\?"):
        shared.act(ADMIN, "train", "cancel")
    shared.act(ADMIN, "nobody/train", "cancel")
    shared.until("nobody/train", "cancelled")


def test_same_named_arrays_do_not_end_each_other(shared: TestYard):
    for caller in (NOBODY, DAEMON):
        shared.put(sh("sleep 600", name="sweep", array="0-2", held=True), caller=caller)
    assert shared.act(DAEMON, "sweep", "cancel")["jobs"] == 3
    assert {job["phase"] for job in shared.jobs(NOBODY)} == {"held"}
    assert {job["phase"] for job in shared.jobs(DAEMON)} == {"cancelled"}


def test_a_reused_name_does_not_inherit_what_happened_under_it(shared: TestYard):
    shared.put(sh("exit 3", name="train", queue="default"), caller=NOBODY)
    shared.until("nobody/train")
    shared.put(sh("true", name="train"), caller=DAEMON)
    shared.until("daemon/train")
    own = [event for event in shared.events(DAEMON, 0, 1000) if "job" in event]
    assert {event["user"] for event in own} == {"daemon"}
    assert {event["job"] for event in own} == {"train"}
    assert {event["job"] for event in shared.events(ADMIN, 0, 1000) if "job" in event} == {
        "daemon/train",
        "nobody/train",
    }


@pytest.mark.parametrize("script", ["true", "exit 3", "sleep 600"])
@pytest.mark.parametrize("wish", ["theirs", "nobody/theirs", "theirs:any", "ghost"])
def test_to_follow_another_s_job_tells_nothing_about_it(shared: TestYard, script: str, wish: str):
    shared.put(sh(script, name="theirs"), caller=NOBODY)
    shared.until("nobody/theirs", "running", "succeeded", "failed")
    job = wish.removesuffix(":any")
    with pytest.raises(NotFound, match=f"^job mine is to follow {job}, which nobody knows$"):
        shared.put(sh("true", name="mine", after=[wish]), caller=DAEMON)
    shared.put(sh("true", name="own"), caller=DAEMON)
    shared.put(sh("true", name="mine", after=["own"]), caller=DAEMON)
    assert shared.until("daemon/mine")["phase"] == "succeeded"


def test_an_idempotency_key_is_its_owner_s_also_when_names_and_numbers_are_given_away(shared: TestYard):
    job = sh("true", name="a")
    shared.put(job, caller=NOBODY, key="k")
    shared.until("nobody/a")
    assert shared.submit(NOBODY, [job], key="k")[0]["id"] == 1
    assert shared.submit(DAEMON, [job], key="k")[0]["id"] == 2
    renamed = Caller("nobody", DAEMON.uid)  # the name was given to another user
    assert shared.submit(renamed, [job], key="k")[0]["id"] == 3
    shared.until("nobody/a")
    successor = Caller("games", NOBODY.uid)  # the number was
    assert shared.submit(successor, [job], key="k")[0]["id"] == 4
    assert [job["id"] for job in shared.jobs(NOBODY)] == [1]
    assert shared.submit(NOBODY, [job], key="k")[0] == {"name": "a@1", "phase": "succeeded", "id": 1}


def test_my_own_name_may_look_like_the_one_others_get(shared: TestYard):
    shared.put(sh("sleep 600", name="a", gpus=8, tasks=2, preemptible=False), caller=NOBODY)
    shared.until("nobody/a", "running")
    shared.put(sh("true", name="other-1", gpus=8), caller=DAEMON)
    assert shared.why(DAEMON, "other-1")["in_the_way"][0]["job"] == "other-1'"


# --- what a task gets of others ------------------------------------------------------------------


def test_a_task_finds_programs_only_where_root_alone_puts_them(tmp_path: Path):
    """The attack: a program in a folder of the yard's PATH that some user may write is run for everybody."""
    if os.geteuid() != 0:
        pytest.skip("only root can run tasks as somebody else")
    open_to_all, closed = tmp_path / "open", tmp_path / "closed"
    for folder, mode in ((open_to_all, 0o777), (closed, 0o700)):
        folder.mkdir()
        folder.chmod(mode)
    path = f"{open_to_all}:.::{closed}:/usr/bin:/bin"
    yard = TestYard(tmp_path / "state", shared=True, environ={"PATH": path, "TMPDIR": str(closed)})
    yard.start()
    yard.put(sh("echo $PATH:$TMPDIR", name="a"), caller=NOBODY)
    yard.until("nobody/a")
    assert yard.output("nobody/a") == "/usr/bin:/bin:\n"
    yard.stop()


def test_a_name_that_was_given_away_brings_no_groups_to_the_one_who_had_it(shared: TestYard):
    """The attack: a job waits while its owner's name is given to somebody who is in more groups."""
    rich = next(name for name in grp.getgrall() if name.gr_mem)
    member = pwd.getpwnam(rich.gr_mem[0])
    shared.put(sh("id -G", name="a"), caller=Caller(member.pw_name, NOBODY.uid))
    assert shared.until(f"{member.pw_name}/a")["phase"] == "succeeded"
    assert shared.output(f"{member.pw_name}/a").split() == [str(pwd.getpwuid(NOBODY.uid).pw_gid)]


def test_harm_between_people_names_nobody_to_the_other(shared: TestYard):
    """Who is stopped and for whom is told to each by what they may know: that it happens, and what it costs."""
    nobody = Caller("nobody", pwd.getpwnam("nobody").pw_uid)
    daemon = Caller("daemon", pwd.getpwnam("daemon").pw_uid)
    shared.put(sh("sleep 600", name="secret-plan", gpus=8, tasks=2, priority=10), caller=nobody)
    shared.until("nobody/secret-plan", "running")
    job = sh("sleep 600", name="secret-look", gpus=1, priority=90)
    (told,) = shared.preview(daemon, [job])
    assert "secret-plan" not in str(told)
    assert told["disturbs"][0]["message"].startswith("other-1 would be stopped (16 GPUs, ")
    assert shared.preview(ADMIN, [job])[0]["disturbs"][0]["job"] == "nobody/secret-plan"
    shared.put(job, caller=daemon)
    shared.until("nobody/secret-plan", "waiting")
    why = shared.why(nobody, "secret-plan")
    assert why["disturbed"]["message"].startswith("stopped for a job of queue default, ")
    assert "secret-look" not in str([why, shared.job(nobody, "secret-plan"), shared.events(nobody, 0, 1000)])
