"""Which GPUs inside a node: healthy ones first, as few islands as can be, the tightest; shares join what is shared."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.nodes.layout import nearness
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.placing import devices
from gpuyard.model.resources import WHOLE
from tests.support.moments import moment


def bits(*indices: int) -> int:
    return sum(1 << i for i in indices)


def parted(*islands: str) -> tuple[int, ...]:
    return tuple(bits(*map(int, island)) for island in islands)


@pytest.mark.parametrize(
    ("islands", "free", "suspect", "count", "taken"),
    [
        (("0123", "4567"), "01234567", "", 1, "0"),
        (("0123", "4567"), "01234567", "", 4, "0123"),
        (("0123", "4567"), "1234567", "", 1, "1"),  # the tighter island
        (("0123", "4567"), "123456", "", 2, "12"),  # as tight as the other
        (("0123", "4567"), "0123567", "", 3, "567"),
        (("0123", "4567"), "1234567", "", 4, "4567"),
        (("0123", "4567"), "0123567", "", 5, "01235"),  # the larger whole, then of the other
        (("0123", "4567"), "0124567", "", 5, "04567"),
        (("0123", "4567"), "012456", "", 4, "0124"),  # equals: the first
        (("0123", "4567"), "01234567", "", 8, "01234567"),
        (("01", "23", "456"), "0123456", "", 4, "0456"),
        (("01", "23", "456"), "012356", "", 5, "01235"),
        (("02", "13"), "0123", "", 2, "02"),
        (("0123", "4567"), "01234567", "0", 1, "1"),  # three are left there, which is tighter than four
        (("0123", "4567"), "01234567", "01", 4, "4567"),
        (("0123",), "0123", "0", 3, "123"),
        (("0123",), "0123", "01", 3, "023"),  # the healthy ones, then suspects
        (("0123", "4567"), "04567", "04", 5, "04567"),
        (("0123", "4567"), "0145", "0145", 2, "01"),
        (("0123", "4567"), "01345", "345", 3, "013"),  # a suspect alone in its island is the tighter
        (("0123", "4567"), "014567", "4567", 3, "014"),
        (("0",), "0", "", 1, "0"),
    ],
)
def test_whole_devices_come_from_few_islands_and_suspects_last(
    islands: tuple[str, ...], free: str, suspect: str, count: int, taken: str
):
    masks = parted(*islands)
    found = nearness.whole_devices((masks,), bits(*map(int, free)), bits(*map(int, suspect)), count)
    assert found == tuple(map(int, taken))


def fewest_islands(islands: tuple[int, ...], free: list[int], count: int) -> int:
    return min(sum(any(mask >> g & 1 for g in some) for mask in islands) for some in combinations(free, count))


@pytest.mark.parametrize("free", range(1, 128))
def test_no_other_choice_touches_fewer_islands(free: int):
    islands = parted("01", "235", "46")
    there = [g for g in range(7) if free >> g & 1]
    for count in range(1, len(there) + 1):
        taken = nearness.whole_devices((islands,), free, 0, count)
        assert len(taken) == count
        assert set(taken) <= set(there)
        assert fewest_islands(islands, list(taken), count) == fewest_islands(islands, there, count)


PCIE = (parted("0", "1", "2", "3", "4", "5", "6", "7"), parted("01", "23", "45", "67"), parted("0123", "4567"))
SWITCHED = (parted("01234567"), parted("01", "23", "45", "67"), parted("0123", "4567"))
PAIRS = (parted("02", "13", "46", "57"), parted("0123", "4567"))


@pytest.mark.parametrize(
    ("grades", "free", "count", "taken"),
    [
        (PCIE, "01234567", 2, "01"),
        (PCIE, "1234567", 2, "23"),  # behind one switch, not two that lie next to each other
        (PCIE, "0234567", 1, "0"),  # a pair stays whole
        (PCIE, "1235", 2, "23"),
        (PCIE, "0246", 2, "02"),  # no switch has two: one NUMA node
        (PCIE, "01234567", 4, "0123"),
        (PCIE, "0134567", 4, "4567"),  # a NUMA node that has them all
        (PCIE, "0145", 3, "014"),
        (PCIE, "0234567", 3, "023"),  # the NUMA node that has just three
        (PCIE, "134", 2, "13"),
        (PCIE, "01234567", 6, "014567"),
        (SWITCHED, "01234567", 2, "01"),
        (SWITCHED, "1234567", 2, "23"),
        (SWITCHED, "1234567", 4, "4567"),
        (SWITCHED, "023457", 3, "023"),
        (PAIRS, "01234567", 2, "02"),  # NVLink before anything else
        (PAIRS, "012357", 4, "0123"),  # two pairs of one NUMA node
        (PAIRS, "0157", 2, "57"),
        (PAIRS, "0156", 2, "01"),  # no link joins two: the tighter NUMA node, then the lower
    ],
)
def test_where_no_link_joins_them_devices_lie_behind_one_switch_else_in_one_numa_node(
    grades: tuple[tuple[int, ...], ...], free: str, count: int, taken: str
):
    found = nearness.whole_devices(grades, bits(*map(int, free)), 0, count)
    assert found == tuple(map(int, taken))


@pytest.mark.parametrize("grades", [PCIE, SWITCHED, PAIRS])
def test_whatever_is_near_to_what_so_many_free_devices_are_found_as_were_asked_for(grades):
    for free in range(1, 256):
        for count in range(1, free.bit_count() + 1):
            taken = nearness.whole_devices(grades, free, 0, count)
            assert len(taken) == len(set(taken)) == count
            assert all(free >> g & 1 for g in taken)


@pytest.mark.parametrize("free", range(1, 256))
def test_no_other_choice_touches_fewer_switches_where_one_holds_them(free: int):
    there = [g for g in range(8) if free >> g & 1]
    for count in range(1, len(there) + 1):
        for islands in PCIE[1:]:
            if fewest_islands(islands, there, count) == 1:
                taken = nearness.whole_devices(PCIE, free, 0, count)
                assert fewest_islands(islands, list(taken), count) == 1
                break


NODE = """
nodes:
  - {name: n, gpus: 8, gpu_memory: 40Gi, model: A100-SXM4-40GB, cpu: 8, memory: 64Gi,
     islands: [[0, 1, 2, 3], [4, 5, 6, 7]],
     HEALTH}
jobs: [{name: g, groups: [{name: g, tasks: 1, ASK}]}]
"""


def yard(ask: str, health: str = "labels: {}") -> Fleet:
    return Fleet(moment(NODE.replace("ASK", ask).replace("HEALTH", health)))


def share(fleet: Fleet, **amounts: float) -> None:
    """`share(fleet, g2=0.5)` has half of GPU 2 in use."""
    for name, part in amounts.items():
        fleet.columns.shift(Held(0, 0, 0, (int(name[1:]),), int(part * WHOLE) % WHOLE, (), 0, 0, 0, False), 1)


def picked(fleet: Fleet, island: int = -1) -> devices.Pick | None:
    return devices.pick(fleet.columns, fleet.jobs["g"].requests[0], 0, island)


@pytest.mark.parametrize(
    ("ask", "health", "used", "island", "found"),
    [
        ("fraction: 0.5", "", {}, -1, 0),
        ("fraction: 0.5", "", {"g3": 0.5}, -1, 3),
        ("fraction: 0.5", "", {"g3": 0.25, "g6": 0.5}, -1, 6),  # the tightest
        ("fraction: 0.5", "", {"g3": 0.5, "g6": 0.5}, -1, 3),
        ("fraction: 0.5", "", {"g3": 0.75}, -1, 0),  # the tightest island in which one is free
        ("fraction: 0.5", "", {"g0": 0.75}, -1, 1),
        ("fraction: 0.5", "", {"g3": 0.5}, 1, 4),  # not outside the island
        ("fraction: 0.5", "", {"g3": 0.25, "g6": 0.5}, 0, 3),
        ("fraction: 0.5", "health: {3: suspect}", {"g3": 0.5}, -1, 0),  # a free one before a suspect shared one
        ("fraction: 0.5", "health: {3: suspect}", {"g3": 0.5, "g6": 0.25}, -1, 6),
        ("fraction: 0.5", "health: {3: suspect}", {f"g{i}": 1.0 for i in (0, 1, 2, 4, 5, 6, 7)} | {"g3": 0.5}, -1, 3),
        ("fraction: 0.5", "health: {0: suspect}", {f"g{i}": 1.0 for i in range(1, 8)}, -1, 0),
        ("fraction: 0.5", "unhealthy: [3]", {"g3": 0.5}, -1, 0),
        ("fraction: 0.5", "", {f"g{i}": 0.75 for i in range(8)}, -1, None),
        ("gpu_memory: 10Gi", "", {"g5": 0.75}, -1, 5),
        ("gpu_memory: 11Gi", "", {"g5": 0.75}, -1, 4),
        ("gpu_memory: 41Gi", "", {}, -1, None),
        ("gpu_memory: 40Gi", "", {"g0": 1.0}, -1, 1),
    ],
)
def test_a_share_joins_the_fullest_shared_device_that_holds_it(
    ask: str, health: str, used: dict[str, float], island: int, found: int | None
):
    fleet = yard(ask, health or "labels: {}")
    share(fleet, **used)
    assert picked(fleet, island) == (None if found is None else ((found,), ()))


@pytest.mark.parametrize(
    ("ask", "used", "island", "found"),
    [
        ("gpus: 2", {"g0": 1.0, "g5": 1.0}, -1, (1, 2)),
        ("gpus: 4", {"g0": 1.0}, -1, (4, 5, 6, 7)),
        ("gpus: 4", {"g0": 1.0}, 0, None),
        ("gpus: 3", {"g0": 0.5}, 0, (1, 2, 3)),
        ("gpus: 2", {f"g{i}": 1.0 for i in range(7)}, -1, None),
        ("cpu: 1", {}, -1, ()),
    ],
)
def test_a_task_gets_its_devices_inside_its_island_or_none(
    ask: str, used: dict[str, float], island: int, found: tuple[int, ...] | None
):
    fleet = yard(ask)
    share(fleet, **used)
    assert picked(fleet, island) == (None if found is None else (found, ()))


@pytest.mark.parametrize(
    ("used", "gpus", "island"),
    [
        ({}, 4, 0),
        ({"g0": 1.0}, 4, 1),
        ({"g0": 1.0}, 3, 0),
        ({"g0": 1.0, "g5": 0.5, "g6": 1.0}, 2, 1),
        ({"g0": 1.0, "g4": 1.0}, 4, -1),
    ],
)
def test_a_gang_shares_the_tightest_island_that_holds_it(used: dict[str, float], gpus: int, island: int):
    fleet = yard("gpus: 1")
    share(fleet, **used)
    assert devices.island_for(fleet.columns, 0, gpus) == island


def test_an_island_with_a_suspect_holds_fewer_for_a_gang():
    fleet = yard("gpus: 1", "health: {1: suspect}")
    assert [devices.island_for(fleet.columns, 0, gpus) for gpus in (3, 4, 5)] == [0, 1, -1]


CUT = "mig: {1: [3g.20gb, 2g.10gb, 1g.5gb], 2: [3g.20gb, 3g.20gb], 5: [2g.10gb, 2g.10gb, 1g.5gb, 1g.5gb]}"


@pytest.mark.parametrize(
    ("ask", "more", "island", "found"),
    [
        ("mig: 3g.20gb", "", -1, ((2,), ("3g.20gb",))),  # two slices are left there, three on the other
        ("mig: 2g.10gb", "", -1, ((1,), ("2g.10gb",))),
        ("mig: 2g.10gb", "", 1, ((5,), ("2g.10gb",))),
        ("mig: {2g.10gb: 2}", "", -1, ((1, 5), ("2g.10gb", "2g.10gb"))),
        ("mig: {2g.10gb: 4}", "", -1, None),
        ("mig: {3g.20gb: 3}", "", -1, ((2, 2, 1), ("3g.20gb",) * 3)),
        ("mig: 3g.20gb", ", health: {2: suspect}", -1, ((1,), ("3g.20gb",))),
        ("mig: 3g.20gb", ", unhealthy: [2]", -1, ((1,), ("3g.20gb",))),
        ("mig: 3g.20gb", ", unhealthy: [1, 2]", -1, None),
        ("mig: 3g.20gb", "", 1, None),
    ],
)
def test_slices_come_from_the_device_with_the_fewest_left(ask: str, more: str, island: int, found: devices.Pick | None):
    assert picked(yard(ask, CUT + more), island) == found


def held(
    gpus: tuple[int, ...] = (), part: float = 0.0, mig: tuple[str, ...] = (), cpu: int = 0, memory: int = 0
) -> Held:
    return Held(0, 0, 0, gpus, int(part * WHOLE), mig, 0, cpu, memory, False)


@pytest.mark.parametrize(
    ("place", "free"),
    [
        (held((0, 3)), True),
        (held((0, 4)), False),
        (held((4,), 0.5), True),
        (held((4,), 0.6), False),
        (held((0,), cpu=8000), True),
        (held((0,), cpu=8001), False),
        (held((0,), memory=64 << 30), True),
        (held((0,), memory=(64 << 30) + 1), False),
        (held((2,), mig=("3g.20gb",)), True),
        (held((2, 2), mig=("3g.20gb",) * 2), True),
        (held((2, 2, 2), mig=("3g.20gb",) * 3), False),
        (held((2,), mig=("2g.10gb",)), False),
        (held((1, 2), mig=("1g.5gb", "3g.20gb")), True),
    ],
)
def test_a_place_that_was_left_stands_free_only_as_a_whole(place: Held, free: bool):
    fleet = yard("gpus: 1", CUT)
    share(fleet, g4=0.5)
    assert devices.stands_free(fleet.columns, place) is free


@pytest.mark.parametrize(("state", "free"), [("cordoned: true", True), ("closed: {drains: true}", False)])
def test_a_place_on_a_node_that_drains_is_not_free_again(state: str, free: bool):
    fleet = yard("gpus: 1", state)
    assert devices.stands_free(fleet.columns, held((0,))) is free
    assert np.all(fleet.columns.whole == 8)
