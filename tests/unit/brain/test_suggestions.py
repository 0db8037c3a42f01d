"""What would let a waiting job start, in whole sentences and with every number: each was tried before it is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gpuyard.brain import foresee
from gpuyard.brain.engine.explaining import suggestions
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from tests.support.moments import moment


def told(text: str, kind: str = "") -> list[str]:
    """The changes that are told to the job `w`, of one kind or all, with their effects."""
    found = foresee.why(moment(text), "w")
    assert found is not None
    return [f"{each.change}; {each.effect}".rstrip("; ") for each in found.suggestions if kind in ("", each.kind)]


FREE = "nodes: [{name: n, times: 2, gpus: 8}]\nbusy: {n0: N0, n1: N1}\njobs: [{name: w, JOB}]"


@pytest.mark.parametrize(
    ("busy", "job", "sizes"),
    [
        (
            ("0-3", "0-3"),
            "gpus: 6",
            [
                "ask for 3 tasks of 2 GPUs instead of 6 GPUs; 4 places are open for 2 GPUs",
                "ask for 4 GPUs instead of 6 GPUs; 2 places are open for 4 GPUs",
                "ask for 2 GPUs instead of 6 GPUs; 4 places are open for 2 GPUs",
            ],
        ),
        (("0-3", "0-6"), "gpus: 7", ["ask for 4 GPUs instead of 7 GPUs; 1 place is open for 4 GPUs"]),
        (("0-3", "0-3"), "gpus: 16", ["ask for 4 GPUs instead of 16 GPUs; 2 places are open for 4 GPUs"]),
        (("0-3", "0-3"), "gpus: 40", ["ask for 4 GPUs instead of 40 GPUs; 2 places are open for 4 GPUs"]),
        (("0-2", "0-6"), "gpus: 10", ["ask for 4 GPUs instead of 10 GPUs; 1 place is open for 4 GPUs"]),
        (("0-6", "0-6"), "gpus: 2", ["ask for 1 GPU instead of 2 GPUs; 2 places are open for 1 GPU"]),
        (("0-6", "0-6"), "gpus: 3", ["ask for 1 GPU instead of 3 GPUs; 2 places are open for 1 GPU"]),
        (
            ("0-3", "0-5"),
            "gpus: 3, tasks: 2, min: 2",
            ["ask for 3 tasks of 2 GPUs instead of 2 × 3; 3 places are open for 2 GPUs"],
        ),
        (
            ("0-3", "0-5"),
            "gpus: 4, tasks: 2",
            ["ask for 2 tasks of 2 GPUs instead of 2 × 4; 3 places are open for 2 GPUs"],
        ),
        (("0-6", "0-7"), "gpus: 1, tasks: 2", []),
    ],
)  # fmt: skip
def test_another_size_is_told_with_the_places_that_open_up(busy: tuple[str, str], job: str, sizes: list[str]):
    text = FREE.replace("N0", busy[0]).replace("N1", busy[1]).replace("JOB", job)
    found = told(text, "size")
    assert found[: len(sizes)] == sizes
    assert bool(found) is bool(sizes)


@pytest.mark.parametrize(
    ("job", "gang"),
    [
        ("gpus: 2, tasks: 5", ["run with 3 tasks instead of 5"]),
        ("gpus: 4, tasks: 2", ["run with 1 task instead of 2"]),
        ("gpus: 2, tasks: 8, min: 4", ["run with 3 tasks instead of 4"]),
        ("gpus: 5, tasks: 2", []),
        ("gpus: 2, tasks: 5, succeeded: 1", []),
        ("gpus: 8", []),
    ],
)
def test_the_most_tasks_that_would_start_are_told(job: str, gang: list[str]):
    assert told(FREE.replace("N0", "0-3").replace("N1", "0-5").replace("JOB", job), "gang") == gang


def test_a_level_is_widened_only_as_far_as_it_must_be():
    text = """
    topology: [block, rack]
    nodes:
      - {name: a0, gpus: 4, domains: {block: a, rack: r0}}
      - {name: a1, gpus: 4, domains: {block: a, rack: r1}}
      - {name: b0, gpus: 4, domains: {block: b, rack: r2}}
    jobs: [{name: w, gpus: 4, tasks: TASKS, topology: {required: rack}}]
    """
    assert told(text.replace("TASKS", "2"), "level") == ["require the same block instead of the same rack"]
    assert told(text.replace("TASKS", "3"), "level") == ["only prefer the same rack"]
    assert told(text.replace("TASKS", "4"), "level") == []


def test_a_model_that_has_room_is_told_and_one_that_has_none_is_not():
    text = """
    nodes: [{name: a, gpus: 2, model: A100}, {name: h, gpus: 2, model: H100}, {name: l, gpus: 2, model: L4}]
    busy: {h: 0-1, l: "0"}
    jobs: [{name: w, gpus: 2, models: [H100]}]
    """
    assert told(text, "model") == ["allow A100"]


@pytest.mark.parametrize(
    ("queue", "job", "change"),
    [
        ("quota: 8, limit: 3", "gpus: 4", "raise the limit of queue q by 1, from 3 to 4 GPUs"),
        ("quota: 1", "gpus: 4, preemptible: false", "raise the quota of queue q by 3, from 1 to 4 GPUs"),
        ("limit: {cpu: 4}", "gpus: 1, cpu: 6.5", "raise the cpu limit of queue q by 2.5, from 4 to 6.5 CPUs"),
        ("limit: {memory: 8Gi}", "gpus: 1, memory: 12Gi", "raise the memory limit of queue q by 4, from 8 to 12 Gi"),
        ("limit: {H100: 1}", "gpus: 2, models: [H100]", "raise the H100 limit of queue q by 1, from 1 to 2 GPUs"),
        (
            "limit: {gpu: 1, cpu: 1}",
            "gpus: 2, cpu: 2",
            "raise the limit of queue q by 1, from 1 to 2 GPUs and the cpu limit of queue q by 1, from 1 to 2 CPUs",
        ),
    ],
)
def test_quotas_and_limits_are_raised_by_what_is_missing(queue: str, job: str, change: str):
    text = f"""
    nodes: [{{name: n0, gpus: 4, cpu: 16, memory: 64Gi, model: H100}}]
    queues: [{{name: q, {queue}}}]
    jobs: [{{name: w, queue: q, {job}}}]
    """
    assert told(text, "quota") == [change]


def test_who_could_borrow_is_told_so_and_a_full_fleet_is_not_helped_by_quota():
    text = """
    nodes: [{name: n0, gpus: 4}]
    queues: [{name: q, quota: 1}, {name: r, quota: 4}]
    jobs: [{name: w, queue: q, gpus: 2, preemptible: false}]
    """
    assert told(text, "preemptible") == ["submit it as preemptible: it may then borrow above quota"]
    full = text.replace("jobs: [", "jobs: [{name: x, queue: r, preemptible: false, at: 'n0:0-2'}, ")
    assert told(full, "preemptible") == told(full, "quota") == []


MANY = """
nodes: [{name: n, times: 30, gpus: 4}]
jobs:
  - {name: large, gpus: 3, started: -3h, submitted: -9h, at: "n0:0-2"}
  - {name: firm, gpus: 1, preemptible: false, started: -3h, submitted: -9h, at: "n0:3"}
  - {name: half, gpus: 1, tasks: 2, min: 2, started: -3h, submitted: -9h, at: "n1:0"}
"""


def test_who_could_move_are_the_smallest_then_the_oldest_who_run_whole_and_may_be_moved():
    pods = [(f"p{i:02d}", 60 + 7 * i % 80, f"n{2 + i // 4}:{i % 4}") for i in range(80)]
    lines = [f'  - {{name: {name}, gpus: 1, started: -1h, submitted: -{age}m, at: "{at}"}}' for name, age, at in pods]
    fleet = Fleet(moment(MANY + "\n".join(lines)))
    by_age = [name for name, _, _ in sorted(pods, key=lambda pod: (-pod[1], pod[0]))]
    assert [row.name for row in suggestions.movable(Draft(fleet, Memory(), 0.0))] == by_age[
        : suggestions.MOVE_CANDIDATES + 1
    ]
    few = Fleet(moment(MANY + "\n".join(lines[:3])))
    assert [row.name for row in suggestions.movable(Draft(few, Memory(), 0.0))] == ["p02", "p01", "p00", "large"]


def test_who_waits_is_told_why_without_loading_the_rest_of_numpy():
    """Loading it takes as long as planning a large fleet several times, in the middle of a turn."""
    asked = "nodes: [{name: n, gpus: 8}]\njobs: [{name: w, gpus: 2, node_selector: {disk: tape}}]"
    code = (
        "import sys\nfrom gpuyard.brain import foresee\nfrom tests.support.moments import moment\n"
        f"assert foresee.why(moment({asked!r}), 'w') is not None\nassert 'numpy.ma' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])
