"""Which domain and which nodes, in numbers: sums of room, the fewest places, levels with a choice, members together."""

from __future__ import annotations

import numpy as np
import pytest

from gpuyard.brain.engine.nodes.columns import Region, within
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.engine.placing import fragmentation, gang, topology
from gpuyard.brain.engine.placing.topology import GroupWish
from tests.support.moments import moment

RACKS = """
topology: [zone, rack]
nodes:
  - {name: n0, gpus: 8, domains: {zone: z0, rack: r0}, islands: [[0, 1, 2, 3], [4, 5, 6, 7]]}
  - {name: n1, gpus: 8, domains: {zone: z0, rack: r0}}
  - {name: n2, gpus: 8, domains: {zone: z0, rack: r1}}
  - {name: n3, gpus: 8, domains: {zone: z1, rack: r2}}
  - {name: n4, gpus: 8, domains: {zone: z1}}
jobs: [JOBS]
"""


def draft_of(jobs: str = "") -> Draft:
    return Draft(Fleet(moment(RACKS.replace("JOBS", jobs))), Memory(), 0.0)


def names(draft: Draft, region: Region | None) -> list[str]:
    assert region is not None
    return sorted(node.name for node in draft.fleet.columns.nodes[region.start : region.stop])


# --- sums and the fewest places -------------------------------------------------------------------


def test_room_is_summed_by_domain_inside_a_region_however_it_is_cut():
    columns = draft_of().fleet.columns
    order = [node.name for node in columns.nodes]
    assert order == ["n0", "n1", "n2", "n4", "n3"]
    room = np.array([1, 2, 4, 8, 16])
    rack, zone = columns.level("rack"), columns.level("zone")
    assert [x.tolist() if hasattr(x, "tolist") else x for x in topology._sums(zone, room, Region(0, 5))] == [0, [7, 24]]
    first, sums = topology._sums(rack, room, Region(0, 5))
    assert (first, sums.tolist()) == (0, [3, 4, 8, 16])
    first, sums = topology._sums(rack, room[1:4], Region(1, 4))
    assert (first, sums.tolist()) == (0, [2, 4, 8])
    first, sums = topology._sums(rack, room[2:3], Region(2, 3))
    assert (first, sums.tolist()) == (1, [4])
    first, sums = topology._sums(rack, room[2:2], Region(2, 2))
    assert (first, sums.tolist()) == (0, [])


@pytest.mark.parametrize(
    ("room", "count", "chosen"),
    [
        ([2, 5, 3], 5, [(1, 5)]),
        ([2, 5, 3], 6, [(1, 5), (0, 1)]),
        ([2, 5, 3], 7, [(1, 5), (0, 2)]),
        ([2, 5, 3], 8, [(1, 5), (2, 3)]),
        ([2, 5, 3], 9, [(1, 5), (2, 3), (0, 1)]),
        ([2, 5, 3], 10, [(1, 5), (2, 3), (0, 2)]),
        ([4, 4, 4], 5, [(0, 4), (1, 1)]),
        ([1, 1, 1], 1, [(0, 1)]),
    ],
)
def test_as_few_places_as_can_be_and_the_tightest_for_the_rest(
    room: list[int], count: int, chosen: list[tuple[int, int]]
):
    assert topology._fewest(np.array(room), count) == chosen


def test_those_are_filled_first_that_an_order_names_first():
    assert topology._fewest(np.array([3, 3, 3]), 4, np.array([2, 0, 1])) == [(2, 3), (0, 1)]


def test_levels_to_choose_by_are_those_that_the_region_has_several_domains_of_from_the_preferred_one():
    draft = draft_of("{name: j, gpus: 1}")
    columns, wish = draft.fleet.columns, GroupWish(draft.fleet.jobs["j"], 0, 1, 1)
    assert list(topology._with_a_choice(columns, Region(0, 5), wish)) == ["zone", "rack", "node"]
    assert list(topology._with_a_choice(columns, Region(0, 3), wish)) == ["rack", "node"]
    assert list(topology._with_a_choice(columns, Region(0, 2), wish)) == ["node"]
    assert list(topology._with_a_choice(columns, Region(1, 3), wish)) == ["rack", "node"]
    assert list(topology._with_a_choice(columns, Region(0, 1), wish)) == ["node"]
    assert list(topology._with_a_choice(columns, Region(0, 5), wish._replace(preferred="rack"))) == ["rack", "node"]


@pytest.mark.parametrize(
    ("level", "than", "narrower"),
    [
        ("rack", "", True),
        ("rack", "zone", True),
        ("zone", "rack", False),
        ("rack", "rack", False),
        ("node", "rack", True),
        ("nvlink", "node", True),
        ("hall", "", False),
    ],
)
def test_a_level_is_narrower_than_those_around_it(level: str, than: str, narrower: bool):
    assert topology._narrower(draft_of().fleet.columns, level, than) is narrower


def test_of_several_levels_the_innermost_known_one_counts():
    columns = draft_of().fleet.columns
    assert gang.innermost(columns, ["", ""]) == ""
    assert gang.innermost(columns, ["zone", "", "rack"]) == "rack"
    assert gang.innermost(columns, ["nvlink", "zone"]) == "nvlink"
    assert gang.innermost(columns, ["hall", "zone"]) == "zone"
    assert gang.innermost(columns, ["hall"]) == ""


@pytest.mark.parametrize(
    ("inner", "outer", "both"),
    [
        (Region(1, 3), Region(0, 5), Region(1, 3)),
        (Region(0, 5), Region(1, 3), Region(1, 3)),
        (Region(0, 2), Region(3, 5), Region(3, 3)),
        (Region(3, 5), Region(0, 2), Region(3, 3)),
        (Region(1, 2, 0), Region(0, 5), Region(1, 2, 0)),
        (Region(1, 2), Region(1, 2, 0), Region(1, 2, 0)),
    ],
)
def test_the_part_of_a_region_that_lies_in_another(inner: Region, outer: Region, both: Region):
    assert within(inner, outer) == both


# --- members together -----------------------------------------------------------------------------

GROUPS = """
{name: j, topology: {required: WHOLE}, groups: [
  {name: a, tasks: 2, gpus: 1, topology: {required: ONE}},
  {name: b, tasks: 2, gpus: 1, topology: {required: OTHER}}], placements: [PLACES]}
"""


def placed(whole: str, one: str, other: str, *places: str) -> Draft:
    """The levels that the job and its two groups require, and places as `node:gpu group task`."""
    told = []
    for place in places:
        where, group, task = place.split()
        node, _, gpu = where.partition(":")
        told.append(f"{{node: {node}, gpus: [{gpu}], group: {group}, task: {task}}}")
    text = GROUPS.strip().replace("PLACES", ", ".join(told))
    for name, level in (("WHOLE", whole), ("ONE", one), ("OTHER", other)):
        text = text.replace(f"{{required: {name}}}", f"{{required: {level}}}" if level else "{}")
    return draft_of(text)


@pytest.mark.parametrize(
    ("levels", "places", "unbroken"),
    [
        (("", "rack", "rack"), ("n0:0 a 0", "n1:0 a 1", "n2:0 b 0", "n2:1 b 1"), True),
        (("", "rack", "rack"), ("n0:0 a 0", "n2:0 a 1", "n2:1 b 0"), False),
        (("", "rack", "rack"), ("n0:0 a 0", "n1:0 b 0", "n2:0 b 1"), False),
        (("", "", "rack"), ("n0:0 a 0", "n2:0 a 1", "n2:1 b 0"), True),
        (("zone", "rack", "rack"), ("n0:0 a 0", "n2:0 b 0"), True),
        (("zone", "rack", "rack"), ("n0:0 a 0", "n3:0 b 0"), False),
        (("", "nvlink", ""), ("n0:0 a 0", "n0:3 a 1", "n0:4 b 0"), True),
        (("", "nvlink", ""), ("n0:0 a 0", "n0:4 a 1"), False),
        (("", "", ""), ("n0:0 a 0", "n3:0 a 1"), True),
    ],
)
def test_members_keep_to_one_domain_of_every_level_that_is_required_of_them(
    levels: tuple[str, str, str], places: tuple[str, ...], unbroken: bool
):
    draft = placed(*levels, *places)
    assert topology.unbroken(draft.fleet.columns, draft.fleet.jobs["j"]) is unbroken


def test_running_members_fix_the_domain_of_a_level():
    draft = placed("", "", "", "n1:0 a 0", "n0:5 b 0", "n4:0 b 1")
    row, columns = draft.fleet.jobs["j"], draft.fleet.columns
    assert names(draft, topology.home(columns, row, (0,), "rack")) == ["n0", "n1"]
    assert names(draft, topology.home(columns, row, (0,), "zone")) == ["n0", "n1", "n2"]
    assert names(draft, topology.home(columns, row, (1,), "node")) == ["n0"]
    island = topology.home(columns, row, (1,), "nvlink")
    assert island is not None
    assert (names(draft, island), island.island) == (["n0"], 1)
    assert names(draft, gang.home(columns, row, "node")) == ["n1"]
    alone = draft_of("{name: j, gpus: 1, at: 'n4:0'}")
    region = topology.home(alone.fleet.columns, alone.fleet.jobs["j"], (0,), "rack")
    assert names(alone, region) == [], "its node names no rack"
    waits = draft_of("{name: j, gpus: 1}")
    assert topology.home(waits.fleet.columns, waits.fleet.jobs["j"], (0,), "rack") is None


def test_groups_are_counted_however_deep_they_lie():
    draft = draft_of(
        "{name: j, groups: [{name: a, groups: [{name: b, gpus: 1}, {name: c, gpus: 1}]}, {name: d, gpus: 1}]}"
    )
    whole = draft.fleet.jobs["j"].job.gang
    assert [gang.leaf_count(group) for group in (whole, *whole.groups)] == [3, 2, 1]


# --- what is measured -----------------------------------------------------------------------------


def test_room_is_told_for_the_levels_that_nodes_have_and_no_others():
    text = RACKS.replace("[zone, rack]", "[zone, rack, clique]").replace("JOBS", "")
    found = fragmentation.measure(Fleet(moment(text)), 0, 0)
    assert dict(found.pools[0].largest_gang) == {"nvlink": 8, "node": 8, "rack": 16, "zone": 24}
    assert {shape.level for shape in found.pools[0].shapes} == {"nvlink", "node", "rack", "zone"}


# --- the border of a region -----------------------------------------------------------------------


@pytest.mark.parametrize(("tasks", "full"), [(1, "n0 n1 n2"), (3, "n0")])
def test_room_behind_the_border_of_a_region_is_not_looked_at(tasks: int, full: str):
    held = ", ".join(f"{{name: on-{node}, gpus: 8, at: '{node}:0-7'}}" for node in full.split())
    draft = draft_of(f"{held}, {{name: w, tasks: {tasks}, gpus: 8}}")
    row, columns = draft.fleet.jobs["w"], draft.fleet.columns
    (shape,) = gang.shapes(draft, row, 0)
    wish = GroupWish(row, 0, tasks, tasks)
    assert topology._pack(columns, wish, shape, Region(0, 3)) is None, "the first free node, or one more, lies behind"
    assert topology._pack(columns, wish, shape, Region(0, 4)) is not None
