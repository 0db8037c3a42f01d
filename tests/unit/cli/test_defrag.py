"""`yard defrag`: the proposal and its bill, as a table and as JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Yard

FLEET = """\
apiVersion: gpuyard.dev/v1
kind: Snapshot
now: 2026-01-01T12:00:00Z
nodes: [{name: n0, gpus: 8}, {name: n1, gpus: 8}, {name: n2, gpus: 8}]
jobs:
  - {name: small, gpus: 2, warm_up: 0s, started: 2026-01-01T11:50:00Z, placements: [{node: n0, gpus: [0, 1]}]}
  - {name: half, gpus: 4, started: 2026-01-01T10:00:00Z, placements: [{node: n1, gpus: [0, 1, 2, 3]}]}
  - {name: big, gpus: 8, started: 2026-01-01T10:00:00Z, placements: [{node: n2, gpus: [0, 1, 2, 3, 4, 5, 6, 7]}]}
budgets: [{name: keep, jobs: [small], max_unavailable: 1}]
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.yaml"
    path.write_text(FLEET)
    return path


def test_the_table_says_what_moves_what_it_costs_and_what_it_gains(yard: Yard, fleet: Path):
    answer = yard("defrag", "--dry-run", "--snapshot", str(fleet))
    assert answer.code == 0
    assert answer.lines[0] == "Defragmentation: 1 job to move; it pays 13.7 times (1 is asked for)."
    assert "Cost: 20 GPU-minutes of work on 2 GPUs must be done again." in answer.lines
    assert "Stranded GPUs: 5.6 → 1.7." in answer.lines
    assert "Tasks that budgets still let go: keep 1 → 0." in answer.lines


def test_the_json_has_the_moves_the_bill_and_the_gain(yard: Yard, fleet: Path):
    told = yard("defrag", "--dry-run", "--snapshot", str(fleet), "-o", "json").json
    assert [(move["job"], move["to"][0]["node"]) for move in told["moves"]] == [("small", "n1")]
    assert told["bill"]["lost_gpu_seconds"] == 1200.0
    assert told["gain"]["shapes"][0] == {"gpus": 8, "tasks": 1, "weight": 0.5714, "before": 0, "after": 1}
    assert told["gain"]["largest_gang"]["after"]["node"] == 8
    assert told["pays"]["ratio"] > told["pays"]["asked"]
    assert told["declined"] is None


def test_what_does_not_pay_is_not_proposed_and_the_numbers_are_said(yard: Yard, fleet: Path):
    fleet.write_text(FLEET.replace("11:50:00Z", "05:50:00Z").replace("10:00:00Z", "05:00:00Z"))
    answer = yard("defrag", "--dry-run", "--snapshot", str(fleet))
    assert answer.code == 0
    assert answer.out.startswith("Defragmentation: nothing is moved; the best that was found, moving small,")
    told = yard("defrag", "--dry-run", "--snapshot", str(fleet), "-o", "json").json
    assert told["moves"] == []
    assert told["reason"]["code"] == "DoesNotPay"
    assert told["declined"]["ratio"] < 1


def test_without_dry_run_a_snapshot_is_left_alone(yard: Yard, fleet: Path):
    answer = yard("defrag", "--snapshot", str(fleet))
    assert answer.code == 2
    assert answer.out == ""
    assert "--dry-run" in answer.err
