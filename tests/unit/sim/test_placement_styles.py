"""Pack or spread: services that fall below their minimum count, not jobs that a failure touched."""

from __future__ import annotations

from typing import Any

import pytest

from gpuyard import files
from gpuyard.cli.deciding import placement_styles
from gpuyard.cli.deciding.placement_styles import Spread, StyleFigures
from gpuyard.model.actions import Plan, Start
from gpuyard.model.job import Placement
from gpuyard.model.node import Gpu, Health, Node
from gpuyard.model.reasons import Code, Reason
from gpuyard.worlds.sim.fleets import Contention
from gpuyard.worlds.sim.measuring import Outages
from gpuyard.worlds.sim.traces.trace import Arrival, Trace
from gpuyard.worlds.sim.world import Rules, SimWorld
from tests.support.hearing import Heard

WHY = Reason(Code.FITS)


def served(*nodes: str, least: int = 3, **keys: Any) -> tuple[SimWorld, Outages]:
    """One service with a replica on each of the nodes."""
    outages = Outages(Heard())
    world = SimWorld(Trace("none", ()), Rules(), outages)
    asked = {"name": "api", "class": "inference", "gpus": 1, "tasks": len(nodes), "min": least, **keys}
    world.submit(Arrival(0.0, files.read_submission(asked, 0.0, "job").job, None, 0.0))
    places = tuple(Placement(node, (i,), task=i) for i, node in enumerate(nodes))
    world.apply(Plan((Start("api", places, WHY),)), 1)
    return world, outages


def test_a_service_that_keeps_its_minimum_is_hit_and_does_not_fall():
    world, outages = served("n0", "n1", "n2", "n3")
    world.lose_node("n1")
    figures = outages.classes["inference"]
    assert (figures.jobs, figures.hit, figures.fell, figures.lost_gpu_s) == (1, 1, 0, 0.0)


def test_a_packed_service_falls_with_its_node_and_is_down_until_it_runs_again():
    world, outages = served("n0", "n0", "n0", "n0")
    world.lose_node("n0", lambda _: 5.0)
    world._now = 100.0
    places = tuple(Placement("n1", (i,), task=i) for i in range(4))
    world.apply(Plan((Start("api", places, WHY),)), 2)
    figures = outages.classes["inference"]
    assert (figures.hit, figures.fell, figures.lost_gpu_s) == (1, 1, 4 * (5.0 + 100.0))


def node(name: str, rack: str, slow: bool = False) -> Node:
    return Node(
        name, gpus=(Gpu(0, health=Health.SUSPECT if slow else Health.HEALTHY), Gpu(1)), domains=(("rack", rack),)
    )


@pytest.mark.parametrize(
    ("places", "others", "talks", "factor"),
    [
        ([("a", 1)], {}, True, 1.0),
        ([("a", 1)], {"a": 3}, True, 1.3),
        ([("a", 1), ("b", 1)], {"a": 1, "b": 2}, True, 1.2 + 0.01),  # as slow as its slowest member
        ([("a", 1), ("c", 1)], {}, True, 1.0 + 0.01 + 0.02),
        ([("a", 1), ("c", 1)], {}, False, 1.0),  # replicas do not wait for each other
        ([("s", 0)], {}, True, 1.5),
        ([("s", 1)], {}, True, 1.0),
    ],
)
def test_the_contention_model_is_what_it_says(places: Any, others: dict[str, int], talks: bool, factor: float):
    model = Contention(neighbour=0.1, slow_gpu=0.5, nodes=0.01, racks=0.02)
    nodes = {
        each.name: each for each in (node("a", "r0"), node("b", "r0"), node("c", "r1"), node("s", "r0", slow=True))
    }
    stood = [Placement(name, (gpu,)) for name, gpu in places]
    assert model.factor(stood, nodes, others, talks) == pytest.approx(factor)


def figures(style: str, fell: tuple[float, float, float], lost: float = 0.0, wait: float = 1.0) -> StyleFigures:
    flat = [Spread(value, value, value) for value in (4.0, lost, wait, 1.0)]
    return StyleFigures(style, flat[0], Spread(*fell), *flat[1:])


def test_sixteen_services_that_fall_when_packed_and_are_only_touched_when_spread_are_to_be_spread():
    told = placement_styles.recommend("inference", figures("pack", (2, 2, 2), 90), figures("spread", (0, 0, 0)))
    assert told.startswith("inference: spread (2 against 0 fall below their minimum; 90 against 0 GPU-seconds lost")
    assert "agree" not in told


def test_seeds_that_do_not_agree_are_told():
    told = placement_styles.recommend("batch", figures("pack", (2, 0, 4), 9), figures("spread", (1, 0, 3), 8, wait=9))
    assert told.startswith("batch: pack (")
    assert told.endswith("the seeds do not all agree, try more)")
