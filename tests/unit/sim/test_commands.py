"""`yard sim` and `yard whatif`, as typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuyard.cli.main import run

TRACE = "job,submitted,gpus,duration\n" + "".join(f"j{i},{i * 20},{1 + i % 4},{300 + 10 * i}\n" for i in range(30))


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return str(path)


def test_sim_prints_every_policy_and_seed_as_json(trace: str, capsys: pytest.CaptureFixture[str]):
    assert (
        run(["sim", trace, "--fleet", "8x1", "--policy", "fifo", "--policy", "blind", "--seed", "1-2", "-o", "json"])
        == 0
    )
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [(each["policy"], each["seed"]) for each in runs] == [("fifo", 1), ("fifo", 2), ("blind", 1), ("blind", 2)]
    assert all(each["finished"] == 30 for each in runs)


def test_sim_draws_a_table_and_a_page(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    page = tmp_path / "page.html"
    assert run(["sim", trace, "--fleet", "8x1", "--report", str(page)]) == 0
    assert "JCT MEAN" in capsys.readouterr().out
    text = page.read_text()
    assert text.count("<svg") == 4
    assert "http" not in text


def test_sim_compares_pack_and_spread(trace: str, capsys: pytest.CaptureFixture[str]):
    assert run(["sim", trace, "--fleet", "8x4@2", "--compare-placement", "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [each["style"] for each in answer["placements"]] == ["pack", "spread"]
    assert answer["recommendation"].startswith("recommended: ")


def test_an_unknown_policy_is_told_with_the_shipped_ones(trace: str, capsys: pytest.CaptureFixture[str]):
    assert run(["sim", trace, "--fleet", "8x1", "--policy", "fifi"]) == 3
    assert "did you mean fifo?" in capsys.readouterr().err


def test_one_placement_file_holds_one_run(trace: str, tmp_path: Path):
    assert run(["sim", trace, "--fleet", "8x1", "--seed", "1-2", "--placements", str(tmp_path / "p")]) == 2


def test_whatif_tells_what_more_nodes_change(trace: str, capsys: pytest.CaptureFixture[str]):
    assert run(["whatif", trace, "--fleet", "8x1", "--add-nodes", "1", "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["figures"]["queue_mean_s"]["change"] < 0


def test_whatif_tells_what_time_limits_and_levels_change(trace: str, capsys: pytest.CaptureFixture[str]):
    assert run(["whatif", trace, "--fleet", "8x4@2", "--time-limit", "60", "--topology", "rack", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["figures"]["jct_mean_s"]["after"] <= 60


SNAPSHOT = """
apiVersion: gpuyard.dev/v1
kind: Snapshot
nodes: [{name: n0, gpus: 8}]
queues: [{name: a, quota: 8}]
jobs: [{name: one, queue: a, gpus: 8}, {name: two, queue: a, gpus: 8}]
"""


def test_whatif_names_who_gains(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "s.yaml").write_text(SNAPSHOT)
    assert run(["whatif", "--snapshot", str(tmp_path / "s.yaml"), "--add-nodes", "1", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["gains"] == ["two"]


QUEUES = "job,submitted,gpus,duration,queue\na,0,1,60,red\nb,0,1,60,blue\n"


def test_a_fleet_without_queues_takes_those_of_the_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "t.csv").write_text(QUEUES)
    assert run(["sim", str(tmp_path / "t.csv"), "--fleet", "8x1", "-o", "json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["runs"][0]["fairness"]) == {"red", "blue"}


def test_a_queue_that_the_fleet_does_not_have_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "t.csv").write_text(QUEUES)
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(
        "apiVersion: gpuyard.dev/v1\nkind: Snapshot\nnodes: [{name: n0, gpus: 8}]\nqueues: [{name: red}]\n"
    )
    assert run(["sim", str(tmp_path / "t.csv"), "--fleet", str(fleet)]) == 2
    assert "t.csv names queue blue, which the fleet does not have; it has red" in capsys.readouterr().err
