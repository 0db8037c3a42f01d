"""What a job tells of itself: heard, checked, kept across restarts, told to its owner; and what others try with it."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.brain.engine.picture.memory import Memory, Progresses
from gpuyard.client.progressing import progress
from gpuyard.model.answers.progress import LONGEST_S, Progress
from gpuyard.runtime.service import Caller
from gpuyard.worlds.local.launching import adopt, orders
from gpuyard.worlds.local.supervising import progress_pipe
from gpuyard.worlds.local.supervising.progress_pipe import LINE_MAX, REST_S, TELL_S, ProgressPipe
from tests.support.yards import ADMIN, TestYard, gated, sh


@pytest.fixture
def pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProgressPipe]:
    made = ProgressPipe(str(tmp_path / "pipe"))
    monkeypatch.setenv("GPUYARD_PROGRESS", made.path)
    yield made
    made.close(0.0)


def say(pipe: ProgressPipe, content: bytes) -> None:
    with open(pipe.path, "wb", buffering=0) as file:
        file.write(content)


def kept(pipe: ProgressPipe) -> dict[str, float]:
    return {key: float(value) for key, value in pipe.pairs()}


# --- what is taken -------------------------------------------------------------------------------


def test_the_client_s_words_become_numbers_and_moments(pipe: ProgressPipe):
    assert progress(10, 100)
    assert pipe.hear(1.0)
    assert progress(30, 100, saved=True)
    assert pipe.hear(6.0)
    assert kept(pipe) == {"first_at": 1.0, "first_done": 10.0, "at": 6.0, "done": 30.0, "total": 100.0, "saved": 6.0}


def test_numbers_of_any_library_and_words_that_are_none_do_no_harm(pipe: ProgressPipe):
    import numpy as np

    assert progress(np.int64(3), np.float32(4.5), saved=np.bool_(True))  # type: ignore[arg-type]
    assert not progress(object())  # type: ignore[arg-type]
    pipe.hear(1.0)
    assert (kept(pipe)["done"], kept(pipe)["total"], kept(pipe)["saved"]) == (3.0, 4.5, 1.0)


def test_saved_work_alone_is_progress_enough(pipe: ProgressPipe):
    assert progress(saved=True)
    assert pipe.hear(2.0)
    assert kept(pipe)["saved"] == 2.0


def test_the_first_word_and_saved_work_are_told_at_once_and_the_rest_now_and_then(pipe: ProgressPipe):
    told = []
    for step in range(100):
        progress(step + 1, saved=step == 20)
        told.append(pipe.hear(step * 0.3))
    assert [step for step, is_told in enumerate(told) if is_told][:3] == [0, 17, 21]  # a second after the last
    assert 5 <= sum(told) <= 8


def test_what_was_not_told_yet_is_told_when_it_is_time_though_nothing_more_is_said(pipe: ProgressPipe):
    progress(1)
    assert pipe.hear(0.0)
    progress(2)
    assert not pipe.hear(1.0)
    assert pipe.due(1.0) == [1.0 + REST_S, TELL_S]
    assert pipe.hear(TELL_S)
    assert pipe.due(TELL_S) == []


def test_who_counts_anew_is_measured_anew(pipe: ProgressPipe):
    for at, step in enumerate((5, 9, 1, 3)):
        progress(step)
        pipe.hear(float(at))
    assert kept(pipe) == {"first_at": 2.0, "first_done": 1.0, "at": 3.0, "done": 3.0, "total": 0.0}


# --- what is not ---------------------------------------------------------------------------------

NOT_PROGRESS = [
    b"\n", b"hello\n", b"\xff\xfe\x00\n", b"[1, 2]\n", b"3\n", b'"done"\n', b"{}\n", b'{"done": "3"}\n',
    b'{"done": true}\n', b'{"done": NaN}\n', b'{"done": Infinity}\n', b'{"done": -1}\n', b'{"done": 1e16}\n',
    b'{"done": 1' + b"0" * 400 + b"}\n", b'{"done": null, "saved": "yes"}\n', b"[" * LINE_MAX + b"\n",
    b'{"done": 1, "x": "' + b"y" * LINE_MAX + b'"}\n', b'{"done": 1}',
]  # fmt: skip


@pytest.mark.parametrize("content", NOT_PROGRESS, ids=lambda content: repr(content[:24]))
def test_what_is_no_progress_is_dropped_and_what_follows_is_heard(pipe: ProgressPipe, content: bytes):
    say(pipe, content)
    pipe.hear(0.0)
    assert pipe.pairs() == []
    say(pipe, b"\n" if content.endswith(b"}") else b'{"done": 7, "total": -4, "evil": "\\u001b[31m"}\n')
    pipe.hear(10.0)
    assert kept(pipe)["done"] == (1.0 if content.endswith(b"}") else 7.0)
    assert kept(pipe)["total"] == 0.0


def test_a_flood_fills_no_memory_holds_nobody_up_and_is_read_only_so_often(pipe: ProgressPipe):
    assert all(progress(step) for step in range(1, 100))
    while progress(1):  # until it is full: from then on it is refused, and nobody waits
        pass
    filled = os.open(pipe.path, os.O_WRONLY | os.O_NONBLOCK)
    with pytest.raises(BlockingIOError):
        os.write(filled, b"x" * (1 << 20)) and os.write(filled, b"x")
    pipe.hear(0.0)
    assert pipe.readable(REST_S / 2) == []
    assert len(pipe.partial) <= LINE_MAX + 1
    os.close(filled)


def test_of_a_flood_of_lines_the_newest_are_read_and_those_that_tell_of_saved_work(
    pipe: ProgressPipe, monkeypatch: pytest.MonkeyPatch
):
    read: list[bytes] = []
    take = pipe._take

    def noted(line: bytes, now: float) -> None:
        read.append(line)
        take(line, now)

    monkeypatch.setattr(pipe, "_take", noted)
    say(pipe, b"\n" * 30_000 + b'{"saved": true}\n' + b"\n" * 30_000 + b'{"done": 9}\n')
    pipe.hear(3.0)
    assert (len(read), kept(pipe)["done"], kept(pipe)["saved"]) == (progress_pipe.LINES_READ + 1, 9.0, 3.0)


def test_who_saves_all_the_time_is_told_of_once_a_second(pipe: ProgressPipe):
    told = 0
    for tick in range(100):
        progress(tick, saved=True)
        told += pipe.hear(tick * 0.25)
    assert told == 25


def test_what_stands_in_its_way_is_replaced_and_never_followed(tmp_path: Path):
    (tmp_path / "secret").write_text("mine")
    (tmp_path / "pipe").symlink_to(tmp_path / "secret")
    made = ProgressPipe(str(tmp_path / "pipe"))
    assert (tmp_path / "pipe").is_fifo()
    made.close(0.0)
    assert not (tmp_path / "pipe").exists()
    assert (tmp_path / "secret").read_text() == "mine"


def test_where_no_pipe_can_be_made_the_task_goes_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made = ProgressPipe(str(tmp_path / "none" / "pipe"))
    assert (made.readable(0.0), made.hear(0.0), made.due(0.0), made.pairs()) == ([], False, [], [])
    made.close(0.0)
    monkeypatch.setenv("GPUYARD_PROGRESS", made.path)
    assert not progress(1)


def test_a_yard_that_is_away_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    os.mkfifo(tmp_path / "pipe")  # nobody reads
    monkeypatch.setenv("GPUYARD_PROGRESS", str(tmp_path / "pipe"))
    assert not progress(1)


# --- how it is said ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (Progress(0, 0, 3600, 12_000, 12_000, 3360), "12,000 steps, 3.33 steps/s, last checkpoint 4m before its end"),
        (Progress(0, 0, 3600, 12, 48), "12 of 48 steps, 5m a step"),
        (Progress(0, 0, 10, 2.5, 0), "2.50 steps, 4 s a step"),
        (Progress(5, 1, 5, 1), "1 step"),
        (Progress(0, 0, 1, 5_000), "5,000 steps, 5,000 steps/s"),
    ],
)
def test_an_end_says_how_far_how_fast_and_what_was_saved(told: Progress, words: str):
    assert told.ending(3600) == words


def test_who_would_need_ten_years_has_not_told_when_it_ends():
    assert Progress(0, 0, 10, 10, 20).ends() == 20
    assert Progress(0, 0, 10, 10, 1e15).ends() is None
    assert Progress(0, 0, 10, 10, 10 + LONGEST_S + 1).ends() is None
    assert Progress(0, 0, 10, 10).ends() is None


# --- in a yard -----------------------------------------------------------------------------------


def tell(*lines: dict[str, Any]) -> str:
    """Shell that tells, without a library."""
    return "; ".join(f"echo '{json.dumps(line)}' > $GPUYARD_PROGRESS" for line in lines)


def until(ask: Callable[[], Any], seconds: float = 60.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := ask()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)
    return found


def told_of(yard: TestYard, name: str) -> Any:
    return yard.job(ADMIN, name).get("progress")


def remembered(yard: TestYard) -> Progresses:
    return Memory.from_document(yard.snapshot(ADMIN).get("memory", {})).of(Progresses)


def test_a_job_that_tells_is_shown_learned_from_and_ends_with_how_far_it_came(yard: TestYard, tmp_path: Path):
    first, last = {"done": 10, "total": 40}, {"done": 40, "total": 40, "saved": True}
    yard.put(sh(f"{tell(first)}; {gated(tmp_path / 'go', tell(last))}", name="a", gpus=1))
    shown = until(lambda: told_of(yard, "a"))
    assert (shown["done"], shown["total"], "saved" in shown) == (10.0, 40.0, False)
    assert yard.why(ADMIN, "a")["progress"]["done"] == 10.0
    yard.put(sh("true", name="b", gpus=1))  # a turn, in which the brain hears of it
    yard.until("b")
    assert list(until(lambda: remembered(yard).warm_ups)) == ["default/training/1x1"]
    (tmp_path / "go").touch()
    ended = yard.until("a")
    assert ended["message"].startswith("40 steps, ")
    assert ended["message"].endswith("last checkpoint 0s before its end")
    assert ended["history"][0]["progress"]["done"] == 40.0
    assert list(yard.settings.folder.glob("progress/*")) == []


def test_the_lowest_rank_that_tells_speaks_for_the_job(yard: TestYard, tmp_path: Path):
    own = "echo '{\"done\": '$((RANK * 10 + 5))'}' > $GPUYARD_PROGRESS"
    script = f"if [ $RANK != 0 ]; then {own}; else {gated(tmp_path / 'go', own)}; fi; {gated(tmp_path / 'end')}"
    yard.put(sh(script, name="a", tasks=3, gpus=1))
    assert until(lambda: (told_of(yard, "a") or {}).get("done") == 15.0)
    (tmp_path / "go").touch()
    assert until(lambda: (told_of(yard, "a") or {}).get("done") == 5.0)
    (tmp_path / "end").touch()
    assert yard.until("a")["message"].startswith("5 steps")


def test_what_was_told_is_known_after_a_restart_also_what_was_told_meanwhile(tmp_path: Path):
    state = tmp_path / "state"
    script = "; ".join([tell({"done": 1, "total": 9}), gated(tmp_path / "go", tell({"done": 4, "saved": True})),
                        gated(tmp_path / "end", tell({"done": 9}))])  # fmt: skip
    yard = TestYard(state)
    yard.start()
    yard.put(sh(script, name="a", gpus=1))
    until(lambda: told_of(yard, "a"))
    yard.close()
    (tmp_path / "go").touch()
    until(lambda: b"saved" in (state / "runs/1/1/0/progress").read_bytes())
    yard = TestYard(state)
    yard.start()
    assert until(lambda: "saved" in (told_of(yard, "a") or {}))
    yard.put(sh("true", name="b", gpus=1))
    yard.until("b")
    assert until(lambda: remembered(yard).saved.get("a"))
    yard.close()
    (tmp_path / "end").touch()
    until((state / "runs/1/1/0/exit").exists)
    yard = TestYard(state)
    yard.start()
    assert yard.until("a")["message"].startswith("9 steps, ")
    yard.stop()


def test_who_is_stopped_for_another_loses_what_it_has_not_saved(yard: TestYard, tmp_path: Path):
    yard.put(sh(f"sleep 1; {tell({'done': 3, 'saved': True})}; sleep 600", name="low", tasks=2, gpus=8, priority=10))
    until(lambda: "saved" in (told_of(yard, "low") or {}))
    yard.put(sh(gated(tmp_path / "go"), name="high", gpus=8, priority=90))
    yard.until("high", "running")
    told = until(lambda: yard.job(ADMIN, "low")["history"][0].get("message"))
    assert told == "stopped for high, 0s of work lost"
    waits = until(lambda: (job := yard.job(ADMIN, "low"))["phase"] == "waiting" and job["message"])
    assert "3 steps, last checkpoint" in waits
    (row,) = yard.report(ADMIN, "queue", 0.0)
    assert 0.0 < row["lost_gpu_seconds"] < row["gpu_seconds"]
    (tmp_path / "go").touch()


def test_a_task_killed_with_its_supervisor_leaves_no_pipe(yard: TestYard):
    yard.put(sh(f"{tell({'done': 3})}; sleep 600", name="a", gpus=1))
    until(lambda: told_of(yard, "a"))
    assert [path.name for path in yard.settings.folder.glob("progress/*")] == ["1-1-0"]
    folder = yard.settings.folder / "runs/1/1/0"
    for pid in {adopt.read(folder / note).get("pid") for note in ("second", "claim")} - {None}:
        os.kill(int(pid or 0), signal.SIGKILL)
    until(lambda: yard.job(ADMIN, "a")["attempts"] == 2)
    until(lambda: "1-1-0" not in {path.name for path in yard.settings.folder.glob("progress/*")})


def test_a_job_cannot_choose_where_it_tells(yard: TestYard, tmp_path: Path):
    yard.put(sh("echo $GPUYARD_PROGRESS", name="a", run={"env": {"GPUYARD_PROGRESS": str(tmp_path / "x")}}))
    yard.until("a")
    assert yard.output("a") == f"{yard.settings.folder.resolve()}/progress/1-1-0\n"


def test_in_a_shared_yard_its_submitter_tells_and_nobody_else(tmp_path: Path):
    if os.geteuid() != 0:
        pytest.xfail("only root can run tasks as somebody else")
    for folder in (tmp_path, *list(tmp_path.parents)[:3]):
        folder.chmod(0o755)
    yard = TestYard(tmp_path / "state", shared=True)
    yard.start()
    nobody = Caller("nobody", pwd.getpwnam("nobody").pw_uid)
    yard.put(sh(f"{tell({'done': 3})}; sleep 600", name="a", gpus=1), caller=nobody)
    assert until(lambda: told_of(yard, "nobody/a"))["done"] == 3.0
    pipe = tmp_path / "state" / "progress" / "1-1-0"
    daemon = pwd.getpwnam("daemon").pw_uid
    tries = [(daemon, f"echo x > {pipe}"), (daemon, f"cat {pipe}"), (nobody.uid, f"ls {pipe.parent}")]
    for uid, script in (*tries, (nobody.uid, f"rm {pipe}"), (nobody.uid, f"mv {pipe} {pipe}2")):
        done = subprocess.run(["sh", "-c", script], user=uid, capture_output=True, text=True, check=False, timeout=60)
        assert "ermission denied" in done.stderr, script
    yard.stop()


def test_a_container_gets_the_pipe_at_the_same_path():
    from gpuyard.model.job import Run
    from gpuyard.worlds.local.launching import containers

    box = containers.Box("/usr/bin/podman", "n", (), -1, "/state/progress/1-1-0")
    words = containers.command(Run(("true",), image="i"), box, {orders.PIPE: box.pipe})
    assert {"--volume=/state/progress/1-1-0:/state/progress/1-1-0", "--env=GPUYARD_PROGRESS"} <= {*words}
    assert not containers.can_mount("/a:b/progress")
