"""The shape grammar of `yard free`."""

from __future__ import annotations

import pytest

from gpuyard.cli.console import shapes
from gpuyard.cli.console.shapes import GpuShape
from gpuyard.model.errors import Refused


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("8", GpuShape(8)),
        ("H100:8", GpuShape(8, 1, "H100")),
        ("8x4", GpuShape(8, 4)),
        ("H100:8x4", GpuShape(8, 4, "H100")),
        ("H100-SXM5-80GB:2X3", GpuShape(2, 3, "H100-SXM5-80GB")),
        ("8×4", GpuShape(8, 4)),
    ],
)
def test_a_shape_may_leave_out_the_model_and_the_tasks(text: str, shape: GpuShape):
    assert shapes.parse(text) == shape


@pytest.mark.parametrize("text", ["", "x4", "8x", "H100", "H100:", "0", "8x0", "-8", "8.5", "8 x 4", "8x4x2"])
def test_anything_else_is_refused_with_the_grammar(text: str):
    with pytest.raises(Refused, match="MODEL:GPUSxTASKS"):
        shapes.parse(text)


@pytest.mark.parametrize("text", ["8", "H100:8", "8x4", "H100:8x4"])
def test_a_shape_prints_as_it_was_typed(text: str):
    assert str(shapes.parse(text)) == text


def test_a_shape_becomes_one_gang_that_comes_whole():
    group = shapes.parse("8x4").group("rack")
    assert (group.tasks, group.min, group.request.gpus, group.topology.required) == (4, 4, 8, "rack")
