"""Which models a job tries together, and which one after the other (rule 11)."""

from __future__ import annotations

from gpuyard.brain.engine.picture.fleet import Fleet
from tests.support.moments import moment

TWINS = """
nodes:
  - {name: old, gpus: 4, model: V100, architecture: volta, gpu_memory: 32Gi}
  - {name: one, gpus: 4, model: A100-PCIE, architecture: ampere, gpu_memory: 80Gi}
  - {name: two, gpus: 4, model: A100-SXM, architecture: ampere, gpu_memory: 80Gi}
jobs: [{name: w, class: batch, gpus: 1}]
"""


def tiers(alone: bool) -> list[set[str]]:
    fleet = Fleet(moment(TWINS))
    found = fleet.shapes.tiers(fleet.jobs["w"].request, alone)
    return [{fleet.columns.models[model] for model in tier} for tier in found]


def test_a_single_task_of_a_class_that_goes_to_older_models_takes_those_of_one_age_as_one():
    assert tiers(alone=True) == [{"V100"}, {"A100-PCIE", "A100-SXM"}]


def test_several_tasks_of_it_need_one_model_so_models_of_one_age_are_tried_one_after_the_other():
    assert tiers(alone=False) == [{"V100"}, {"A100-PCIE"}, {"A100-SXM"}]
