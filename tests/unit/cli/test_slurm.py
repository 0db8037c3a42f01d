"""Slurm's directives as jobs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpuyard.cli.jobs import slurm
from gpuyard.model.errors import Refused


def read(*lines: str):
    text = "\n".join(["#!/bin/bash", *(f"#SBATCH {line}" for line in lines), "srun hostname", "#SBATCH --late=1"])
    return slurm.read(text, Path("x.sh"))


@pytest.mark.parametrize(
    ("lines", "tasks", "gpus"),
    [
        (["--gres=gpu:2"], 1, 2),
        (["--gres=gpu"], 1, 1),
        (["-N 2", "--gpus-per-node=8"], 2, 8),
        (["--nodes=2", "--ntasks-per-node=4", "--gres=gpu:a100:8"], 8, 2),
        (["-n 4", "--gpus=8"], 4, 2),
        (["--ntasks 4", "--gpus-per-task 1"], 4, 1),
        (["-N 2", "-G 16"], 2, 8),
        (["-n 8", "--gres=gpu:1"], 1, 1),
        (["-c 4"], 1, 0),
    ],
)
def test_nodes_tasks_and_gpus_become_tasks_with_gpus_each(lines: list[str], tasks: int, gpus: int):
    document = read(*lines).document
    assert (document.get("tasks", 1), document.get("gpus", 0)) == (tasks, gpus)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("30", "1800s"),
        ("5:30", "330s"),
        ("2:00:00", "7200s"),
        ("1-0", "86400s"),
        ("1-12:30", "131400s"),
        ("0-0:0:9", "9s"),
    ],
)
def test_times(text: str, limit: str):
    assert read(f"--time={text}").document["time_limit"] == limit


def test_names_queues_arrays_memory_and_dependencies():
    script = read("-J net -p research --array=0-9%2", "--mem=32G --dependency=afterok:1:2,afterany:3", "-D /data")
    assert script.document["after"] == ["1:ok", "2:ok", "3:any"]
    assert {key: script.document[key] for key in ("name", "queue", "array", "memory")} == {
        "name": "net", "queue": "research", "array": "0-9%2", "memory": "32Gi",
    }  # fmt: skip
    assert script.document["run"]["workdir"] == "/data"


def test_what_has_no_counterpart_is_warned_about_and_what_comes_late_is_not_read():
    script = read("--mail-type=END", "--exclusive")
    assert [warning.partition(" has")[0] for warning in script.warnings] == [
        "x.sh:2: --mail-type",
        "x.sh:3: --exclusive",
    ]


def test_the_script_is_kept_as_it_is_now():
    command = read().document["run"]["command"]
    assert command[4:6] == ["/bin/bash", "-c"]
    assert "srun hostname" in command[6]


def test_a_script_finds_the_variables_it_knows():
    lines = ["#!/bin/sh", "#SBATCH --array=0-9", "env | grep ^SLURM_ | sort", 'echo "$0"']
    command = slurm.read("\n".join(lines), Path("x.sh")).document["run"]["command"]
    given = {"GPUYARD_JOB": "x-3", "GPUYARD_ARRAY": "x", "GPUYARD_ARRAY_INDEX": "3", "GPUYARD_QUEUE": "q", "RANK": "1",
             "WORLD_SIZE": "2", "LOCAL_RANK": "0", "GPUYARD_NODE": "n0", "GPUYARD_ATTEMPT": "2"}  # fmt: skip
    env = {"PATH": "/usr/bin:/bin"} | given
    done = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "SLURM_ARRAY_JOB_ID=x", "SLURM_ARRAY_TASK_ID=3", "SLURM_JOB_ID=x-3", "SLURM_JOB_NAME=x",
        "SLURM_JOB_NODELIST=n0", "SLURM_JOB_PARTITION=q", "SLURM_LOCALID=0", "SLURM_NTASKS=2", "SLURM_PROCID=1",
        "SLURM_RESTART_COUNT=1",
        "SLURM_SUBMIT_DIR=/", "x.sh",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "line",
    ["--time=soon", "--nodes=x", "--gres=fpga:1", "--mem=lots", "--dependency=singleton", "oops", '"open', "-t 0"],
)
def test_a_directive_that_cannot_be_is_told_with_its_line(line: str):
    with pytest.raises(Refused, match=r"x\.sh:2"):
        read(line)
