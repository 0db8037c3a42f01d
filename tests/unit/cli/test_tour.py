"""`yard tour`: a tour that a newcomer takes to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuyard.cli.console import sources
from gpuyard.cli.learning import tour
from tests.unit.cli.conftest import Yard

EXAMPLE = """\
# Two nodes with one small job each.
#
# So a job that needs
# a whole node waits.
#
#   yard plan fragmented.yaml
apiVersion: gpuyard.dev/v1
kind: Snapshot
nodes: [{name: n0, gpus: 8}, {name: n1, gpus: 8}]
jobs:
  - {name: a, gpus: 1, preemptible: false, placements: [{node: n0, gpus: [0]}]}
  - {name: b, gpus: 1, preemptible: false, placements: [{node: n1, gpus: [0]}]}
  - {name: whole, gpus: 8}
"""


@pytest.fixture
def one_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "fragmented.yaml"
    path.write_text(EXAMPLE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sources, "examples", lambda: [path])
    return path


def test_the_tour_tells_the_story_and_asks_plan_why_and_frag(yard: Yard, one_example: Path):
    answer = yard("tour")
    assert answer.code == 0
    assert "Two nodes with one small job each.\nSo a job that needs a whole node waits.\n" in answer.out
    typed = [line for line in answer.lines if line.startswith("$ ")]
    assert typed == [
        "$ yard plan fragmented.yaml",
        "$ yard why whole --snapshot fragmented.yaml",
        "$ yard frag --snapshot fragmented.yaml",
    ]
    assert "whole (1×8) waits (Fragmented)" in answer.out


def test_the_tour_ends_with_three_commands_to_go_on_with(yard: Yard, one_example: Path):
    next_commands = yard("tour").lines[-3:]
    assert all(line.startswith("  yard ") for line in next_commands)
    for line in next_commands:
        assert yard(*line.split()[1:]).code == 0


def test_every_stop_of_the_tour_is_an_example_that_ships():
    assert set(tour.TOUR) <= {path.stem for path in sources.examples()}


def test_the_tour_that_ships_comes_to_its_end(yard: Yard):
    assert yard("tour").code == 0


def test_without_examples_the_tour_says_what_to_do(yard: Yard, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sources, "examples", list)
    answer = yard("tour")
    assert answer.code == 2
    assert "install gpuyard again" in answer.err


def test_the_next_steps_can_be_typed_from_where_the_reader_stands(
    yard: Yard, one_example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    own = tmp_path / ".venv" / "bin" / "yard"
    own.parent.mkdir(parents=True)
    own.touch(0o755)
    monkeypatch.setattr("sys.executable", str(own.parent / "python"))
    monkeypatch.setenv("PATH", "/nowhere")
    assert "  .venv/bin/yard free --snapshot fragmented.yaml" in yard("tour").lines
