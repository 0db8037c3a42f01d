"""What is free where: every column is what counting device by device says, after each change and back again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpuyard.brain.engine.nodes.columns import Columns, Held, Region, closed, sick, within
from gpuyard.brain.engine.nodes.demand import DemandClass
from gpuyard.brain.engine.nodes.touch_log import NOT_FAR, TouchLog
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.model.events import GpuHealthChanged, TasksEnded, TasksRunning
from gpuyard.model.job import Placement
from gpuyard.model.node import CORDONED, Health, Node
from gpuyard.model.resources import UNLIMITED, WHOLE
from tests.support.by_hand import Machine
from tests.support.moments import moment

YARD = """
topology: [rack]
nodes:
  - {name: a, gpus: 6, cpu: 64, memory: 512Gi, islands: [[0, 2, 4], [1, 3, 5]], domains: {rack: r1}}
  - {name: b, gpus: 4, cpu: 32, memory: 256Gi, health: {3: suspect, 0: suspect}, unhealthy: [1], domains: {rack: r0}}
  - {name: c, gpus: 3, model: A100-SXM4-40GB, mig: {0: [3g.20gb, 2g.10gb, 2g.10gb], 2: [1g.5gb]}, unhealthy: [2],
     domains: {rack: r1}}
  - {name: d, cpu: 8}
jobs:
  - {name: r0, gpus: 2, cpu: 10, memory: 40Gi, at: "a:0+1"}
  - {name: r1, fraction: 0.5, cpu: 3, at: "a:2"}
  - {name: r2, fraction: 0.3, at: "a:2"}
  - {name: r3, fraction: 0.25, cpu: 1, at: "b:0"}
  - {name: r4, gpus: 1, memory: 9Gi, at: "b:1"}
  - {name: r5, gpus: 1, at: "b:2"}
  - {name: r6, mig: 2g.10gb, at: [{node: c, gpus: [0], mig: [2g.10gb]}]}
  - {name: r7, mig: 1g.5gb, at: [{node: c, gpus: [2], mig: [1g.5gb]}]}
  - {name: r8, gpus: 1, at: "c:1"}
  - {name: r9, cpu: 5, memory: 20Gi, at: d}
"""


def counted(machine: Machine, columns: Columns) -> dict[str, object]:
    """Everything a column says of one node, counted by hand."""
    gpus, islands = machine.node.gpus, machine.islands()
    width, shares = columns.width, machine.shares()
    inside = sorted(machine.whole(island=island) for island in islands)
    touched = [any(g in h.gpus for h in machine.held) for g in range(len(gpus))]
    free = [share == WHOLE for share in shares]
    return {
        "shares": shares + [0] * (width - len(shares)),
        "idle": sum(shares),
        "whole": machine.whole(),
        "healthy": machine.whole(healthy=True),
        "island": max([machine.whole(island=i) for i in islands], default=0),
        "island_healthy": max([machine.whole(healthy=True, island=i) for i in islands], default=0),
        "tightest": [min([n for n in inside if n >= k], default=machine.whole()) for k in range(width + 1)],
        "trusted": [int(not (i < len(gpus) and _doubtful(machine.node, i))) for i in range(width)],
        "opened": sum(touched),
        "busy": sum(1 << g for g, there in enumerate(touched) if there),
        "free_mask": sum(1 << g for g, whole in enumerate(free) if whole),
        "cpu": machine.cpu(),
        "memory": machine.memory(),
        **{f"slices {profile}": machine.slices(profile) for profile in columns.profiles},
    }


def _doubtful(node: Node, g: int) -> bool:
    return node.gpus[g].health is Health.SUSPECT and node.gpus[g].slices is None


def kept(columns: Columns, n: int) -> dict[str, object]:
    """The same, as the columns have it."""
    arrays = ("shares", "idle", "whole", "healthy", "island", "island_healthy", "tightest", "trusted", "opened",
              "cpu", "memory")  # fmt: skip
    return {
        **{name: getattr(columns, name)[n].tolist() for name in arrays},
        "busy": columns.busy[n],
        "free_mask": columns.free_mask[n],
        **{f"slices {profile}": int(columns.slices_of(profile)[n]) for profile in columns.profiles},
    }


def agree(fleet: Fleet, held: list[Held], nodes: list[Node] | None = None) -> None:
    columns = fleet.columns
    for n, node in enumerate(nodes or columns.nodes):
        assert kept(columns, n) == counted(Machine(node, tuple(h for h in held if h.node == n)), columns)
    assert columns.idle_total == sum(columns.idle.tolist())


def everything_held(fleet: Fleet) -> list[Held]:
    return [held for row in fleet.jobs.values() for held in row.held]


def test_columns_are_what_counting_says_whoever_goes_and_comes_back():
    fleet = Fleet(moment(YARD))
    held = everything_held(fleet)
    agree(fleet, held)
    for each in held:
        fleet.columns.shift(each, -1)
        agree(fleet, [other for other in held if other is not each])
        fleet.columns.shift(each, 1)
        agree(fleet, held)
    for i, each in enumerate(held):
        fleet.columns.shift(each, -1)
        agree(fleet, held[i + 1 :])


def test_all_at_once_is_one_after_the_other():
    fleet = Fleet(moment(YARD))
    held = everything_held(fleet)
    before = fleet.columns.version
    fleet.columns.shift_all((-1, each) for each in held[1:])
    agree(fleet, held[:1])
    fleet.columns.shift_all([(1, held[1]), (-1, held[0])])
    agree(fleet, held[1:2])
    fleet.columns.shift(held[1], -1)
    fleet.columns.shift_all((1, each) for each in held)
    agree(fleet, held)
    assert fleet.columns.touched.since(before) == {0, 1, 2, 3}
    at = fleet.columns.version
    fleet.columns.shift_all([(1, held[0])])
    assert fleet.columns.touched.since(at) == {held[0].node}


@pytest.mark.parametrize("n", range(4))
@pytest.mark.parametrize("health", [Health.HEALTHY, Health.SICK, Health.SUSPECT])
def test_a_node_in_another_condition_is_counted_anew(n: int, health: Health):
    fleet = Fleet(moment(YARD))
    old = fleet.columns.nodes[n]
    gpus = tuple(replace(gpu, health=health) if gpu.index % 2 == 0 else gpu for gpu in old.gpus)
    node = replace(old, gpus=gpus, cpu=77_000, memory=1 << 40, taken=replace(old.taken, cpu=2000, memory=1 << 30))
    fleet.columns.change(n, node)
    agree(fleet, everything_held(fleet))
    assert fleet.columns.cpu_width == 77_000
    sound = {i for i, each in enumerate(fleet.columns.nodes) if not all(g.usable for g in each.gpus)}
    assert fleet.columns.barred == sound
    assert fleet.columns.any_suspect == any(g.health is Health.SUSPECT and g.slices is None
                                            for each in fleet.columns.nodes for g in each.gpus)  # fmt: skip


def test_sick_devices_can_be_counted_as_sound_for_a_while():
    fleet = Fleet(moment(YARD))
    held, columns = everything_held(fleet), fleet.columns
    whole = [replace(node, gpus=tuple(replace(g, health=Health.HEALTHY) if g.sick and g.slices is None else g
                                      for g in node.gpus)) for node in columns.nodes]  # fmt: skip
    free = [sum(Machine(node, tuple(h for h in held if h.node == n)).shares()) for n, node in enumerate(whole)]
    assert columns.idle_with(sick).tolist() == free
    assert columns.idle_with(closed).tolist() == columns.idle.tolist()
    columns.pretend(sick, usable=True)
    agree(fleet, held, whole)
    columns.pretend(sick, usable=False)
    agree(fleet, held)


def test_a_closed_device_is_not_a_sick_one():
    fleet = Fleet(moment("nodes: [{name: n, gpus: 2}]"))
    gpu = fleet.columns.nodes[0].gpus[0]
    ill, shut = replace(gpu, health=Health.SICK), replace(gpu, closed=CORDONED)
    assert [sick(g) for g in (gpu, ill, shut, replace(ill, closed=CORDONED))] == [False, True, False, False]
    assert [closed(g) for g in (gpu, ill, shut, replace(ill, closed=CORDONED))] == [False, False, True, True]


def test_nodes_stand_by_rack_then_name_and_a_rack_is_one_slice():
    columns = Fleet(moment(YARD)).columns
    assert [node.name for node in columns.nodes] == ["d", "b", "a", "c"]
    level = columns.level("rack")
    assert (level.names, level.known.tolist()) == (["", "r0", "r1"], [False, True, True])
    assert [level.region(i) for i in range(3)] == [Region(0, 1), Region(1, 2), Region(2, 4)]
    assert level.domain.tolist() == [0, 1, 2, 2]
    assert columns.everywhere == Region(0, 4, -1)
    assert columns.islands == [(), (0b1111,), (0b10101, 0b101010), (0b111,)]


@pytest.mark.parametrize(
    ("inner", "outer", "found"),
    [
        (Region(2, 4), Region(0, 8), Region(2, 4)),
        (Region(0, 8), Region(2, 4), Region(2, 4)),
        (Region(0, 2), Region(4, 6), Region(4, 4)),
        (Region(4, 6), Region(0, 2), Region(4, 4)),
        (Region(3, 4, 0), Region(0, 8), Region(3, 4, 0)),
        (Region(0, 8), Region(3, 4, 0), Region(3, 4, 0)),
        (Region(3, 4, 1), Region(3, 4, 0), Region(3, 4, 1)),
    ],
)
def test_the_common_part_of_two_domains_is_the_inner_one_or_nothing(inner: Region, outer: Region, found: Region):
    assert within(inner, outer) == found


def test_what_was_measured_while_sick_gpus_counted_as_sound_is_measured_again_afterwards():
    fleet = Fleet(moment("nodes: [{name: n, gpus: 4, unhealthy: [3]}, {name: m, gpus: 2}]"))
    gauge, everyone = fleet.shapes.gauge, np.arange(2)
    everywhere = np.ones(2, dtype=bool)
    gauge.know([DemandClass(gpus, 0, 0, everywhere, 1.0, 1.0) for gpus in (2, 4)])
    assert gauge.now(everyone).tolist() == [1.0, 1.5]
    fleet.columns.pretend(sick, usable=True)
    assert gauge.now(everyone).tolist() == [1.0, 0.0]
    fleet.columns.pretend(sick, usable=False)
    assert gauge.now(everyone).tolist() == [1.0, 1.5]


def test_a_log_that_was_cut_short_still_tells_exactly_who_was_touched_since(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gpuyard.brain.engine.nodes.touch_log.LONG", 4)
    touched = TouchLog(4)
    touched.note(1)
    for _ in range(7):
        touched.note(2)
    touched.forget()  # eight changes are not too many
    touched.note_all([2, 3])
    touched.forget()  # ten are: the last four are kept
    assert touched.version == 10
    assert [touched.since(version) for version in (0, 1, 7, 8, 10)] == [{1, 2, 3}, {2, 3}, {2, 3}, {2, 3}, set()]
    assert sorted(touched.index_since(1).tolist()) == [2, 3]


@pytest.mark.parametrize("behind", [1, 5, NOT_FAR, NOT_FAR + 1, NOT_FAR + 9])
def test_who_is_far_behind_is_told_the_same_as_who_is_not(behind: int):
    touched, which = TouchLog(8), np.array([True, True, False, True, True, False, True, True])
    noted = [n * 5 % 7 for n in range(NOT_FAR + 9)]
    for n in noted:
        touched.note(n)
    since = touched.version - behind
    expected = {n for n in noted[-behind:] if which[n]}
    found = touched.among(since, which)
    assert set(found.tolist()) == expected
    assert len(found) == len(expected)
    assert touched.since(since) == set(noted[-behind:])


def test_widths_are_never_nothing():
    without = Fleet(moment("nodes: [{name: n}]")).columns
    assert (without.width, without.breadth, without.cpu_width) == (0, 1, 1)
    assert without.nodes[0].cpu == UNLIMITED
    one = Fleet(moment("nodes: [{name: n, gpus: 1, cpu: 3}, {name: m, gpus: 1}]")).columns
    assert (one.width, one.breadth, one.cpu_width) == (1, 1, 3000)


def test_islands_stand_in_the_order_of_their_first_gpus_also_where_they_are_woven():
    (node,) = moment("nodes: [{name: n0, gpus: 4, islands: [[1, 2], [0, 3]]}]").nodes
    assert Columns([node], ()).islands[0] == (0b1001, 0b0110)


def test_a_device_that_two_are_told_to_hold_takes_nothing_from_the_others():
    """A world may see that, as where somebody bound pods beside us: what is free is what nobody holds."""
    yard = "nodes: [{name: n, gpus: 2}]\njobs: [{name: a, gpus: 1, at: 'n:0'}, {name: b, gpus: 1}]"
    fleet = Fleet(moment(yard))
    twice = Placement("n", (0,), uid="b")
    fleet.apply([TasksRunning("b", (twice,), 0.0)])
    columns = fleet.columns
    assert columns.shares.tolist() == [[0, WHOLE]]
    assert columns.idle_total == columns.idle[0] == WHOLE
    fleet.apply([GpuHealthChanged("n", 0, Health.SICK)])
    assert columns.idle_total == WHOLE
    fleet.apply([GpuHealthChanged("n", 0, Health.HEALTHY), TasksEnded("b", (twice,))])
    assert columns.shares.tolist() == [[0, WHOLE]]
    fleet.apply([TasksEnded("a", fleet.jobs["a"].placements)])
    assert columns.shares.tolist() == [[WHOLE, WHOLE]]
    assert columns.idle_total == 2 * WHOLE
