"""The agent and the yard as people start them, on a recorded machine: faults come, are told, and go."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import records
from tests.support.kube.cluster import until_told
from tests.support.kubelet import FakeKubelet

pytestmark = pytest.mark.slow
WAIT_S = 300.0
MACHINE = str(records.path("synthetic-h100x8"))


def yard(state: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpuyard", "--state", str(state), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)


def test_an_agent_lives_through_a_crash_and_a_hang_and_says_so(tmp_path: Path):
    faults = tmp_path / "faults.yaml"
    faults.write_text("[]")
    with subprocess.Popen(
        [sys.executable, "-m", "gpuyard", "--state", str(tmp_path / "state"), "agent", "--nvml-replay", MACHINE,
         "--faults", str(faults), "--port", "0", "--every", "0.2s", "--deadline", "5s"],
        stderr=subprocess.PIPE, text=True,
    ) as agent:  # fmt: skip
        try:
            _hear(agent, "8 GPUs seen")
            faults.write_text("[{fault: hang}]")
            (asking,) = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
            os.kill(int(asking), signal.SIGKILL)  # the next reads the faults anew
            _hear(agent, "the process that asks NVML ended")
            _hear(agent, "NVML does not answer (no answer within 5 s)")
            faults.write_text("[]")
            _hear(agent, "8 GPUs seen")
        finally:
            agent.send_signal(signal.SIGTERM)
            assert agent.wait(WAIT_S) == 0


def test_an_agent_offers_its_gpus_to_a_kubelet_and_takes_its_leave(tmp_path: Path):
    kubelet = FakeKubelet(tmp_path)
    kubelet.start()
    with subprocess.Popen(
        [sys.executable, "-m", "gpuyard", "--state", str(tmp_path / "state"), "agent", "--nvml-replay", MACHINE,
         "--port", "0", "--device-plugin", "--kubelet-folder", str(tmp_path)],
        stderr=subprocess.DEVNULL,
    ) as agent:  # fmt: skip
        try:
            kubelet.until(lambda: kubelet.allocatable() == 8)
        finally:
            agent.send_signal(signal.SIGTERM)
            assert agent.wait(WAIT_S) == 0
    kubelet.until(lambda: kubelet.devices == {})
    assert [path.name for path in tmp_path.glob("*.sock")] == ["kubelet.sock"]
    kubelet.stop()


def _hear(agent: subprocess.Popen[str], words: str) -> None:
    assert agent.stderr is not None
    assert any(words in line for line in agent.stderr)


def test_a_yard_on_a_recorded_machine_measures_its_jobs_and_takes_a_lost_gpu_out(tmp_path: Path):
    state = tmp_path / "state"
    faults = tmp_path / "faults.yaml"
    faults.write_text("[{fault: set, gpu: 0, set: {utilization: 80}}, {fault: lost, gpu: 7}]")
    up = yard(
        state, "up", "--detach", "--state", str(state), "--port", "0", "--nvml-replay", MACHINE, "--faults", str(faults)
    )
    assert up.returncode == 0, up.stderr
    try:
        assert "as recorded in" in up.stdout
        assert yard(state, "run", "--detach", "--gpus", "2", "--name", "a", "--", "sleep", "600").returncode == 0

        def told() -> tuple[Any, Any, Any]:
            said = json.loads(yard(state, "top", "--by", "gpu", "-o", "json").stdout)
            gpus = {gpu["name"][gpu["name"].rindex(":") :]: gpu for gpu in said}
            return gpus[":0"].get("utilization"), gpus[":0"]["jobs"], gpus[":7"]["health"]

        until_told(told, (0.8, ["a"], "sick"), WAIT_S, "the job has its GPU, and both are measured")
    finally:
        assert yard(state, "down", "--jobs", "--state", str(state)).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("agent", "--faults", "f.yaml"), "--nvml-replay too"),
        (("agent", "--nvml-replay", "no-such.json"), "cannot be read"),
        (("agent", "--nvml-replay", MACHINE, "--host", "0.0.0.0", "--port", "0"), "needs TLS"),
        (("up", "--nvml-replay", MACHINE, "--fleet", "machine"), "no --fleet beside it"),
        (("up", "--nvml-replay", os.devnull), "is no record of a machine"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(tmp_path: Path, arguments: tuple[str, ...], words: str):
    answer = yard(tmp_path / "state", *arguments)
    assert answer.returncode == 2
    assert words in answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 1
