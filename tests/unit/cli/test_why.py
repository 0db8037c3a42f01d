"""`yard why`: a sentence, the ladder, what would help, who is in the way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Yard

pytestmark = pytest.mark.usefixtures("oracle")


def test_a_waiting_job_gets_a_sentence_a_ladder_and_what_would_help(yard: Yard, snapshot_file: str):
    answer = yard("why", "wide", "--snapshot", snapshot_file)
    assert answer.code == 0
    assert answer.lines[0].startswith("wide (1×8) waits (Fragmented): needs 8 GPUs in one node")
    assert "  capacity  ✗  fragmentation  3 nodes  at most 4 of 8 GPUs together" in answer.lines
    assert "            ·  health          1 node  1 sick GPU" in answer.lines
    assert "  quota     ✓  quota" in answer.lines
    assert "  •  it asked for 4 GPUs a task (3 places open up)" in answer.lines
    assert "  •  old  would have to stop  1 GPU, research, priority 50, 1m to do again" in answer.lines


def test_a_job_that_can_never_run_is_told_so(yard: Yard, snapshot_file: str):
    answer = yard("why", "huge", "--snapshot", snapshot_file)
    assert answer.lines[0] == "huge (1×16) can never run here (ShapeImpossible): no node has 16 GPUs."


def test_a_running_job_says_so_and_where(yard: Yard, snapshot_file: str):
    answer = yard("why", "old", "--snapshot", snapshot_file)
    assert answer.lines == ["old is running on n0[0,1], since 2h; nothing stands in its way."]


def test_a_job_that_the_next_plan_starts_says_where(yard: Yard, snapshot_file: str):
    answer = yard("why", "llm", "--snapshot", snapshot_file)
    assert answer.lines == ["llm is next: it starts in the coming plan, on n0..n1[0-7]."]


def test_json_has_phase_reason_and_ladder(yard: Yard, snapshot_file: str):
    document = yard("why", "wide", "--snapshot", snapshot_file, "-o", "json").json
    assert (document["job"], document["phase"], document["reason"]["code"]) == ("wide", "waiting", "Fragmented")
    assert document["reason"]["suggestions"][0]["kind"] == "size"
    assert len(document["ladder"]) == 3


def test_json_of_a_running_job_has_its_places(yard: Yard, snapshot_file: str):
    document = yard("why", "old", "--snapshot", snapshot_file, "-o", "json").json
    assert (document["phase"], document["starts"]) == ("running", False)
    assert document["placements"][0]["node"] == "n0"


def test_an_unknown_job_is_not_found_and_gets_the_nearest_name(yard: Yard, snapshot_file: str):
    answer = yard("why", "lllm", "--snapshot", snapshot_file)
    assert answer.code == 3
    assert answer.err == "error: There is no job 'lllm' in the snapshot. Did you mean 'llm'?\n"


def test_without_a_snapshot_the_running_yard_is_asked_and_if_there_is_none_that_is_said(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GPUYARD_STATE", str(tmp_path))
    answer = yard("why", "llm")
    assert answer.code == 1
    assert answer.err.startswith("error: No yard is running here")
    assert "`yard up`" in answer.err


def test_job_names_complete_from_the_snapshot_on_the_line(tmp_path: Path):
    path = tmp_path / "s.yaml"
    path.write_text("apiVersion: gpuyard.dev/v1\nkind: Snapshot\njobs: [{name: train}, {name: serve}]\n")
    words = f"yard why --snapshot {path} t"
    env = {**os.environ, "_YARD_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "4"}
    code = "import sys; sys.argv = ['yard']; from gpuyard.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["plain,train"]
