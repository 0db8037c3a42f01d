"""`yard sim` and `yard whatif`, as typed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuyard.cli.console import terminal
from gpuyard.cli.main import run
from gpuyard.cli.rendering.simulated import sim_text

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


def test_sim_compares_pack_and_spread_class_by_class(trace: str, capsys: pytest.CaptureFixture[str]):
    assert run(["sim", trace, "--fleet", "8x4@2", "--compare-placement", "--seed", "1-2", "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert "failures for each GPU and day" in answer["model"]
    assert "longer for each other job on its busiest node" in answer["model"]
    for kind, told in answer["classes"].items():
        assert told["recommendation"].startswith((f"{kind}: pack (", f"{kind}: spread ("))
        assert set(told["pack"]) == set(told["spread"]) == {"hit", "fell", "lost_gpu_s", "wait_p99_s", "slow_p95"}
        assert all(each["least"] <= each["mean"] <= each["most"] for each in told["pack"].values())


OPENB_NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,8,T4\n"
OPENB_TASKS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "".join(
    f"t{number},1000,1024,1,1000,\n" for number in range(10)
)


@pytest.fixture
def openb(tmp_path: Path) -> list[str]:
    (tmp_path / "nodes.csv").write_text(OPENB_NODES)
    (tmp_path / "tasks.csv").write_text(OPENB_TASKS)
    return [str(tmp_path / "tasks.csv"), "--fleet", str(tmp_path / "nodes.csv")]


def test_a_load_at_which_nobody_arrived_has_no_figure(openb: list[str], capsys: pytest.CaptureFixture[str]):
    assert run(["sim", *openb, "--arrivals", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:6] == ["default", "1", "-", "100", "-", "2"]


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("--faults", "its tasks only arrive, and are tried once"),
        ("--overhead=0", "its tasks only arrive, and are tried once"),
        ("--from=2020-01-01", "its times count from 0"),
    ],
)
def test_an_option_that_says_nothing_of_openb_is_refused(
    openb: list[str], option: str, why: str, capsys: pytest.CaptureFixture[str]
):
    assert run(["sim", *openb, option]) == 2
    assert f"{option.partition('=')[0]} says nothing of a trace of the format openb: {why}" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--moves=1%", "--arrivals=0"])
def test_what_openb_alone_takes_is_refused_of_others(trace: str, option: str, capsys: pytest.CaptureFixture[str]):
    assert run(["sim", trace, "--fleet", "8x1", option]) == 2
    assert "says nothing of a trace of the format csv" in capsys.readouterr().err


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


TASKS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
HEAD = "job,submitted,gpus,tasks,duration,class\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (HEAD + "a,0,x,1,5,\n", "t.csv:2: gpus is 'x', which is no number"),
        (HEAD + "a,0,1,1,5,\na,9,1,1,5,\n", "t.csv:3: there is another job a above; names must differ"),
        (HEAD + "a,0,1.5,1,5,\n", "t.csv:2: gpus is 1.5: more than one GPU must be whole GPUs"),
        (HEAD + "a,0,1,0,5,\n", "t.csv:2: tasks is 0; it must be at least 1"),
        (HEAD + "a,0,1,1.5,5,\n", "t.csv:2: tasks is 1.5, which is no whole number"),
        (HEAD + "a,nan,1,1,5,\n", "t.csv:2: submitted is nan; it must be finite"),
        (HEAD + "a,0,-1,1,5,\n", "t.csv:2: gpus is -1; it must be at least 0"),
        (HEAD + "a,0,1,1,5,odd\n", "t.csv:2: class is 'odd'; there are training, inference, interactive, batch"),
        (HEAD + "a,0\n", "t.csv:2: there is no gpus"),
        (TASKS + "t,0,0,1,1000,\nt,0,0,1,500,\n", "t.csv:3: there is another task t above; names must differ"),
        (TASKS + "t#1,0,0,1,1000,\n", "t.csv:2: name is t#1; # counts copies of a task"),
        ('{"t": 1,\n', "t.csv:1: this is no JSON"),
        ("", "t.csv holds no jobs"),
        ("a,b\n1,2\n", "the header fits none of openb, philly, muri, csv, journal; name one with --format"),
    ],
)
def test_a_bad_trace_is_told_by_line_and_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, told: str
):
    (tmp_path / "t.csv").write_text(text)
    assert run(["sim", str(tmp_path / "t.csv"), "--fleet", "8x1"]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--fleet", "0x1"], "a fleet without GPUs"),
        (["--fleet", "8x1", "--format", "openb"], "trace.csv:2: there is no num_gpu"),
        (["--fleet", "8x1", "--report", "/nowhere/x.html"], "/nowhere/x.html cannot be written"),
        (["--fleet", "/"], "/ cannot be read: Is a directory"),
    ],
)
def test_a_bad_word_to_sim_is_told(trace: str, capsys: pytest.CaptureFixture[str], words: list[str], told: str):
    assert run(["sim", trace, *words]) == 2
    assert told in capsys.readouterr().err


def test_jobs_that_never_end_are_counted_aloud(trace: str, capsys: pytest.CaptureFixture[str]):
    assert run(["sim", trace, "--fleet", "2x1"]) == 0
    assert "14 of 30 jobs never ended" in capsys.readouterr().out


def test_whatif_without_a_change_names_the_changes(trace: str, capsys: pytest.CaptureFixture[str]):
    assert run(["whatif", trace, "--fleet", "8x1"]) == 2
    assert "Name what changes: --add-nodes" in capsys.readouterr().err


def test_a_journal_replays_gangs_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "t.csv").write_text("job,submitted,gpus,tasks,duration\na,0,4,2,60\nb,0,4,2,60\n")
    words = ["--fleet", "4x2", "-o", "json"]
    assert run(["sim", str(tmp_path / "t.csv"), *words, "--placements", str(tmp_path / "p")]) == 0
    first = json.loads(capsys.readouterr().out)["runs"][0]
    assert run(["sim", str(tmp_path / "p"), *words]) == 0
    again = json.loads(capsys.readouterr().out)["runs"][0]
    assert (again["makespan_s"], again["utilisation"]) == (first["makespan_s"], first["utilisation"]) == (120.0, 1.0)


def test_sim_lists_the_alerts_that_would_have_been_raised_from_when_to_when(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "late.csv"
    path.write_text("job,submitted,gpus,duration\nfirst,0,8,9000\nlate,60,8,60\n")
    assert run(["sim", str(path), "--fleet", "8x1", "-o", "json"]) == 0
    (alert,) = json.loads(capsys.readouterr().out)["runs"][0]["alerts"]
    assert (alert["kind"], alert["from"], alert["to"], alert["jobs"]) == ("wait", 3661.0, 9000.0, ["late"])
    assert run(["sim", str(path), "--fleet", "8x1"]) == 0
    told = capsys.readouterr().out
    assert "1 alert (seed 42)" in told
    assert "1h1m" in told


def test_waits_of_many_queues_are_rows_the_worst_first(capsys: pytest.CaptureFixture[str]):
    def simulated(policy: str, factor: float) -> Any:
        waits = {f"q{n}": factor * n for n in range(1000)}
        return SimpleNamespace(policy=policy, figures=SimpleNamespace(fairness=waits))

    sim_text._draw_fairness(terminal.Screen(), {"fifo": [simulated("fifo", 1.0)], "sjf": [simulated("sjf", 0.5)]})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "mean wait per queue, seconds; the worst 20 of 1,000"
    assert [line.split() for line in lines[1:3]] == [["QUEUE", "fifo", "sjf"], ["q999", "999", "499.50"]]
    assert len(lines) == 22
