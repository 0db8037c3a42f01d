"""Who must leave a node so that one more task fits: sets in numbers, each by a small full node."""

from __future__ import annotations

from copy import deepcopy

import pytest

from gpuyard.brain.engine.giving_way import clearing, victims
from gpuyard.brain.engine.giving_way.claims import Claim
from gpuyard.brain.engine.giving_way.clearing import NodeClearing
from gpuyard.brain.engine.giving_way.preemption import Takers
from gpuyard.brain.engine.giving_way.room_making import RoomMaker
from gpuyard.brain.engine.giving_way.victims import Unit
from gpuyard.brain.engine.nodes.columns import Region
from gpuyard.brain.engine.nodes.feasibility import Shape
from gpuyard.brain.engine.nodes.vacancy import Vacancy
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.engine.placing import gang
from gpuyard.model.resources import WHOLE
from tests.support.moments import moment

NOW = 1_767_225_600.0


def draft_of(jobs: str, wanted: str = "gpus: 2", nodes: int = 1, more: str = "") -> Draft:
    """Jobs of queue b, which has no quota, on nodes of four GPUs; `w` of a queue that may have them all."""
    text = f"""
nodes: [{{name: n, times: {nodes}, gpus: 4}}]
queues: [{{name: a, quota: {4 * nodes}}}, {{name: b, quota: 0}}]
{more}
jobs:
{jobs}
  - {{name: w, queue: a, {wanted}}}
"""
    return Draft(Fleet(moment(text)), Memory(), NOW)


def job(name: str, at: str, more: str = "") -> str:
    return f"  - {{name: {name}, queue: b, started: -1h, {more} at: {at}}}\n"


def takers(draft: Draft) -> Takers:
    row = draft.fleet.jobs["w"]
    return Takers(Claim(draft, row, draft.fleet.shortfall(row)))


def shape_of(draft: Draft) -> Shape:
    return next(iter(gang.shapes(draft, draft.fleet.jobs["w"], 0)))


def cheapest(draft: Draft, node: int = 0) -> list[str]:
    found = clearing.cheapest_set(draft, takers(draft), shape_of(draft), node)
    return [f"{unit.row.name}{'+' if unit.extra else ''}" for unit in found]


FOUR = "".join(job(f"j{g}", f"'n0:{g}'", f"priority: {10 + g},") for g in range(4))


def test_the_cheapest_that_suffice_leave_and_no_more():
    assert cheapest(draft_of(FOUR, "gpus: 1")) == ["j0"]
    assert cheapest(draft_of(FOUR, "gpus: 2")) == ["j0", "j1"]
    assert cheapest(draft_of(FOUR, "gpus: 3")) == ["j0", "j1", "j2"]
    assert cheapest(draft_of(FOUR, "gpus: 4")) == ["j0", "j1", "j2", "j3"]


def test_one_that_suffices_alone_goes_before_two_that_are_no_cheaper():
    pair = job("pair", "'n0:0-1'", "priority: 12, gpus: 2,") + job("x", "'n0:2'", "priority: 11,")
    assert cheapest(draft_of(pair + job("y", "'n0:3'", "priority: 13,"))) == ["pair"]
    assert cheapest(draft_of(pair + job("y", "'n0:3'", "priority: 12,"))) == ["pair"]
    assert cheapest(draft_of(pair + job("y", "'n0:3'", "priority: 11,"))) == ["y", "x"]


def test_whoever_was_not_needed_in_the_end_is_let_back():
    small_first = job("x", "'n0:0'", "priority: 11,") + job("big", "'n0:1-3'", "priority: 12, gpus: 3,")
    assert cheapest(draft_of(small_first, "gpus: 3")) == ["big"]
    assert cheapest(draft_of(small_first, "gpus: 4")) == ["x", "big"]


def test_nobody_leaves_where_nobody_may_or_all_together_would_not_do():
    firm = job("x", "'n0:0-1'", "gpus: 2, preemptible: false,") + job("y", "'n0:2'")
    assert cheapest(draft_of(firm, "gpus: 3")) == []
    assert cheapest(draft_of(firm, "gpus: 2")) == ["y"]
    assert cheapest(draft_of("  - {name: idle, queue: b}\n", "gpus: 2")) == []


def test_extras_leave_before_any_gang_and_no_more_of_them_than_there_are_to_spare():
    elastic = job("el", "['n0:0', 'n0:1', 'n0:2']", "tasks: 3, min: 1, gpus: 1,") + job("y", "'n0:3'", "priority: 1,")
    elastic = elastic.replace("name: el, queue: b, started: -1h", "name: el, queue: b, started: -2h")
    assert cheapest(draft_of(elastic, "gpus: 1")) == ["el+"]
    assert cheapest(draft_of(elastic, "gpus: 2")) == ["el+", "el+"]
    assert cheapest(draft_of(elastic, "gpus: 3")) == ["el+", "el+", "y"]
    assert cheapest(draft_of(elastic, "gpus: 4")) == ["y", "el"]
    draft = draft_of(elastic)
    extras = tuple(victims.last_extras(draft.fleet.jobs["el"]))
    assert not clearing.too_many_extras(extras)
    assert not clearing.too_many_extras((victims.whole(draft.fleet.jobs["y"]),))
    draft.tx.lift(draft.fleet.jobs["el"], extras[0].places[0])
    assert clearing.too_many_extras(extras)
    assert not clearing.too_many_extras(extras[1:])


# --- when there is nothing to choose --------------------------------------------------------------


def all_needed(draft: Draft, units: list[Unit] | None = None) -> bool:
    vacancy = Vacancy(draft.fleet.columns, draft.fleet.jobs["w"].request, 0)
    units = clearing.candidates(draft, takers(draft), 0) if units is None else units
    return clearing._all_needed(draft.fleet, vacancy, units, vacancy.room())


@pytest.mark.parametrize(
    ("jobs", "wanted", "needed"),
    [
        (job("x", "'n0:0-1'", "gpus: 2,") + job("y", "'n0:2-3'", "gpus: 2,"), "gpus: 4", True),
        (job("x", "'n0:0-1'", "gpus: 2,") + job("y", "'n0:2'"), "gpus: 4", True),  # one is free
        (job("x", "'n0:0-1'", "gpus: 2,") + job("y", "'n0:2-3'", "gpus: 2,"), "gpus: 3", False),
        (job("x", "'n0:0-1'", "gpus: 2,") + job("y", "'n0:2-3'", "gpus: 2, priority: 3,"), "gpus: 4", False),
        (job("x", "'n0:0-1'", "gpus: 2,") + job("y", "'n0:2'", "fraction: 0.5,"), "gpus: 4", False),
        (job("x", "['n0:0', 'n0:1']", "tasks: 2, min: 1,") + job("y", "'n0:2-3'", "gpus: 2,"), "gpus: 4", False),
        (job("x", "'n0:0'") + job("y", "'n0:1'"), "fraction: 0.5", False),
    ],
)  # fmt: skip
def test_all_are_needed_where_there_are_just_as_many_devices_to_leave_as_lack(jobs: str, wanted: str, needed: bool):
    assert all_needed(draft_of(jobs, wanted)) is needed


def test_a_node_with_a_sick_device_is_weighed_in_full():
    two = job("x", "'n0:0-1'", "gpus: 2,") + job("y", "'n0:2-3'", "gpus: 2,")
    draft = draft_of(two, "gpus: 4")
    draft.fleet.columns.barred.add(0)
    assert not all_needed(draft)


# --- node after node ------------------------------------------------------------------------------


def test_nodes_come_in_the_order_of_their_cheapest_sets_and_again_until_somebody_leaves():
    jobs = job("x", "'n0:0-3'", "gpus: 4, priority: 12,") + job("y", "'n1:0-3'", "gpus: 4, priority: 11,")
    draft = draft_of(jobs + job("z", "'n2:0-3'", "gpus: 4, priority: 13,"), "tasks: 3, gpus: 4", nodes=3)
    nodes = NodeClearing(draft, takers(draft), shape_of(draft), Region(0, 3))
    order = []
    while (found := nodes.next()) is not None:
        assert nodes.next() == found
        node, (unit,) = found
        order.append((node, unit.row.name))
        draft.tx.lift_all(unit.row, unit.places)
    assert order == [(1, "y"), (0, "x"), (2, "z")]


def test_everybody_of_a_region_who_may_leave_is_told_once_extras_before_their_gang():
    jobs = job("g", "['n0:0', 'n1:0']", "tasks: 2, gpus: 1, priority: 5,") + job("y", "'n1:1'", "priority: 6,")
    jobs += job("el", "['n0:1', 'n1:2']", "tasks: 2, min: 1, gpus: 1, priority: 7,") + job(
        "f", "'n0:2'", "preemptible: false,"
    )
    draft = draft_of(jobs, nodes=2)

    def told(region: Region) -> list[str]:
        units = clearing.everyone(draft, takers(draft), region)
        return [f"{unit.row.name}{'+' if unit.extra else ''}{len(unit.places)}" for unit in units]

    assert told(Region(0, 2)) == ["el+1", "el+1", "g2", "y1", "el2"]
    assert told(Region(0, 1)) == ["el+1", "g2", "el2"]
    assert told(Region(1, 2)) == ["el+1", "g2", "y1", "el2"]
    assert told(Region(0, 0)) == []


def test_jobs_of_one_task_that_leave_the_same_behind_are_of_one_kind():
    jobs = (
        job("x", "'n0:0'")
        + job("y", "'n0:1'")
        + job("z", "'n0:2'", "priority: 3,")
        + job("s", "'n0:3'", "fraction: 0.5,")
    )
    rows = draft_of(jobs).fleet.jobs
    kind = {name: clearing._kind(victims.whole(rows[name])) for name in ("x", "y", "z", "s")}
    assert kind["x"] == kind["y"]
    assert len({repr(each) for each in kind.values()}) == 3
    gangs = job("g", "['n0:0', 'n0:1']", "tasks: 2, gpus: 1,") + job("h", "['n0:2', 'n0:3']", "tasks: 2, gpus: 1,")
    rows = draft_of(gangs).fleet.jobs
    assert clearing._kind(victims.whole(rows["g"])) != clearing._kind(victims.whole(rows["h"]))


# --- making room ----------------------------------------------------------------------------------


def maker_of(draft: Draft) -> RoomMaker:
    return RoomMaker(draft, draft.fleet.jobs["w"], takers(draft))


def test_what_is_free_and_what_some_hold_may_suffice_or_not():
    draft = draft_of(job("x", "'n0:0-1'", "gpus: 2,") + job("y", "'n0:2'"), "gpus: 3")
    maker, rows = maker_of(draft), draft.fleet.jobs
    x, y = victims.whole(rows["x"]), victims.whole(rows["y"])
    assert maker._may_suffice((x,))
    assert not maker._may_suffice((y,))
    assert maker._may_suffice((x, y))


def test_a_gang_is_let_go_in_its_parts_and_only_as_far_as_it_stands():
    draft = draft_of(job("el", "['n0:0', 'n0:1', 'n0:2']", "tasks: 3, min: 1, gpus: 1,") + job("y", "'n0:3'"))
    maker, row = maker_of(draft), draft.fleet.jobs["el"]
    first, second, whole = victims.units_of(row)
    gone: list[Unit] = []
    assert maker._let_go(first, gone)
    assert not maker._let_go(first, gone), "it is gone already"
    assert maker._let_go(whole, gone)
    assert [(unit.extra, unit.cost) for unit in gone] == [(True, WHOLE), (True, WHOLE), (False, WHOLE)]
    assert not row.held
    assert not maker._let_go(second, gone)
    assert not maker._let_go(whole, gone)


RACKS = """
topology: [rack]
nodes:
  - {name: n0, gpus: 4, domains: {rack: r0}}
  - {name: n1, gpus: 4, domains: {rack: r1}}
  - {name: n2, gpus: 4, domains: {rack: r1}}
  - {name: n3, gpus: 4}
queues: [{name: a, quota: 12}, {name: b, quota: 0}]
jobs:
  - {name: x, queue: b, gpus: 3, at: "n1:0-2"}
  - {name: w, queue: a, tasks: 2, gpus: 2, TOPOLOGY at: [PLACES]}
"""


def regions(level: str, places: str = "", by_shape: bool = False) -> list[tuple[int, int]]:
    text = RACKS.replace("TOPOLOGY", f"topology: {{required: {level}}}," if level else "").replace("PLACES", places)
    draft = Draft(Fleet(moment(text)), Memory(), NOW)
    order = {node.name: i for i, node in enumerate(draft.fleet.columns.nodes)}
    assert order == {"n3": 0, "n0": 1, "n1": 2, "n2": 3}
    maker = maker_of(draft)
    shape = shape_of(draft) if by_shape else None
    return [(region.start, region.stop) for region in maker.regions(shape)]


def test_a_job_must_fit_into_one_domain_of_its_level_the_roomiest_first():
    assert regions("") == [(0, 4)]
    assert regions("rack") == [(2, 4), (1, 2)]  # a node without a rack is in no domain
    assert regions("rack", by_shape=True) == [(1, 2), (2, 4)]  # two tasks each: the first in order
    assert regions("node") == [(0, 1), (1, 2), (3, 4), (2, 3)]
    assert regions("nvlink") == [(0, 1), (1, 2), (3, 4), (2, 3)]
    assert regions("rack", "'n0:0-1'") == [(1, 2)]


def test_whoever_was_supposed_to_have_gone_is_back_where_weighing_fails_with_an_error(monkeypatch: pytest.MonkeyPatch):
    full = job("x", "'n0:0'", "priority: 11,") + job("y", "'n0:1'", "priority: 12,")
    draft = draft_of(full, "gpus: 4")
    books, asked = deepcopy(draft.fleet.tree.used), list[str]()

    def may_follow(self: Takers, unit: Unit) -> bool:
        asked.append(unit.row.name)
        if len(asked) > 1:
            raise ZeroDivisionError
        return True

    monkeypatch.setattr(Takers, "may_follow", may_follow)
    with pytest.raises(ZeroDivisionError):
        clearing.cheapest_set(draft, takers(draft), shape_of(draft), 0)
    assert asked == ["x", "y"], "one was supposed to have gone"
    assert draft.fleet.tree.used == books
