"""A node's record: whole after any look, and written again only for what somebody would decide by."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gpuyard.agent.gpu_node import alike, spec_of, status_of
from gpuyard.agent.nvml import record as records
from gpuyard.agent.nvml.facts import Trouble
from gpuyard.agent.watching import GpuView, MachineView
from gpuyard.kube.definitions.gpu_nodes import GpuNodeSpec, GpuNodeStatus

RECORDS = sorted((Path(__file__).resolve().parents[2] / "records").glob("*.json"))


def view_of(path: Path) -> MachineView:
    found = records.read(path)
    readings = {each.uuid: each for each in found.sample.gpus}
    gpus = tuple(GpuView(gpu, readings[gpu.uuid], "seen") for gpu in found.machine.gpus if gpu.uuid in readings)
    return MachineView(1.0, found.machine, gpus)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_every_recorded_machine_has_a_record_that_the_schema_takes(path: Path):
    view = view_of(path)
    spec, status = spec_of(view), status_of(view, 2.0)
    assert spec is not None
    assert len(spec.gpus) == len(view.gpus) > 0
    for value, shape in ((spec, GpuNodeSpec), (status, GpuNodeStatus)):
        assert msgspec.json.decode(msgspec.json.encode(value), type=shape) == value


def test_a_degree_or_a_minute_more_is_no_news_and_another_state_is():
    status = status_of(view_of(RECORDS[-1]), 2.0)

    def with_why(health: str, why: str) -> GpuNodeStatus:
        first = msgspec.structs.replace(status.gpus[0], health=health, why=why)
        return msgspec.structs.replace(status, gpus=[first, *status.gpus[1:]])

    assert alike(
        with_why("suspect", "slowed for 6 minutes; it has 91 °C"),
        with_why("suspect", "slowed for 7 minutes; it has 92.5 °C"),
    )
    assert not alike(with_why("suspect", "slowed for 6 minutes"), with_why("sick", "slowed for 6 minutes"))


def test_a_machine_that_nothing_is_known_of_is_told_so_and_keeps_its_inventory():
    trouble = MachineView(1.0, trouble=Trouble("failed", "the driver does not answer"))
    assert spec_of(trouble) is None
    told = status_of(trouble, 2.0)
    assert (told.conditions[0].status, told.healthy) == ("False", 0)
    assert "does not answer" in told.conditions[0].message
