"""`yard plan`: what the user gets for one file, for several, and for one that cannot be read."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import pytest
import yaml

from tests.unit.cli.conftest import Yard
from tests.unit.cli.hand_made import FRAGMENTED, OUTLOOK, Oracle

pytestmark = pytest.mark.usefixtures("oracle")


@pytest.fixture
def broken_file(tmp_path: Path) -> str:
    path = tmp_path / "broken.yaml"
    path.write_text("apiVersion: gpuyard.dev/v1\nkind: Snapshot\nnoods: []\n")
    return str(path)


def test_one_file_as_json_is_the_contract_s_object(yard: Yard, snapshot_file: str):
    answer = yard("plan", snapshot_file, "-o", "json")
    assert answer.code == 0
    assert set(answer.json) == {
        "actions",
        "waiting",
        "running",
        "queues",
        "fragmentation",
        "deadlocks",
        "timing",
    }
    assert answer.json["timing"].keys() == {"read_ms", "decide_ms", "cycles"}
    assert answer.err == ""


def test_cycles_run_to_the_end_unless_a_number_is_given(yard: Yard, snapshot_file: str, oracle: Oracle):
    yard("plan", snapshot_file)
    yard("plan", snapshot_file, "--cycles", "1")
    assert oracle.asked == [None, 1]


def test_no_cycle_is_no_plan(yard: Yard, snapshot_file: str):
    assert yard("plan", snapshot_file, "--cycles", "0").code == 2


@pytest.mark.parametrize("form", ["json", "ndjson"])
def test_several_files_are_one_object_a_line_each_with_its_file(yard: Yard, snapshot_file: str, form: str):
    answer = yard("plan", snapshot_file, snapshot_file, "-o", form)
    assert [json.loads(line)["file"] for line in answer.lines] == [snapshot_file] * 2


def test_a_file_that_cannot_be_read_is_an_error_on_its_own_line_and_the_others_run(
    yard: Yard, snapshot_file: str, broken_file: str
):
    answer = yard("plan", "missing.yaml", snapshot_file, broken_file, "-o", "ndjson")
    missing, good, broken = (json.loads(line) for line in answer.lines)
    assert answer.code == 2
    assert missing["file"] == "missing.yaml"
    assert "no such file" in missing["error"]
    assert good["file"] == snapshot_file
    assert "actions" in good
    assert "noods" in broken["error"]
    assert "nodes" in broken["error"]


@pytest.mark.parametrize("form", ["table", "json", "yaml"])
def test_a_single_file_that_cannot_be_read_is_words_on_stderr(yard: Yard, broken_file: str, form: str):
    answer = yard("plan", broken_file, "-o", form)
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.startswith(f"error: {broken_file}:3: ")


def test_a_dash_reads_stdin(yard: Yard, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", io.StringIO('{"apiVersion": "gpuyard.dev/v1", "kind": "Snapshot"}'))
    assert yard("plan", "-", "-o", "ndjson").json["file"] == "-"


def test_a_mistake_on_stdin_is_told_as_stdin_s(yard: Yard, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("kind: Snapshot"))
    answer = yard("plan", "-")
    assert answer.code == 2
    assert "stdin" in answer.err


def test_yaml_says_the_same_as_json(yard: Yard, snapshot_file: str):
    as_json = yard("plan", snapshot_file, "-o", "json").json
    as_yaml = yaml.safe_load(yard("plan", snapshot_file, "-o", "yaml").out)
    as_yaml.pop("timing")
    as_json.pop("timing")
    assert as_yaml == as_json


def test_the_table_shows_changes_waiting_queues_and_fragmentation(yard: Yard, snapshot_file: str):
    answer = yard("plan", snapshot_file)
    assert answer.lines[0].startswith("Plan: 1 start, 1 move, 1 evict, 2 wait, 2 run")
    assert "- evict  old   1×2   n0[0,1] freed      for llm; llm has a higher priority" in answer.lines
    assert "~ move   prep  1×2   n1[2,3] → n2[2,3]  for llm; makes room" in answer.lines
    assert "+ start  llm   2×8   n0..n1[0-7]        after old, prep" in answer.lines
    assert "✗ never  huge  1×16  no node has 16 GPUs." in answer.lines
    assert "research      8     16        12.5    16        2" in answer.lines
    assert "Fragmentation 25%: 32 GPUs stay free, 7.5 stranded" in answer.out


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_the_terminal(yard: Yard, snapshot_file: str, monkeypatch: pytest.MonkeyPatch, width: int):
    monkeypatch.setenv("COLUMNS", str(width))
    assert max(map(len, yard("plan", snapshot_file).lines)) <= width


def test_several_files_as_tables_carry_their_names(yard: Yard, snapshot_file: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("COLUMNS")
    assert yard("plan", snapshot_file, snapshot_file).lines.count(snapshot_file) == 2


def test_a_long_plan_is_cut_in_the_table_and_says_by_how_much(yard: Yard, snapshot_file: str, oracle: Oracle):
    oracle.planned = dataclasses.replace(OUTLOOK, waiting=(FRAGMENTED,) * 250)
    answer = yard("plan", snapshot_file)
    assert sum("· waits" in line for line in answer.lines) == 100
    assert "... and 150 more (-o json has them all)" in answer.lines
    assert len(yard("plan", snapshot_file, "-o", "json").json["waiting"]) == 250
