"""What a job would be without something that it asks for: the question behind a reason."""

from __future__ import annotations

from dataclasses import replace

from gpuyard.brain.engine.explaining import rungs
from gpuyard.model.job import Bundle, TaskGroup
from gpuyard.model.resources import Request


def test_without_cores_and_memory_every_group_asks_for_devices_alone():
    bare = Request(gpus=2)
    inner = TaskGroup("in", request=bare)
    asked = replace(inner, request=replace(bare, cpu=4000, memory=1 << 30, extras=(("rdma/hca", 1),)))
    nested = Bundle("nested", (asked,), min_groups=1)
    found = rungs._without_cpu(Bundle("all", (nested, asked), min_groups=2))
    assert found == Bundle("all", (replace(nested, groups=(inner,)), inner), min_groups=2)
