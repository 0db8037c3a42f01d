"""What the agent's looks tell the embedded yard: how busy each job's GPUs are, and which GPUs are unwell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.agent.nvml.caller import NvmlSource
from gpuyard.agent.nvml.facts import Trouble
from gpuyard.agent.nvml.faults import NvmlFault
from gpuyard.runtime.embedded.measuring import Measuring
from tests.support import records
from tests.support.yards import ADMIN, TestYard, sh

NAME = "synthetic-h100x8"
UUIDS = [gpu.uuid for gpu in records.machine(NAME).machine.gpus]
FLEET = f"nodes: [{{name: n, gpus: 8, model: H100, uuids: {json.dumps(UUIDS)}}}]"


class MeasuredYard(TestYard):
    """A yard on the GPUs of a record, looked at when a test says so."""

    def __init__(self, folder: Path, *faults: NvmlFault) -> None:
        super().__init__(folder, FLEET)
        self.start()
        self.asked, watch = records.watched(NAME, *faults)
        self.measuring = self._plane.measuring = Measuring(self.world, watch)

    def look(self, at: float) -> None:
        self.asked.at = at
        self.measuring.look()

    def device(self, index: int) -> dict[str, Any]:
        (node,) = self.nodes(ADMIN)
        return dict(node["devices"][index])


@pytest.fixture
def measured(tmp_path: Path) -> Iterator[Any]:
    made: list[MeasuredYard] = []

    def make(*faults: NvmlFault) -> MeasuredYard:
        made.append(MeasuredYard(tmp_path / "state", *faults))
        return made[-1]

    yield make
    for yard in made:
        yard.stop()


def busy(gpu: int, percent: int) -> NvmlFault:
    return NvmlFault("set", gpu=gpu, set={"utilization": percent})


def test_a_listing_tells_use_memory_heat_and_power_of_every_gpu(measured):
    yard = measured(busy(1, 80))
    yard.look(0.0)
    known = yard.device(1)
    assert (known["utilization"], known["temperature"], known["power"], known["measured"]) == (0.8, 32, 70.0, "seen")
    assert (known["memory_used"], known["memory"]) == (600 << 20, 80 << 30)


def test_a_report_parts_productive_hours_from_idle_ones(measured):
    yard = measured(busy(0, 75), busy(1, 25))
    yard.put(sh("sleep 600", name="a", gpus=2))
    yard.until("a", "running")
    for at in (0.0, 10.0, 20.0):
        yard.look(at)
    yard.measuring.book()
    (line,) = yard.report(ADMIN, "user", 0.0)
    assert (line["productive_gpu_seconds"], line["idle_gpu_seconds"]) == (20.0, 20.0)
    assert yard.measures()["accounts"]["productive"] == 20.0
    assert yard.measures()["accounts"]["idle_allocated"] == 20.0


def test_time_of_which_nothing_is_known_is_neither_productive_nor_idle(measured):
    yard = measured(busy(0, 100))
    yard.put(sh("sleep 600", name="a", gpus=1))
    yard.until("a", "running")
    yard.look(0.0)
    yard.asked.trouble = Trouble("hung")
    yard.look(10.0)
    yard.asked.trouble = None
    yard.look(20.0)
    yard.measuring.book()
    (line,) = yard.report(ADMIN, "user", 0.0)
    assert (line["productive_gpu_seconds"], line["idle_gpu_seconds"]) == (10.0, 0.0)
    yard.look(20_000.0)  # nobody looked for hours
    yard.measuring.book()
    assert yard.report(ADMIN, "user", 0.0)[0]["productive_gpu_seconds"] == 10.0


def test_a_report_of_a_yard_without_sensors_claims_no_figure(tmp_path: Path):
    yard = TestYard(tmp_path / "state")
    yard.start()
    yard.put(sh("true", name="a", gpus=1))
    yard.until("a")
    (line,) = yard.report(ADMIN, "user", 0.0)
    assert "productive_gpu_seconds" not in line
    assert "utilization" not in yard.nodes(ADMIN)[0]["devices"][0]
    assert "gpu_metrics" not in yard.measures()
    yard.stop()


def test_metrics_carry_the_job_on_its_gpus_and_its_mean(measured):
    yard = measured(busy(0, 60))
    yard.put(sh("sleep 600", name="a", gpus=1))
    yard.until("a", "running")
    yard.look(0.0)
    yard.look(10.0)
    found = {family["name"]: family["series"] for family in yard.measures()["gpu_metrics"]}
    held = [(labels["gpu"], value) for labels, value in found["DCGM_FI_DEV_GPU_UTIL"] if labels["hpc_job"] == "a"]
    assert held == [("0", 60)]
    assert found["gpuyard_job_gpu_seconds_total"] == [({"hpc_job": "a"}, 10.0)]
    assert found["gpuyard_job_gpu_utilization_ratio"] == [({"hpc_job": "a"}, 0.6)]


def test_nothing_new_goes_on_a_gpu_that_is_lost_until_it_is_back(measured):
    yard = measured(NvmlFault("lost", at=10, until=20, gpu=3))
    yard.look(0.0)
    yard.look(10.0)
    lost = yard.device(3)
    assert (lost["health"], lost["measured"]) == ("sick", "lost")
    assert "lost" in lost["evidence"]
    told = [event["message"] for event in yard.events(ADMIN, 0, 1000) if event["kind"] == "health"]
    assert told == ["GPU 3 of n is sick (lost: GPU is lost)"]
    yard.put(sh("sleep 600", name="a", gpus=8))
    yard.until("a", "waiting")
    yard.look(20.0)
    yard.until("a", "running")
    assert yard.device(3)["health"] == "healthy"


@pytest.mark.parametrize("kind", ["hung", "died", "nonsense"])
def test_what_is_not_known_is_not_told_as_healthy(measured, kind):
    yard = measured()
    yard.look(0.0)
    yard.asked.trouble = Trouble(kind)
    yard.look(10.0)
    for index in range(8):
        device = yard.device(index)
        assert (device["health"], device["measured"]) == ("suspect", "unknown")
        assert "utilization" not in device
    yard.asked.trouble = None
    yard.look(20.0)
    assert {yard.device(index)["health"] for index in range(8)} == {"healthy"}


def test_a_machine_that_does_not_answer_from_the_first_look_on_is_unknown(measured):
    yard = measured()
    yard.asked.trouble = Trouble("hung")
    yard.look(0.0)
    assert yard.device(0)["health"] == "suspect"
    assert "does not answer" in yard.device(0)["evidence"]


def test_renumbering_moves_no_job_and_no_figure(measured):
    yard = measured(busy(0, 90), NvmlFault("renumber", at=10))
    yard.put(sh("sleep 600", name="a", gpus=1))
    yard.until("a", "running")
    yard.look(0.0)
    yard.look(10.0)
    assert [yard.device(index).get("utilization") for index in range(8)] == [0.9] + [0.0] * 7
    assert yard.device(0)["jobs"] == ["a"]


def test_a_yard_on_a_record_looks_by_itself(tmp_path: Path):
    source = NvmlSource(records.path(NAME))
    yard = TestYard(tmp_path / "state", FLEET, nvml=source, measure_every_s=0.05)
    yard.start()
    seen = -1
    while "utilization" not in yard.nodes(ADMIN)[0]["devices"][0]:
        yard.wait_events(seen, 0.05)
    yard.stop()
