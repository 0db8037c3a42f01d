"""What was free when nothing more fitted: more of anything on any node is noticed, less is not."""

from __future__ import annotations

import pytest

from gpuyard.brain.engine.nodes.free_before import MANY, FreeBefore
from gpuyard.brain.engine.picture.fleet import Fleet
from tests.support.moments import moment

YARD = """
nodes: [{{name: n, times: {nodes}, gpus: 2, cpu: 8, memory: 64Gi}}]
jobs:
  - {{name: gpu, gpus: 1, at: "n0:0"}}
  - {{name: cpu, gpus: 0, cpu: 2, at: "n1"}}
  - {{name: memory, gpus: 0, memory: 8Gi, at: "n0"}}
"""


@pytest.mark.parametrize("nodes", [2, MANY + 2])
@pytest.mark.parametrize("name", ["gpu", "cpu", "memory"])
def test_more_of_anything_is_noticed_until_it_is_noted(name: str, nodes: int):
    fleet = Fleet(moment(YARD.format(nodes=nodes)))
    columns, (held,) = fleet.columns, fleet.jobs[name].held
    before = FreeBefore(columns)
    assert not before.grew()
    columns.shift(held, -1)
    assert before.grew()
    before.note()
    assert not before.grew()
    columns.shift(held, 1)
    assert not before.grew()
    before.note()
    columns.shift_all((sign, held._replace(node=n)) for n in range(nodes) for sign in (1, -1))
    assert not before.grew()
    columns.shift(held, -1)
    assert before.grew()


def test_more_slices_are_noticed():
    text = """
nodes: [{name: n, gpus: 2, model: A100-SXM4-40GB, mig: {0: [2g.10gb, 2g.10gb]}}]
jobs: [{name: s, mig: 2g.10gb, at: [{node: n, gpus: [0], mig: [2g.10gb]}]}]
"""
    fleet = Fleet(moment(text))
    before, (held,) = FreeBefore(fleet.columns), fleet.jobs["s"].held
    fleet.columns.shift(held, -1)
    assert before.grew()
    before.note()
    assert not before.grew()
