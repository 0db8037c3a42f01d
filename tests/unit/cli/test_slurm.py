"""Slurm's directives as jobs."""

from __future__ import annotations

import shlex
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
    groups = document.get("groups", [document])
    assert sum(group.get("tasks", 1) for group in groups) == tasks
    assert {group.get("gpus", 0) for group in groups} == {gpus}


def test_tasks_of_one_node_stay_on_one_node():
    groups = read("-N 2", "--ntasks-per-node=4", "--gpus-per-node=8").document["groups"]
    assert [(group["tasks"], group["gpus"], group["topology"]) for group in groups] == [
        (4, 2, {"required": "node"})
    ] * 2
    assert read("-N 1", "-n 4", "-G 4").document["topology"] == {"required": "node"}
    assert "topology" not in read("-n 4", "-G 4").document


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
    script = read("--mail-type=END", "--nice")
    assert [warning.partition(" has")[0] for warning in script.warnings] == [
        "x.sh:2: --mail-type",
        "x.sh:3: --nice",
    ]


def test_the_script_is_kept_as_it_is_now():
    command = read().document["run"]["command"]
    assert command[4:6] == ["/bin/bash", "-c"]
    assert "srun hostname" in command[6]


def test_a_script_finds_the_variables_it_knows():
    lines = ["#!/bin/sh", "#SBATCH --array=0-9", "env | grep ^SLURM_ | LC_ALL=C sort", 'echo "$0"']
    command = slurm.read("\n".join(lines), Path("x.sh")).document["run"]["command"]
    given = {"GPUYARD_JOB": "x-3", "GPUYARD_ARRAY": "x", "GPUYARD_ARRAY_INDEX": "3", "GPUYARD_QUEUE": "q", "RANK": "1",
             "WORLD_SIZE": "2", "LOCAL_RANK": "0", "GPUYARD_NODE": "n0", "GPUYARD_ATTEMPT": "2"}  # fmt: skip
    env = {"PATH": "/usr/bin:/bin"} | given
    done = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, check=True)
    told = dict(line.split("=", 1) for line in done.stdout.splitlines()[:-1])
    assert done.stdout.splitlines()[-1] == "x.sh"
    assert told.items() >= {
        "SLURM_ARRAY_JOB_ID": "x", "SLURM_ARRAY_TASK_ID": "3", "SLURM_JOB_ID": "x-3", "SLURM_JOB_NAME": "x",
        "SLURM_JOB_NODELIST": "n0", "SLURM_JOB_PARTITION": "q", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2",
        "SLURM_PROCID": "1", "SLURM_RESTART_COUNT": "1", "SLURM_SUBMIT_DIR": "/",
    }.items()  # fmt: skip


@pytest.mark.parametrize(
    "line",
    ["--time=soon", "--nodes=x", "--gres=fpga:1", "--mem=lots", "--dependency=singleton", "oops", '"open', "-t 0"],
)
def test_a_directive_that_cannot_be_is_told_with_its_line(line: str):
    with pytest.raises(Refused, match=r"x\.sh:2"):
        read(line)


# --- inside a script -----------------------------------------------------------------------------


def run(text: str, cwd: Path, rank: int = 0, tasks: int = 2) -> subprocess.CompletedProcess[str]:
    """The script as one task runs it."""
    command = slurm.read(text, Path("job.sh")).document["run"]["command"]
    given = {"GPUYARD_JOB": "j7", "GPUYARD_QUEUE": "q", "RANK": str(rank), "WORLD_SIZE": str(tasks), "LOCAL_RANK": "0",
             "GPUYARD_NODE": "n0", "GPUYARD_ATTEMPT": "1", "PATH": "/usr/bin:/bin"}  # fmt: skip
    return subprocess.run(command, env=given, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("shell", ["/bin/bash", "/bin/sh"])
@pytest.mark.parametrize(
    "options", ["", "-n2 -u", "--ntasks 2 --label", "--mpi=pmix --cpu-bind none", "-N 1 -c4 --gpus-per-task=1", "--"]
)
def test_srun_runs_its_command_once_in_each_task(tmp_path: Path, shell: str, options: str):
    text = f"#!{shell}\nsrun {options} echo 'a  b' $SLURM_PROCID\nexit 3\n"
    done = run(text, tmp_path, rank=1)
    assert (done.returncode, done.stdout) == (3, "a  b 1\n"), done.stderr


def test_a_step_of_one_task_runs_in_the_first_alone(tmp_path: Path):
    text = "#!/bin/bash\nsrun -n 1 echo once\nsrun echo each\n"
    assert [run(text, tmp_path, rank).stdout for rank in (0, 1)] == ["once\neach\n", "each\n"]


def test_a_step_ends_with_its_own_exit_code(tmp_path: Path):
    assert run("#!/bin/bash\nset -e\nsrun sh -c 'exit 9'\necho never\n", tmp_path).returncode == 9


@pytest.mark.parametrize("shell", ["/bin/bash", "/bin/sh"])
@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("step-%t.out", "step-2.out"), ("%x-%j_%3t%%.log", "j7-j7_002%.log"), ("plain", "plain"), ("%", "%"),
        ("a b$(x)%t'", "a b$(x)2'"), ("%q-%5z", "%q-%5z"), ("%u/%t", None),
    ],
)  # fmt: skip
def test_srun_expands_the_names_of_its_own_output_files(tmp_path: Path, shell: str, pattern: str, name: str | None):
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    (tmp_path / user).mkdir()
    quoted = shlex.quote(pattern)
    done = run(f"#!{shell}\nsrun -o {quoted} --error={quoted}.err sh -c 'echo out; echo err >&2'\n", tmp_path, rank=2)
    path = tmp_path / (name or f"{user}/2")
    assert done.returncode == 0, done.stderr
    assert (path.read_text(), Path(f"{path}.err").read_text()) == ("out\n", "err\n")


def test_a_script_that_bash_starts_finds_srun_too(tmp_path: Path):
    (tmp_path / "inner.sh").write_text("#!/bin/bash\nsrun echo inner\n")
    assert run("#!/bin/bash\nbash ./inner.sh\n", tmp_path).stdout == "inner\n"


def test_output_goes_to_the_file_that_the_pattern_names(tmp_path: Path):
    text = "#!/bin/bash\n#SBATCH -o out-%x-%j-%3t.txt -e '$(touch owned).err'\necho hi\necho oops >&2\n"
    done = run(text, tmp_path, rank=1)
    assert done.stdout == "output goes to out-j7-j7-001.txt\n"
    assert (tmp_path / "out-j7-j7-001.txt").read_text() == "hi\n"
    assert (tmp_path / "$(touch owned).err").read_text() == "oops\n"
    assert not (tmp_path / "owned").exists()


def test_a_constraint_names_models_or_says_what_to_do():
    assert read("-C a100|h100").document["models"] == ["A100", "H100"]
    with pytest.raises(Refused, match="node_selector"):
        read("--constraint=bigmem")
    with pytest.raises(Refused, match="--gpus-per-node=8"):
        read("--exclusive")


def test_export_means_what_it_means_there(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_OWN", "1")
    assert read("--export=ALL,X=2").document["run"]["env"].items() >= {"MY_OWN": "1", "X": "2"}.items()
    assert read("--export=NONE").document["run"]["env"] == {}
    assert read("--export=MY_OWN").document["run"]["env"] == {"MY_OWN": "1"}
