"""What is said where free GPUs do not lie in as few NUMA nodes as a kubelet insists on (rule 24)."""

from __future__ import annotations

import pytest

from gpuyard.brain.foresee import outlook
from gpuyard.model.reasons import Code
from tests.support.moments import moment

PAIRS = """
nodes: [{name: n0, gpus: 6, numa: [[0, 1], [2, 3], [4, 5]], alignment: POLICY}]
busy: {n0: 0+2+4}
jobs: [{name: w, gpus: GPUS}]
"""


@pytest.mark.parametrize(
    ("policy", "gpus", "said"),
    [
        ("restricted", 2, "no node has 2 free GPUs in one NUMA node: n0 has 3 free, 1 of them there"),
        ("restricted", 3, "no node has 3 free GPUs in 2 NUMA nodes: n0 has 3 free, 2 of them there"),
        ("single-numa-node", 2, "no node has 2 free GPUs in one NUMA node: n0 has 3 free, 1 of them there"),
        ("single-numa-node", 3, "no node has 3 GPUs in one NUMA node: n0 has 6, 2 of them there"),
    ],
)
def test_a_task_is_told_in_how_many_numa_nodes_it_would_have_to_lie(policy: str, gpus: int, said: str):
    (told,) = outlook(moment(PAIRS.replace("POLICY", policy).replace("GPUS", str(gpus)))).waiting
    assert told.reason.code is Code.NUMA_UNMET
    where = said.partition(" in ")[2].partition(":")[0]
    assert told.reason.message == f"w needs {gpus} GPUs in {where} (the kubelet's policy is {policy}); {said}"
