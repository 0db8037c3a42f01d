"""`run.image`: the words that podman gets, and that output, exit code, signals and the end go through it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuyard.model.errors import Refused
from gpuyard.model.job import Run
from gpuyard.runtime.clock import SystemClock
from gpuyard.runtime.embedded.yard import EmbeddedYard, Settings
from gpuyard.worlds.local.launching import containers
from gpuyard.worlds.local.launching.launch import Supervisors
from gpuyard.worlds.local.supervising import confine
from tests.support.yards import ADMIN, TestYard, fleet, sh

pytestmark = pytest.mark.slow

PODMAN = Path(__file__).resolve().parents[2] / "support" / "fake_podman.py"


class Contained(TestYard):
    """A yard on a machine with one real GPU, as far as it knows, and a podman that tells what it was asked."""

    def __init__(self, folder: Path, path: str) -> None:
        self.spy = folder / "spy"
        known = fleet("nodes: [{name: n0, gpus: 1, model: H100, uuids: [GPU-feed]}]")
        settings = Settings(folder / "state", known, term_grace=0.3, environ={"PATH": path})
        EmbeddedYard.__init__(self, settings, SystemClock())

    @property
    def launcher(self) -> Supervisors:
        launcher = self.world.desk.launcher
        assert isinstance(launcher, Supervisors)
        return launcher

    def asked(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.spy / "words").read_text().splitlines()]

    def image(self, script: str, **keys: Any) -> None:
        more = {"env": {"SECRET": "word"}, **keys.pop("run", {})}
        self.put(sh(script, run={"image": "python:3.12", **more}, **keys))


@pytest.fixture
def engine() -> str:
    return "podman"


@pytest.fixture
def yard(tmp_path: Path, engine: str) -> Iterator[Contained]:
    programs = tmp_path / "bin"
    programs.mkdir()
    (tmp_path / "spy").mkdir()
    (programs / engine).write_text(f"#!{sys.executable}\n{PODMAN.read_text()}")
    (programs / engine).chmod(0o755)
    for name in ("sh", "sleep"):
        (programs / name).symlink_to(str(shutil.which(name)))
    made = Contained(tmp_path, str(programs))  # nowhere else: the machine may have an engine of its own
    made.start()
    yield made
    (tmp_path / "spy" / "hangs").unlink(missing_ok=True)
    made.stop()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pid_inside(yard: Contained) -> int:
    """The process of the one container, once it is up."""
    while not (found := [path.read_text() for path in yard.spy.glob("gpuyard-*")]) or not found[0]:
        yard.wait_events(yard.store.last_event, 0.02)
    return int(found[0])


def test_the_image_gets_its_gpu_its_folder_and_its_variables_by_name_only(yard: Contained, tmp_path: Path):
    yard.image(
        "pwd; echo $SECRET $RANK $CUDA_VISIBLE_DEVICES; exit 3", name="a", gpus=1, run={"workdir": str(tmp_path)}
    )
    document = yard.until("a")
    assert (document["phase"], document["exit_code"]) == ("failed", 3)
    assert yard.output("a").split() == [str(tmp_path), "word", "0", "GPU-feed"]
    words = yard.asked()[0]["words"]
    assert words[:2] == ["run", "--rm"]
    assert {"--device=nvidia.com/gpu=GPU-feed", "--network=host", "--ipc=host", "--env=SECRET", "--env=RANK"} <= {
        *words
    }
    assert {f"--volume={tmp_path}:{tmp_path}", f"--workdir={tmp_path}"} <= {*words}
    assert not [word for word in words if "word" in word.split("=")[-1:]]
    assert words[words.index("python:3.12") :] == ["python:3.12", "sh", "-c", yard.asked()[0]["words"][-1]]


def test_the_checkpoint_signal_reaches_the_container(yard: Contained):
    script = "trap 'echo saved; exit 0' USR1; echo up; while :; do sleep 0.05; done"
    yard.image(script, name="a", checkpoint={"grace": "20s"})
    while "up" not in yard.output("a"):
        yard.wait_events(yard.store.last_event, 0.02)
    yard.act(ADMIN, "a", "requeuehold")
    yard.until("a", "held")
    assert "saved" in yard.output("a")


def test_a_container_that_does_not_listen_is_ended_with_its_client(yard: Contained):
    yard.image("trap '' TERM; echo up; sleep 600 & wait; sleep 600", name="a")
    inside = pid_inside(yard)
    yard.act(ADMIN, "a", "cancel")
    yard.until("a", "cancelled")
    assert not alive(inside)
    assert yard.asked()[-1]["words"][:3] == ["rm", "--force", "--time=0"]


def test_a_container_whose_supervisor_was_killed_is_ended(yard: Contained):
    yard.image("sleep 600", name="a", run={"retries": 0})
    inside = pid_inside(yard)
    yard.until("a", "running")
    keys = list(yard.world.desk.holdings._by_task)
    yard.world.desk.launcher.kill(*keys)
    while alive(inside):
        yard.wait_events(yard.store.last_event, 0.02)


# --- an engine that does not do as it is asked -----------------------------------------------------


def told(yard: Contained, kind: str) -> list[str]:
    return [event["message"] for event in yard.events(ADMIN, 0, 1000) if event["kind"] == kind]


def until_told(yard: Contained, kind: str) -> str:
    while not told(yard, kind):
        yard.wait_events(yard.store.last_event, 0.05)
    return told(yard, kind)[0]


def cancel_where(yard: Contained, trouble: str) -> None:
    """A container whose client no signal ends runs, and its engine does not remove it."""
    yard.launcher.removal_s = 0.2
    (yard.spy / trouble).touch()
    yard.image("trap '' TERM; sleep 600 & wait; sleep 600", name="a", gpus=1)
    pid_inside(yard)
    yard.act(ADMIN, "a", "cancel")


@pytest.mark.parametrize("engine", ["docker"])
def test_a_gpu_is_not_given_on_while_docker_has_not_said_that_its_container_is_gone(yard: Contained):
    cancel_where(yard, "hangs")
    yard.put(sh("true", name="next", gpus=1))
    assert "GPU 0 of n0 stays withheld" in until_told(yard, "withheld")
    assert "docker has not ended its container within 0.2 s" in told(yard, "withheld")[0]
    assert "docker has not ended" in yard.status()["checks"]["processes"]
    assert yard.job(ADMIN, "next")["phase"] in ("waiting", "starting")
    yard.act(ADMIN, "a", "vouch")
    yard.until("a", "cancelled")
    yard.until("next", "succeeded")


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("hangs", "podman has not ended its container within 0.2 s"),
        ("fails", "podman could not end its container: Error: cannot connect to the daemon"),
    ],
)
def test_what_podman_ran_is_ended_without_it_and_that_is_told(yard: Contained, trouble: str, words: str):
    cancel_where(yard, trouble)
    yard.until("a", "cancelled")
    assert told(yard, "container-left") == [words]
    assert not alive(pid_inside(yard))


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_the_loop_turns_while_an_engine_hangs_over_the_container_of_a_killed_supervisor(yard: Contained):
    (yard.spy / "hangs").touch()
    yard.image("sleep 600", name="a", gpus=1)
    pid_inside(yard)
    yard.until("a", "running")
    for watched in list(yard.launcher._watched.values()):
        os.kill(watched.pid, signal.SIGKILL)
    yard.put(sh("true", name="b"))
    yard.until("b", "succeeded")  # the engine hangs for as long as the test lets it
    assert "has not said yet that its container" in until_told(yard, "withheld")
    (yard.spy / "hangs").unlink()
    yard.act(ADMIN, "a", "cancel")
    yard.until("a", "cancelled")


def test_an_image_that_is_not_there_is_told(yard: Contained):
    yard.image("true", name="a", run={"image": "no-such-image"})
    document = yard.until("a")
    assert (document["phase"], document["exit_code"]) == ("failed", 125)
    assert document["message"] == "rank 0: podman could not run the image; what it says is in the output"
    assert "no such image" in yard.output("a")


def test_virtual_gpus_are_no_devices_of_a_container(tmp_path: Path, yard: Contained):
    node = replace(yard.settings.fleet.nodes[0], gpus=(replace(yard.settings.fleet.nodes[0].gpus[0], uuid=""),))
    yard.world.desk.nodes["n0"] = node
    yard.image("true", name="a", gpus=1)
    yard.until("a")
    assert not [word for word in yard.asked()[0]["words"] if word.startswith("--device")]


def test_without_an_engine_the_job_is_refused_with_a_clear_sentence(tmp_path: Path):
    yard = Contained(tmp_path, str(tmp_path))
    yard.start()
    with pytest.raises(Refused, match=r"run\.image needs podman or docker on this machine, and there is neither"):
        yard.put(sh("true", name="a", run={"image": "python:3.12"}))
    with pytest.raises(Refused, match=r"run\.image is the name of an image"):
        yard.put(sh("true", name="a", run={"image": "--privileged"}))
    yard.stop()


def test_docker_runs_as_the_submitter():
    run = Run(("true",), image="i", tty=True)
    box = containers.Box("/usr/bin/docker", "n", (), 1000)
    assert containers.command(run, box, {"A": "1"})[-4:] == ("--user=1000", "-it", "i", "true")


def test_an_engine_of_the_jobs_own_is_never_run(yard: Contained, tmp_path: Path):
    own = tmp_path / "own"
    own.mkdir()
    for name in ("podman", "docker", "python3"):
        (own / name).write_text(f"#!/bin/sh\nid >> {tmp_path}/caught\nenv >> {tmp_path}/caught\n")
        (own / name).chmod(0o755)
    yard.image("sleep 600", name="a", run={"env": {"PATH": f"{own}:/usr/bin:/bin", "LD_PRELOAD": "", "MINE": "1"}})
    pid_inside(yard)
    yard.act(ADMIN, "a", "cancel")
    yard.until("a", "cancelled")
    assert not (tmp_path / "caught").exists()
    removal = yard.asked()[-1]
    assert removal["words"][0] == "rm"
    assert not {"MINE", "SECRET", "GPUYARD_MARK", "LD_PRELOAD"} & removal["env"].keys()
    assert removal["env"]["PATH"] == confine.SYSTEM_PATH


def test_a_folder_that_would_be_read_as_several_is_refused(yard: Contained):
    with pytest.raises(Refused, match=r"run\.workdir cannot be given to an image: /etc:/etc holds a colon"):
        yard.image("true", name="a", run={"workdir": "/etc:/etc"})


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("podman"), reason="needs podman")
def test_the_real_podman_takes_these_words(tmp_path: Path):
    run = Run(("true",), workdir=str(tmp_path), image="no-such-image")
    box = containers.Box(containers.find(os.environ["PATH"]), "gpuyard-test")
    words = containers.command(run, box, {"RANK": "0"})
    done = subprocess.run([*words[:2], "--pull=never", *words[2:]], capture_output=True, text=True, check=False)
    assert done.returncode == 125  # there is no such image, or podman cannot run here at all; but it knows every word
    assert "unknown flag" not in done.stderr
