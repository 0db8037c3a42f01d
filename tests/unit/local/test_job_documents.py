"""What a running yard tells of jobs: whole or in part, each under its own name, and as an answer from a file reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuyard import files
from gpuyard.cli.console.terminal import Screen
from gpuyard.cli.deciding import why
from gpuyard.cli.rendering import why_text
from gpuyard.worlds.local.launching import output_reading
from tests.support.yards import ADMIN, ME, TestYard, sh


def test_a_listing_has_the_keys_that_are_asked_for_and_no_others(yard: TestYard):
    yard.put(sh("sleep 60", name="a", gpus=8, tasks=2))
    yard.until("a", "running")
    yard.put(sh("true", name="b", gpus=8))
    yard.until("b", "waiting")
    assert yard.jobs(ME, fields=("name", "phase", "held_gpus")) == [
        {"name": "a", "phase": "running", "held_gpus": 16},
        {"name": "b", "phase": "waiting", "held_gpus": 0},
    ]


def test_a_reason_can_be_had_without_its_words(yard: TestYard):
    yard.put(sh("sleep 60", name="a", gpus=8, tasks=2))
    yard.until("a", "running")
    yard.put(sh("true", name="b", gpus=8))
    _told_why(yard, "b")
    whole, short = (yard.jobs(ME, fields=("reason",)), yard.jobs(ME, fields=("reason.code",)))
    assert short[1] == {"reason": {"code": "NotEnoughGpus"}}
    assert whole[1]["reason"]["needed"] == 8


def test_jobs_that_are_alike_are_not_told_about_each_other(tmp_path: Path):
    yard = TestYard(tmp_path, "nodes: [{name: n0, gpus: 8}]\nqueues: [{name: few, limit: 2}]")
    yard.start()
    yard.put(sh("sleep 60", name="a", queue="few", gpus=2))
    yard.until("a", "running")
    yard.put(sh("true", name="mine", queue="few", gpus=2), sh("true", name="yours", queue="few", gpus=2))
    _told_why(yard, "yours")
    reasons = {job["name"]: job["reason"]["message"] for job in yard.jobs(ME) if "reason" in job}
    assert reasons["mine"] == reasons["yours"] == "needs 2 GPUs; queue few has 0 left of its limit of 2"
    yard.stop()


def test_why_of_a_running_yard_and_of_its_snapshot_read_alike(
    yard: TestYard, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
):
    yard.put(sh("sleep 60", name="a", gpus=8, tasks=2))
    yard.until("a", "running")
    yard.put(sh("true", name="b", gpus=4))
    _told_why(yard, "b")
    still = yard.world.desk.now()
    monkeypatch.setattr(yard.world.desk, "now", lambda: still)  # both looks are at one moment
    for name in ("a", "b"):
        answer = yard.why(ME, name)
        path = tmp_path / "moment.json"
        path.write_text(json.dumps(yard.snapshot(ADMIN)))
        moment = files.read_snapshot(path, 0.0)
        why_text.draw(Screen(), answer, moment.now)
        live = capsys.readouterr().out
        why.write(moment, next(job for job in moment.jobs if job.name == name), "table")
        assert live == capsys.readouterr().out
        assert ("a  would have to stop  16 GPUs, default, priority 50" in live) == (name == "b")


def test_a_report_tells_held_time_and_what_of_it_has_to_be_done_again(yard: TestYard):
    long = "trap 'exit 0' USR1; echo up; sleep 60 & wait"
    yard.put(sh(long, name="saves", gpus=8, checkpoint={"grace": "20s"}), sh(long, name="loses", gpus=8))
    places = {name: yard.until(name, "running")["placements"][0]["node"] for name in ("saves", "loses")}
    yard.until_said("saves", "up")
    assert yard.report(ADMIN, "user", 0.0)[0]["lost_gpu_seconds"] == 0
    yard.drain(ADMIN, {"node": places["saves"], "gpu": None})
    yard.until("saves", "waiting")
    assert yard.report(ADMIN, "user", 0.0)[0]["lost_gpu_seconds"] == 0
    yard.drain(ADMIN, {"node": places["loses"], "gpu": None})
    yard.until("loses", "waiting")
    (line,) = yard.report(ADMIN, "user", 0.0)
    assert 0 < line["lost_gpu_seconds"] < line["gpu_seconds"]
    assert "money" not in line  # its pool has no price


def _told_why(yard: TestYard, name: str) -> None:
    """Wait until a plan has said why."""
    while "reason" not in yard.job(ME, name):
        yard.wait_events(yard.store.last_event, 0.05)


def test_a_segment_that_is_rotated_away_between_listing_and_opening_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for start in (0, 10, 20):
        (tmp_path / f"{start:020d}").write_bytes(b"0123456789")
    listed = Path.iterdir

    def rotate_after(folder: Path) -> list[Path]:
        found = list(listed(folder))
        (tmp_path / f"{0:020d}").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(Path, "iterdir", rotate_after)
    assert output_reading.read_output(tmp_path, 3) == (b"01234567890123456789", 30)


def test_output_that_is_always_gone_already_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Path, "iterdir", lambda _: [tmp_path / f"{0:020d}"])
    assert output_reading.read_output(tmp_path, 3) == (b"", 3)


def test_values_of_variables_are_nowhere_to_be_read_but_in_the_task_itself(yard: TestYard):
    for name, gpus in (("a", 16), ("b", 8)):
        job = sh("[ ${#TOKEN} = 6 ] && sleep 60", name=name, gpus=gpus // 2, tasks=2)
        yard.put(job | {"run": job["run"] | {"env": {"TOKEN": "s3cret"}}})
    yard.until("a", "running")
    told = json.dumps(
        [yard.jobs(ME), yard.job(ME, "a"), yard.snapshot(ADMIN), yard.why(ME, "b"), yard.events(ME, 0, 99)]
    )
    assert "TOKEN" in told
    assert "s3cret" not in told
