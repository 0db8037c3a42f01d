"""The table of GPU models: found by prefix, by the maker's own names, and by the size in the name."""

from __future__ import annotations

import pytest

from gpuyard.files.data.gpu_models import GPU_MODELS, architecture_of, memory_of
from gpuyard.model.node import ARCHITECTURES

GIB = 1 << 30


@pytest.mark.parametrize(
    ("model", "gib", "architecture"),
    [
        ("V100-SXM2-32GB", 32, "volta"),
        ("Tesla-V100-SXM2-16GB", 16, "volta"),
        ("T4", 16, "turing"),
        ("P100-PCIE-16GB", 16, "pascal"),
        ("A100", 40, "ampere"),
        ("NVIDIA-A100-SXM4-80GB", 80, "ampere"),
        ("NVIDIA A100-SXM4-40GB", 40, "ampere"),
        ("A10", 24, "ampere"),
        ("L4", 24, "ada"),
        ("L40S", 48, "ada"),
        ("H100-SXM5-80GB", 80, "hopper"),
        ("H100-NVL", 94, "hopper"),
        ("NVIDIA-H100-80GB-HBM3", 80, "hopper"),
        ("H200", 141, "hopper"),
        ("B200", 180, "blackwell"),
        ("GB200", 186, "blackwell"),
        ("MI300X", 0, ""),
        ("A1000", 0, ""),
        ("", 0, ""),
    ],
)
def test_memory_and_architecture_follow_from_the_model(model: str, gib: int, architecture: str):
    assert (memory_of(model), architecture_of(model)) == (gib * GIB, architecture)


def test_every_architecture_in_the_table_has_its_place_in_time():
    assert {model.architecture for model in GPU_MODELS.values()} <= set(ARCHITECTURES)
