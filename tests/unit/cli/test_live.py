"""The commands that ask a running yard, here one made by hand."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from gpuyard.cli.jobs import following
from gpuyard.cli.rendering.listings import redrawing
from tests.support.hosted import Hosted, hosted
from tests.unit.cli.conftest import Yard


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosted]:
    state = tmp_path / "state"
    monkeypatch.setenv("GPUYARD_STATE", str(state))
    monkeypatch.setenv("COLUMNS", "120")
    with hosted(state) as live:
        yield live


def submit(live: Hosted, *jobs: dict) -> None:
    with live.client() as client:
        client.submit(list(jobs))


# --- run -----------------------------------------------------------------------------------------


def test_run_shows_the_plan_the_output_and_ends_with_the_job_s_exit_code(live: Hosted, yard: Yard):
    threading.Timer(0.3, lambda: live.yard.finish("t", 3, b"hello\n")).start()
    answer = yard("run", "--name", "t", "--gpus", "H100:2", "--", "sh", "-c", "x")
    assert (answer.code, answer.out) == (3, "hello\n")
    assert "t starts now on n0; $5.00 an hour." in answer.err
    assert "t failed with exit code 3." in answer.err
    assert live.yard.known["t"]["models"] == ["H100"]
    assert live.yard.known["t"]["run"]["command"] == ["sh", "-c", "x"]


def test_run_detached_prints_the_name_alone(live: Hosted, yard: Yard):
    answer = yard(
        "run", "--name", "t", "--tasks", "2", "--time-limit", "2h", "--after", "a:any", "--detach", "--", "true"
    )
    assert (answer.code, answer.out) == (0, "t\n")
    assert live.yard.known["t"]["after"] == ["a:any"]
    assert live.yard.known["t"]["time_limit"] == "2h"


def test_lines_of_several_tasks_carry_their_number(live: Hosted, yard: Yard):
    threading.Timer(0.2, lambda: live.yard.finish("t", 0, b"a\nb\n")).start()
    answer = yard("run", "--name", "t", "--tasks", "2", "--", "true")
    assert sorted(answer.lines) == ["0: a", "0: b", "1: a", "1: b"]


def test_a_priority_is_a_number_or_a_name(live: Hosted, yard: Yard):
    for name, asked in (("a", "high"), ("b", "-5"), ("c", "0")):
        assert yard("run", "--detach", "--name", name, "--priority", asked, "--", "true").code == 0
    assert [live.yard.known[name]["priority"] for name in "abc"] == ["high", -5, 0]


def test_an_odd_size_gets_one_line_of_guidance_and_is_accepted(live: Hosted, yard: Yard):
    answer = yard("run", "--detach", "--name", "odd", "--gpus", "5", "--", "true")
    assert (answer.code, answer.out) == (0, "odd\n")
    assert answer.err.splitlines()[1:] == ["Size: 5 GPUs leave 3 GPUs of a node of 8."]


def test_what_can_never_run_is_refused_with_four(live: Hosted, yard: Yard):
    answer = yard("run", "--name", "t", "--gpus", "99", "--", "true")
    assert answer.code == 4
    assert "--queue-anyway" in answer.err
    assert yard("run", "--name", "t", "--gpus", "99", "--queue-anyway", "--detach", "--", "true").code == 0


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--gpus", "two"), "--gpus takes 2, H100:2"),
        (("--gpus", "1.5"), "a part of one GPU"),
        (("--env", "NOBODY_SET_THIS"), "no such variable"),
        (("-it", "--tasks", "2"), "one task"),
        (("--array", "0-9"), "--detach"),
        (("--array", "9-0", "--detach"), "runs backwards"),
        (("--time-limit", "soon"), "time_limit"),
        (("--class", "posh"), "class"),
        (("--memory", "lots"), "memory"),
    ],
)
def test_a_slip_in_run_is_told_in_one_sentence(live: Hosted, yard: Yard, args: tuple[str, ...], words: str):
    answer = yard("run", "--name", "t", *args, "--", "true")
    assert answer.code == 2
    assert words in answer.err
    assert live.yard.known == {}


# --- submit --------------------------------------------------------------------------------------


def test_submit_reads_job_files_and_prints_names(live: Hosted, yard: Yard, tmp_path: Path):
    path = tmp_path / "job.yaml"
    path.write_text("name: a\ngpus: 1\nrun: {command: [python, train.py]}\n")
    answer = yard("submit", str(path), "--key", "k")
    assert (answer.code, answer.out) == (0, "a\n")
    assert yard("submit", str(path), "--key", "k").code == 0
    assert len(live.yard.known) == 1


@pytest.mark.parametrize(("gpus", "code"), [(1, 0), (12, 5), (99, 4)])
def test_a_dry_run_says_by_its_exit_code_what_would_happen(
    live: Hosted, yard: Yard, tmp_path: Path, gpus: int, code: int
):
    path = tmp_path / "job.yaml"
    path.write_text(f"name: a\ngpus: {gpus}\n")
    assert yard("submit", str(path), "--dry-run").code == code
    assert live.yard.known == {}


def test_a_mistake_in_a_job_file_is_told_with_its_line(live: Hosted, yard: Yard, tmp_path: Path):
    path = tmp_path / "job.yaml"
    path.write_text("name: a\ngpu: 1\n")
    answer = yard("submit", str(path))
    assert answer.code == 2
    assert "job.yaml:2" in answer.err
    assert "did you mean gpus" in answer.err


def test_a_slurm_script_is_a_job(live: Hosted, yard: Yard, tmp_path: Path):
    path = tmp_path / "train.sbatch"
    path.write_text(
        "#!/bin/bash\n#SBATCH -J net --gres=gpu:h100:4 -t 1-00:00:00\n#SBATCH --mail-type=END\npython train.py\n"
    )
    answer = yard("submit", str(path))
    assert (answer.code, answer.out) == (0, "net\n")
    assert "--mail-type has no counterpart" in answer.err
    job = live.yard.known["net"]
    assert (job["gpus"], job["models"], job["time_limit"]) == (4, ["H100"], "86400s")


# --- following -----------------------------------------------------------------------------------


def test_logs_follow_until_the_end(live: Hosted, yard: Yard):
    submit(live, {"name": "a"})
    live.yard.output["a"] = b"one\n"
    threading.Timer(0.2, lambda: live.yard.finish("a", 0, b"two\n")).start()
    assert yard("logs", "a", "-f").out == "one\ntwo\n"
    assert yard("logs", "a", "--tail", "1").out == "two\n"


def test_wait_ends_when_the_job_is_there_or_cannot_be_any_more(live: Hosted, yard: Yard):
    submit(live, {"name": "a"}, {"name": "w", "gpus": 12})
    assert yard("wait", "a", "--for", "running").code == 0
    answer = yard("wait", "w", "--for", "running", "--timeout", "100ms")
    assert answer.code == 5
    assert "w is still waiting" in answer.err
    threading.Timer(0.2, lambda: live.yard.finish("a", 1)).start()
    assert yard("wait", "a").code == 0
    assert yard("wait", "a", "--for", "succeeded").code == 1


@pytest.mark.parametrize(
    ("job", "code"),
    [
        ({"phase": "succeeded"}, 0),
        ({"phase": "failed", "exit_code": 7}, 7),
        ({"phase": "failed", "exit_code": -9}, 137),
        ({"phase": "failed", "exit_code": 0}, 1),
        ({"phase": "cancelled"}, 1),
    ],
)
def test_how_a_job_ended_as_an_exit_code(job: dict, code: int):
    assert following.exit_code_of(job) == code


# --- looking -------------------------------------------------------------------------------------


def test_listings_of_a_running_yard(live: Hosted, yard: Yard):
    submit(live, {"name": "a", "gpus": 2}, {"name": "w", "gpus": 12})
    lines = yard("jobs").lines
    assert lines[0].split() == ["NAME", "QUEUE", "PHASE", "SHAPE", "GPUS", "AGE", "RUN", "REASON"]
    assert lines[1].split()[:5] == ["a", "default", "running", "1×2", "2"]
    assert lines[2].split()[-1] == "NoRoom"
    assert yard("jobs", "-o", "name").out == "a\nw\n"
    assert [job["name"] for job in yard("jobs", "-o", "json", "--sort-by", "-name").json] == ["w", "a"]
    assert yaml.safe_load(yard("nodes", "-o", "yaml").out)[0]["name"] == "n0"
    assert "■□□□□□□✗" in yard("nodes").out
    assert yard("queues").lines[1].split()[0] == "default"
    assert "2 of" not in yard("jobs", "-o", "wide").err


def test_a_long_listing_is_written_plainly(live: Hosted, yard: Yard):
    submit(live, *({"name": f"j{n}"} for n in range(400)))
    lines = yard("jobs").lines
    assert len(lines) == 401
    assert lines[400].startswith("j399")


def test_status_top_health_report_free(live: Hosted, yard: Yard):
    submit(live, {"name": "a", "gpus": 2})
    assert yard("status", "-o", "json").json["pid"] == 4711
    assert "16 virtual on 2 nodes" in yard("status").out
    assert "events" not in yard("status").out
    live.yard.left_out = "an event speaks of job b, which nobody submitted; that was left out"
    assert "events  an event speaks of job b" in yard("status").out
    assert "GPUS" in yard("top").out
    assert yard("health").lines[1].split()[:3] == ["n0:7", "H100-SXM5-80GB", "sick"]
    assert "2.0" in yard("report").out
    assert yard("report", "-o", "csv").lines[0] == "name,gpu_seconds,money"
    assert yard("free").code == 0
    assert yard("snapshot").out.startswith("apiVersion")
    assert yard("page").out.startswith("http://127.0.0.1")
    assert yard("backup", "x.db").code == 0


def test_top_tells_how_busy_each_gpu_and_each_jobs_gpus_are(live: Hosted, yard: Yard):
    submit(live, {"name": "a", "gpus": 2})
    live.yard.sensed = {
        0: {"measured": "seen", "utilization": 0.8, "memory_used": 30 << 30, "memory": 80 << 30, "temperature": 61,
            "power": 512.4},
        3: {"measured": "unknown", "health": "suspect", "evidence": "NVML does not answer"},
    }  # fmt: skip
    lines = [line.split() for line in yard("top", "--by", "gpu").lines[1:]]
    assert lines[0] == ["GPU", "UTIL", "MEMORY", "TEMP", "POWER", "HEALTH", "JOBS"]
    assert lines[1] == ["n0:0", "80", "%", "30.0/80", "GiB", "61", "°C", "512", "W", "healthy", "a"]
    assert ["n0:3", "-", "-", "-", "-", "unknown", "-"] in lines
    assert "NVML does not answer" in yard("top", "--by", "gpu", "-o", "wide").out
    assert "80 %" in yard("top", "--by", "job").out
    live.yard.sensed = {}
    assert "80 %" not in yard("top", "--by", "job").out


def test_alerts_are_a_table_with_what_to_type_next_or_the_words_that_there_are_none(live: Hosted, yard: Yard):
    assert "Nothing calls for attention." in yard("alerts").err
    live.yard.alert_documents = [
        {"key": "wait/a/training/Fragmented", "kind": "wait", "severity": "warning", "since": "2026-01-01T00:00:00Z",
         "sentence": "w has waited", "command": "yard why w", "count": 3},
    ]  # fmt: skip
    lines = yard("alerts").lines
    assert lines[0].split() == ["SEVERITY", "KIND", "FOR", "WHAT", "NEXT"]
    assert lines[1].split()[:2] == ["warning", "wait"]
    assert lines[1].endswith("yard why w")
    assert yard("alerts", "-o", "name").out == "wait/a/training/Fragmented\n"
    assert yard("alerts", "-o", "json").json[0]["count"] == 3


def test_why_of_a_running_yard_is_told_as_of_a_file(live: Hosted, yard: Yard):
    submit(live, {"name": "a"}, {"name": "w", "gpus": 12})
    assert yard("why", "a").out == "a is running on n0[0]; nothing stands in its way.\n"
    told = yard("why", "w").out
    assert told.startswith("w waits (NoRoom): waits: 12 GPUs are not free.")
    assert "Ask for 8 GPUs" in told
    assert yard("why", "ghost").code == 3


def test_harm_is_said_before_it_is_done(live: Hosted, yard: Yard, monkeypatch: pytest.MonkeyPatch):
    hits = [{"job": f"t{n}", "message": f"t{n} would be stopped (8 GPUs, 3m of work lost)"} for n in range(7)]
    told = {"name": "peek", "verdict": "starts", "message": "starts on n0 once room is made", "disturbs": hits}
    monkeypatch.setattr(live.yard, "preview", lambda *_: [told])
    answer = yard("run", "--name", "peek", "--priority", "90", "--detach", "--", "true")
    assert answer.err.startswith(
        "peek starts on n0 once room is made; t0 would be stopped (8 GPUs, 3m of work lost); t1 "
    )
    assert answer.err.endswith("; and 2 more would be stopped or moved.\n")


def test_a_victim_reads_when_for_whom_and_what_it_lost(live: Hosted, yard: Yard, monkeypatch: pytest.MonkeyPatch):
    disturbed = {"at": "2026-01-01T14:02:00Z", "message": "stopped for peek, 3m of work lost"}
    why = {"job": "train", "phase": "running", "placements": [{"node": "n0", "gpus": [0]}], "disturbed": disturbed}
    monkeypatch.setattr(live.yard, "why", lambda *_: why)
    told = yard("why", "train").lines[1]
    assert re.fullmatch(r"At \d\d:02 on 2026-01-0[12] it was stopped for peek, 3m of work lost\.", told)


def test_words_to_jobs(live: Hosted, yard: Yard):
    submit(live, {"name": "a"}, {"name": "b"})
    assert yard("hold", "a").out == "a is held\n"
    assert yard("hold", "--requeue", "a").out == "a is held\n"
    assert yard("release", "a").out == "a is released\n"
    answer = yard("cancel", "ghost", "a", "b")
    assert (answer.code, answer.out) == (3, "a is cancelled\nb is cancelled\n")


def test_a_queue_is_set_after_its_preview(live: Hosted, yard: Yard):
    answer = yard("queues", "set", "q", "--quota", "H100=64", "--limit", "96", "--yes")
    assert (answer.code, answer.out) == (0, "q is set\n")
    assert "nobody loses a GPU" in answer.err
    assert live.yard.queue_documents["q"]["quota"] == {"H100": 64}
    assert yard("queues", "delete", "q").code == 2
    assert yard("queues", "delete", "q", "--dry-run").code == 0
    assert yard("queues", "delete", "q", "--yes").out == "q is deleted\n"
    assert yard("queues", "delete", "q", "--yes").code == 3
    assert yard("queues", "set", "q").code == 2
    assert yard("queues", "set", "q", "--quota", "many").code == 2


def test_a_watched_listing_is_drawn_again_only_when_something_changed(live: Hosted, capsys: pytest.CaptureFixture[str]):
    drawn = iter(["one\n", "one\n", "two\n"])

    class Enough(Exception):
        pass

    def draw() -> None:
        text = next(drawn, None)
        if text is None:
            raise Enough
        print(text, end="")
        live.yard.tell("something", "a")

    with live.client() as client, pytest.raises(Enough):
        redrawing.repeat(client, draw)
    assert capsys.readouterr().out == "one\ntwo\n"


def test_without_a_yard_every_command_says_how_to_start_one(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GPUYARD_STATE", str(tmp_path))
    for args in (("jobs",), ("status",), ("down",), ("run", "--", "true"), ("cancel", "a"), ("top",), ("free",)):
        answer = yard(*args)
        assert answer.code == 1, args
        assert "`yard up`" in answer.err


def test_a_drain_shows_whom_it_hits_first(live: Hosted, yard: Yard):
    answer = yard("drain", "n0:3", "--reason", "fan", "--dry-run")
    assert answer.err == "n0:3: 1 moves, 1 stays.\n"
    assert [line.split() for line in answer.lines] == [
        ["JOB", "WHAT", "COST", "OR", "REASON"],
        ["a", "moves", "to", "n1", "1", "GPU,", "1", "GPU-minutes", "of", "work", "to", "do", "again"],
        ["b", "stays", "is", "not", "preemptible"],
    ]
    assert yard("drain", "n0", "--yes").lines[-1] == "n0 is being drained; `yard undrain n0` opens it again"
    assert yard("drain", "n0", "-o", "json", "--yes").json["applied"] is True
    assert yard("undrain", "n0").out == "n0 is open again\n"


def test_a_gpu_is_a_number(live: Hosted, yard: Yard):
    answer = yard("drain", "n0:x")
    assert (answer.code, answer.err.startswith("error: 'n0:x' is no NODE or NODE:GPU")) == (2, True)


@pytest.mark.parametrize("command", ["nodes", "queues", "jobs", "top", "health", "report"])
def test_every_listing_takes_the_same_options(command: str, live: Hosted, yard: Yard):
    submit(live, {"name": "a", "gpus": 1})
    told = yard(command, "--help").out
    for option in ("-w, --watch", "-o, --output", "--no-headers", "--sort-by"):
        assert option in told
    assert isinstance(yard(command, "-o", "json").json, list)
    assert yard(command, "--no-headers", "--sort-by", "-name").code == 0


def test_a_snapshot_cannot_be_watched(yard: Yard, tmp_path: Path):
    answer = yard("nodes", "-w", "--snapshot", str(tmp_path / "x.yaml"))
    assert (answer.code, answer.err.startswith("error: -w watches a running yard")) == (2, True)


def test_one_file_may_hold_several_jobs(live: Hosted, yard: Yard, tmp_path: Path):
    path = tmp_path / "jobs.yaml"
    path.write_text("# two of them\n---\nname: a\ngpus: 1\n--- # and\nname: b\ngpus: 1\n---\n")
    assert yard("submit", str(path)).out == "a\nb\n"
    path.write_text("name: c\n---\nname: d\n\ngpu: 1\n")
    answer = yard("submit", str(path))
    assert (answer.code, "jobs.yaml:5" in answer.err) == (2, True)
    assert "c" not in live.yard.known
