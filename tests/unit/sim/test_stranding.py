"""The tables by which stranded GPUs are looked up, against FGD's definition written out."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gpuyard.brain.engine.nodes.columns import Columns, Held
from gpuyard.brain.engine.nodes.demand import DemandClass
from gpuyard.brain.engine.nodes.stranding import Gauge, look_at
from gpuyard.model.node import Gpu, Node
from gpuyard.model.resources import MILLI, WHOLE


def fleet(dice: random.Random) -> Columns:
    nodes = [
        Node(f"n{i}", model="AB"[i % 2], gpus=tuple(Gpu(g) for g in range(dice.choice([1, 2, 4, 8]))), cpu=64_000)
        for i in range(12)
    ]
    columns = Columns(nodes, ())
    for n, node in enumerate(columns.nodes):
        for gpu in node.gpus:
            share = dice.choice([0, 0, 250, 460, 810, 1000]) * MILLI
            if share:
                part = 0 if share == WHOLE else share
                columns.shift(Held(0, 0, n, (gpu.index,), part, (), share, dice.choice([0, 4000, 9000]), 0, False), 1)
    return columns


def classes(columns: Columns, dice: random.Random) -> list[DemandClass]:
    everywhere = np.ones(len(columns.nodes), dtype=bool)
    only_a = np.array([node.model == "A" for node in columns.nodes])
    kinds = [(0, 0), (1, 0), (2, 0), (8, 0), (0, 250), (0, 460), (0, 810)]
    return [
        DemandClass(gpus, milli * MILLI, dice.choice([0, 8000, 30000]),
                    dice.choice([everywhere, only_a]) if gpus or milli else ~everywhere,
                    count := float(dice.randint(1, 9)), count)
        for gpus, milli in kinds
    ]  # fmt: skip


def stranded(columns: Columns, demand: list[DemandClass], n: int, cpu: int, shares: list[int]) -> float:
    total, lost = sum(c.weight for c in demand), 0.0
    for c in demand:
        need, count = (c.share, 1) if c.share else (WHOLE, c.gpus)
        fits = [r for r in shares if r >= need]
        served = (c.gpus or c.share) and len(fits) >= count and cpu >= c.cpu and c.eligible[n]
        lost += c.weight / total * (sum(r for r in shares if r < need) if served else sum(shares))
    return lost / WHOLE


@pytest.mark.parametrize("seed", range(8))
def test_looked_up_stranding_is_fgds_own(seed: int):
    dice = random.Random(seed)
    columns = fleet(dice)
    demand = classes(columns, dice)
    gauge = Gauge(columns)
    gauge.know(demand)
    everyone = np.arange(len(columns.nodes))
    shares = [list(columns.shares[n][: len(node.gpus)]) for n, node in enumerate(columns.nodes)]
    expected = [stranded(columns, demand, n, int(columns.cpu[n]), shares[n]) for n in range(len(everyone))]
    assert gauge.now(everyone) == pytest.approx(expected)
    _after_one_more(columns, gauge, demand, shares)


def _after_one_more(columns: Columns, gauge: Gauge, demand: list[DemandClass], shares: list[list[int]]) -> None:
    everyone, left = np.arange(len(columns.nodes)), columns.cpu - 2000
    now, need = gauge.now(everyone), np.full(len(everyone), 300 * MILLI)
    whole = now - gauge.saved_by_whole(look_at(columns, everyone, 2000, 1.0), 1)
    seen = look_at(columns, everyone, 2000, 0.3)
    free_of = columns.shares_of(everyone)
    part = now - gauge.saved_by_share(seen, free_of, free_of - need, need)
    for n in range(len(everyone)):
        free = [g for g, r in enumerate(shares[n]) if r == WHOLE]
        if free:
            then = [0 if g == free[0] else r for g, r in enumerate(shares[n])]
            assert whole[n] == pytest.approx(stranded(columns, demand, n, int(left[n]), then))
        for g, r in enumerate(shares[n]):
            if r >= 300 * MILLI:
                then = [x - 300 * MILLI if h == g else x for h, x in enumerate(shares[n])]
                assert part[g, n] == pytest.approx(stranded(columns, demand, n, int(left[n]), then))


def test_scarcity_is_what_the_constrained_ask_of_a_model():
    columns = Columns([Node("a", model="A", gpus=(Gpu(0), Gpu(1))), Node("b", model="B", gpus=(Gpu(0), Gpu(1)))], ())
    anywhere, only_a = np.array([True, True]), np.array([True, False])
    gauge = Gauge(columns)
    gauge.know([DemandClass(1, 0, 0, anywhere, 3.0, 3.0), DemandClass(1, 0, 0, only_a, 1.0, 1.0)])
    assert list(gauge.scarcity) == [0.5, 0.0]
