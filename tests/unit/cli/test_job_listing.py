"""`yard jobs`, `yard show`, words to many jobs at once, completion, and `q`."""

from __future__ import annotations

import os
import pty
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gpuyard.cli.console import completing, terminal
from gpuyard.cli.console.terminal import Column, Screen
from tests.support.hosted import Hosted, hosted
from tests.unit.cli.conftest import Yard


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosted]:
    state = tmp_path / "state"
    monkeypatch.setenv("GPUYARD_STATE", str(state))
    monkeypatch.setenv("COLUMNS", "160")
    with hosted(state) as live:
        with live.client() as client:
            client.submit([{"name": "train", "gpus": 2}, {"name": "big", "gpus": 12, "queue": "default"}])
            client.submit([{"name": f"sweep-{n}", "gpus": 12} for n in range(4)])
        for n in range(4):
            live.yard.known[f"sweep-{n}"] |= {"array": "sweep", "index": n, "submitted": "2026-01-01T01:00:00Z"}
        live.yard.known["done"] = {"name": "done", "phase": "failed", "exit_code": -15, "queue": "q", "tasks": 1}
        yield live


def names(yard: Yard, *args: str) -> list[str]:
    return yard("jobs", "-o", "name", *args).lines


# --- which jobs ----------------------------------------------------------------------------------


def test_jobs_lists_what_is_active_and_asks_for_the_rest(live: Hosted, yard: Yard):
    assert "done" not in names(yard)
    assert names(yard, "--ended") == ["done"]
    assert names(yard, "--all")[-1] == "done"


def test_what_runs_stands_first_then_whoever_waits_longest(live: Hosted, yard: Yard):
    assert names(yard) == ["train", "big", "sweep-0", "sweep-1", "sweep-2", "sweep-3"]


@pytest.mark.parametrize(
    ("args", "found"),
    [
        (("train",), ["train"]),
        (("sweep-?",), ["sweep-0", "sweep-1", "sweep-2", "sweep-3"]),
        (("sweep",), ["sweep-0", "sweep-1", "sweep-2", "sweep-3"]),
        (("--phase", "running"), ["train"]),
        (("--phase", "failed"), ["done"]),
        (("--queue", "q"), []),
        (("--ended", "--queue", "q"), ["done"]),
        (("--class", "inference"), []),
        (("--user", "nobody-of-that-name"), []),
    ],
)
def test_filters_and_patterns(live: Hosted, yard: Yard, args: tuple[str, ...], found: list[str]):
    assert names(yard, *args) == found


def test_an_array_is_one_row_and_each_shows_its_members(live: Hosted, yard: Yard):
    live.yard.known["sweep-0"] |= {"phase": "running", "held_gpus": 12}
    row = next(line for line in yard("jobs").lines if line.startswith("sweep"))
    assert row.split()[:1] == ["sweep[0-3]"]
    assert "3 waiting, 1 running" in row
    assert "12/48" in row
    assert sum(line.startswith("sweep") for line in yard("jobs", "--each").lines) == 4


def test_parts_of_a_gpu_are_shown_as_they_were_asked_for(live: Hosted, yard: Yard):
    live.yard.known["train"] |= {"gpus": 0, "fraction": 0.25, "asked_gpus": 0.25, "held_gpus": 0.25}
    assert yard("jobs", "train").lines[1].split()[3:5] == ["1×0.25", "0.25"]


def test_age_counts_from_the_submission_and_run_from_the_start(live: Hosted, yard: Yard):
    live.yard.known["done"] |= {
        "submitted": "2026-01-01T00:00:00Z", "started": "2026-01-01T02:00:00Z", "ended": "2026-01-01T02:00:30Z",
    }  # fmt: skip
    line = yard("jobs", "done", "--ended").lines[1].split()
    assert line[-2:] == ["30s", "SIGTERM"]
    assert "d" in line[-3]


# --- what fits the screen ------------------------------------------------------------------------


def test_on_a_terminal_the_list_ends_with_the_screen(live: Hosted, yard: Yard, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(terminal, "lines", lambda: 5)
    lines = yard("jobs", "--each").lines
    assert len(lines) == 4
    assert lines[-1].startswith("... and 4 more")


def test_in_a_pipe_nothing_is_left_out_or_cut(live: Hosted, yard: Yard, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "20")
    assert len(yard("jobs", "--each").lines) == 7


def test_long_names_are_cut_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("COLUMNS", "30")
    long = "a-name-that-is-much-too-long-for-this"
    Screen().table((Column("NAME", cuts=True), Column("PHASE")), [[long, "running"]])
    assert long in capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    Screen().table((Column("NAME", cuts=True), Column("PHASE")), [[long, "running"]])
    row = capsys.readouterr().out.splitlines()[1]
    assert "…" in row
    assert len(row) <= 30


# --- one job -------------------------------------------------------------------------------------


def test_show_tells_everything_of_one_job(live: Hosted, yard: Yard):
    live.yard.known["train"] |= {
        "run": {"command": ["python", "train it.py"], "workdir": "/data"}, "time_limit": "2h", "output": "/runs/1/log",
        "history": [{"number": 1, "state": "ended", "why": "stopped for peek", "tasks": [{"node": "n1", "gpus": [3]}]}],
        "events": [{"id": 1, "at": 1767225600.0, "kind": "evicted", "message": "stopped for peek"}],
    }  # fmt: skip
    told = yard("show", "train").out
    assert told.startswith("train is running\n")
    for words in ("1×2 (2 GPUs in all)", "time limit 2h", "python 'train it.py'", "/runs/1/log", "n1[3]"):
        assert words in told
    assert told.count("stopped for peek") == 2
    assert yard("show", "train", "-o", "json").json["name"] == "train"
    assert yard("show", "ghost").code == 3


def test_an_end_by_a_signal_is_told_by_its_name(live: Hosted, yard: Yard):
    assert yard("show", "done").out.startswith("done failed (SIGTERM)\n")


# --- words to many -------------------------------------------------------------------------------


def test_a_pattern_is_told_before_it_is_acted_on(live: Hosted, yard: Yard):
    answer = yard("cancel", "sweep*")
    assert answer.code == 2
    assert "would cancel 4 jobs (sweep-0, sweep-1, sweep-2, sweep-3), holding 0 GPUs. Add --yes" in answer.err
    assert live.yard.known["sweep-0"]["phase"] == "waiting"


def test_patterns_and_filters_choose_active_jobs(live: Hosted, yard: Yard):
    assert yard("cancel", "sweep*", "--phase", "waiting", "--yes").lines == [
        f"sweep-{n} is cancelled" for n in range(4)
    ]
    assert yard("hold", "--phase", "waiting", "--yes").out == "big is held\n"
    assert yard("cancel", "nothing-like-*", "--yes").code == 3


def test_a_word_to_nobody_asks_whom(live: Hosted, yard: Yard):
    assert "Which jobs?" in yard("cancel").err


def test_logs_of_an_array_carry_the_name_of_each_member(live: Hosted, yard: Yard):
    for n in range(4):
        live.yard.finish(f"sweep-{n}", 0, b"hello\n")
    assert yard("logs", "sweep").lines == [f"sweep-{n}: hello" for n in range(4)]


def test_a_task_that_a_job_does_not_have_is_said_so(live: Hosted, yard: Yard):
    answer = yard("logs", "train", "--task", "4")
    assert (answer.code, answer.err) == (3, "error: train has no task 4; it has 1, counted from 0\n")


# --- keys ----------------------------------------------------------------------------------------


def test_the_shell_completes_jobs_arrays_queues_and_nodes(live: Hosted):
    def complete(kind: str, begun: str) -> list[str]:
        command = click.Command("x", params=[click.Argument(["job"])])
        return completing.names(kind)(click.Context(command), command.params[0], begun)

    assert complete("jobs", "sw") == ["sweep", "sweep-0", "sweep-1", "sweep-2", "sweep-3"]
    assert complete("queues", "") == ["default"]
    assert complete("nodes", "n0") == ["n0"]


def test_without_a_yard_the_shell_completes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GPUYARD_STATE", str(tmp_path / "none"))
    command = click.Command("x", params=[click.Argument(["job"])])
    assert completing.names("jobs")(click.Context(command), command.params[0], "") == []


WATCHING = """
import threading
from gpuyard.cli.console import keys

def moments():
    yield
    threading.Event().wait()

for _ in keys.until_q(moments()):
    print("drawn", flush=True)
print("left", flush=True)
"""


def test_q_leaves_what_is_drawn_again_and_again():
    pid, master = pty.fork()
    if pid == 0:  # pragma: no cover - the other process
        os.execv(sys.executable, [sys.executable, "-c", WATCHING])
    seen = _until(master, b"drawn")
    os.write(master, b"xq")
    assert b"left" in _until(master, b"left", seen)
    os.waitpid(pid, 0)


def _until(master: int, wanted: bytes, seen: bytes = b"") -> bytes:
    """What the terminal shows by the time it shows this; the suite's own time limit ends a wait in vain."""
    while wanted not in seen:
        seen += os.read(master, 100)
    return seen
