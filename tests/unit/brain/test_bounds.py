"""Bounds before a search, in numbers: what could be had at the very best, and what it would cost at the least."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuyard.brain.engine.explaining.obstacles import Anybody
from gpuyard.brain.engine.giving_way import clearing, preemption, victims
from gpuyard.brain.engine.giving_way.bounds import floors
from gpuyard.brain.engine.giving_way.claims import Claim
from gpuyard.brain.engine.giving_way.consolidation import Movers
from gpuyard.brain.engine.giving_way.preemption import Takers
from gpuyard.brain.engine.giving_way.room_making import RoomMaker
from gpuyard.brain.engine.nodes.columns import Held, Region
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.engine.placing import gang
from gpuyard.brain.engine.reserving import backfill
from gpuyard.model.resources import WHOLE
from tests.support.moments import moment

NOW = 1_767_225_600.0
HOUR = 3600.0


def draft_of(text: str) -> Draft:
    return Draft(Fleet(moment(text)), Memory(), NOW)


def claim_of(draft: Draft, name: str = "w") -> Claim:
    row = draft.fleet.jobs[name]
    return Claim(draft, row, draft.fleet.shortfall(row))


# --- what could be taken at the very best ---------------------------------------------------------

SIDES = """
nodes: [{name: n, times: 2, gpus: 8}]
queues:
  - {name: top, quota: 12}
  - {name: a, parent: top, quota: 4}
  - {name: b, parent: top, quota: 2}
  - {name: c, quota: 2}
  - {name: d, quota: 2}
jobs:
  - {name: a0, queue: a, gpus: 2, at: "n0:0-1"}
  - {name: b0, queue: b, gpus: 2, at: "n0:2-3"}
  - {name: b1, queue: b, gpus: 1, at: "n0:4"}
  - {name: b2, queue: b, gpus: 1, preemptible: false, at: "n0:5"}
  - {name: c0, queue: c, gpus: 1, at: "n1:0"}
  - {name: c1, queue: c, gpus: 1, at: "n1:1"}
  - {name: c2, queue: c, gpus: 1, at: "n1:2"}
  - {name: c3, queue: c, gpus: 1, at: "n1:3"}
  - {name: d0, queue: d, gpus: 2, at: "n1:4-5"}
  - {name: w, queue: a, gpus: WANTED}
"""


def wanted(gpus: int, more: str = "") -> Claim:
    return claim_of(draft_of(SIDES.replace("WANTED", f"{gpus}{more}")))


def test_a_side_could_lose_what_it_has_above_its_quota_and_one_victim_more_all_but_a_grain():
    claim = wanted(8)
    most = {
        name: preemption._most_from(claim.draft, claim, claim.tree.index[name]) for name in ("a", "b", "c", "d", "top")
    }
    assert most == {
        "a": 0,  # below its quota
        "b": 3 * WHOLE,  # 2 above, and 2 of its largest, but only 3 may go at all
        "c": 2 * WHOLE + WHOLE - 1,
        "d": 0,  # just at its quota
        "top": 0,
    }


def test_of_a_critical_claim_or_with_several_resources_every_side_could_lose_all_that_may_go():
    claim = wanted(8)
    claim.critical = True
    assert preemption._most_from(claim.draft, claim, claim.tree.index["d"]) == 2 * WHOLE
    several = claim_of(draft_of(SIDES.replace("WANTED", "8").replace("quota: 12", "quota: {gpu: 12, cpu: 9}")))
    assert preemption._most_from(several.draft, several, several.tree.index["d"]) == 2 * WHOLE


def test_sides_are_those_that_part_from_the_claimant_s_branch_on_its_way_to_the_root():
    claim = wanted(8)
    assert preemption._sides(claim) == [3 * WHOLE, 3 * WHOLE - 1, 0]


@pytest.mark.parametrize(("gpus", "enough"), [(4, True), (10, True), (11, True), (12, False), (13, False)])
def test_a_claim_is_worth_a_search_if_free_gpus_and_the_sides_and_its_own_queue_would_do(gpus: int, enough: bool):
    # 4 are free, the sides could lose 6 (all but a grain), its own queue 2
    claim = wanted(gpus)
    assert claim.draft.fleet.columns.idle_total == 4 * WHOLE
    assert preemption.enough_to_take(claim) is enough


def test_who_asks_for_no_gpus_is_always_worth_a_search():
    assert preemption.enough_to_take(wanted(0, ", cpu: 1"))


# --- what clearing a node costs at the least ------------------------------------------------------

NODE = """
nodes: [{name: n, times: 2, gpus: 8}]
queues: [{name: a, quota: 1}, {name: b, quota: 2}, {name: d, quota: 16}]
jobs:
  - {name: a0, queue: a, gpus: 2, priority: 30, started: -1h, submitted: -2h, at: "n0:0-1"}
  - {name: b0, queue: b, gpus: 3, priority: 40, started: -2h, submitted: -3h, at: "n0:2-4"}
  - {name: d0, queue: d, gpus: 1, priority: 20, started: -3h, submitted: -4h, at: "n0:5"}
  - {name: firm, queue: d, gpus: 2, preemptible: false, started: -3h, at: "n0:6-7"}
  - {name: other, queue: b, gpus: 8, priority: 10, started: -3h, at: "n1:0-7"}
  - {name: w, queue: d, gpus: 4, priority: 50}
"""


def least(short: int, names: str, text: str = NODE) -> object:
    draft = draft_of(text)
    rows = [draft.fleet.jobs[name] for name in names.split()]
    return floors.least_key(draft, draft.fleet.jobs["w"], rows, 0, short)


def warm(draft: Draft, name: str) -> float:
    return victims.warm_up(draft, draft.fleet.jobs[name])


def nearly(lost_s: float) -> float:
    """Jobs of several sizes are divided: what they lose is told a hair too small, for it must never be too much."""
    return lost_s * WHOLE * floors.A_HAIR_LESS


def test_who_holds_devices_of_a_node_how_many_and_what_each_costs():
    draft = draft_of(NODE)
    rows = [draft.fleet.jobs[name] for name in ("a0", "b0", "other", "d0")]
    there, devices, grains = floors.on_devices(rows, 0)
    assert [row.name for row in there] == ["a0", "b0", "d0"]
    assert (devices, grains) == ([2, 3, 1], [WHOLE, WHOLE, WHOLE])


def test_a_floor_is_the_best_of_each_that_stands_there_for_as_many_devices_as_lack():
    draft = draft_of(NODE)
    youth = {name: draft.fleet.jobs[name].youth for name in ("a0", "b0", "d0")}
    a, b = HOUR + warm(draft, "a0"), HOUR * 2 + warm(draft, "b0")
    # b has 11 of a quota of 2 and a share of 7, a has 2 of 1 and of 2: before any falls below its quota 1 of a and
    # all 3 of b may go, before any falls below its share those of b alone
    assert least(1, "a0 b0") == (False, True, False, False, 30, 0, nearly(a), 1, 1, youth["a0"])
    assert least(3, "a0 b0") == (False, True, False, False, 30, 0, nearly(2 * a + b), 1, 1, youth["a0"])
    assert least(4, "a0 b0") == (False, True, False, True, 30, 0, nearly(2 * a + 2 * b), 2, 2, youth["a0"])
    assert least(5, "a0 b0") == (False, True, True, True, 30, 0, nearly(2 * a + 3 * b), 2, 2, youth["a0"])
    assert least(6, "a0 b0") is None
    # its own queue gives one, which pushes nobody
    five = least(5, "a0 b0 d0")
    assert five == (False, True, False, True, 20, 0, nearly(2 * a + 3 * b), 2, 2, youth["a0"])
    own = HOUR * 3 + warm(draft, "d0")
    assert least(1, "d0") == (True, True, False, False, 20, 0, own * WHOLE, 1, 1, youth["d0"])
    assert least(2, "d0") is None


def test_where_no_device_lacks_or_somebody_may_give_extras_alone_the_node_must_be_weighed():
    assert least(0, "a0 b0") == ()
    assert least(-1, "a0 b0") == ()
    elastic = NODE.replace("name: d0, queue: d,", "name: d0, queue: d, tasks: 2, min: 1,")
    assert least(1, "a0 d0", elastic) == ()


def test_a_device_that_is_shared_costs_what_all_lose_who_share_it():
    text = NODE.replace("name: b0, queue: b, gpus: 3,", "name: b0, queue: b, fraction: 0.4,").replace("n0:2-4", "n0:2")
    text += '  - {name: b1, queue: b, fraction: 0.3, priority: 40, started: -1h, submitted: -3h, at: "n0:2"}\n'
    draft = draft_of(text)
    b0, b1 = 2 * HOUR + warm(draft, "b0"), HOUR + warm(draft, "b1")
    found = least(1, "b0 b1", text)
    assert isinstance(found, tuple)
    assert found[6] == pytest.approx((b0 * 0.4 + b1 * 0.3) * WHOLE, rel=1e-12)
    assert found[7:9] == (2, 2), "one alone frees nothing"
    assert least(2, "b0 b1", text) is None
    assert least(1, "b0", text) is None, "the other stays, and with it the device"


def test_nobody_firm_counts_among_those_who_could_go():
    assert least(2, "firm") is None
    assert least(2, "d0 firm") is None


def test_what_must_stop_costs_at_least_the_best_of_each_for_as_many_grains_as_lack():
    draft = draft_of(NODE)
    rows = [draft.fleet.jobs[name] for name in ("a0", "b0", "other")]
    a, b = HOUR + warm(draft, "a0"), HOUR * 2 + warm(draft, "b0")

    def stopped(lacking: float, rows: list[JobRow] = rows) -> object:
        return floors.least_stopped(draft, draft.fleet.jobs["w"], rows, int(lacking * WHOLE))

    youth = min(row.youth for row in rows)
    # of b's 11 some 9 may go before it falls below its quota of 2, of a's 2 one; shares are 7 and 2
    assert stopped(0.5) == (False, True, False, False, 10, 0, nearly(a / 2), 1, 1, youth)
    assert stopped(3) == (False, True, False, False, 10, 0, nearly(2 * a + b), 1, 1, youth)
    assert stopped(9)[2:4] == (False, True)  # type: ignore[index]
    assert stopped(11)[2:4] == (True, True)  # type: ignore[index]
    assert stopped(11)[7:9] == (2, 2)  # type: ignore[index]
    assert stopped(13)[7:9] == (3, 3)  # type: ignore[index]
    assert stopped(14) is None
    assert stopped(0) == ()
    assert stopped(1, [draft.fleet.jobs["d0"]])[0] is True  # type: ignore[index]


def test_devices_that_a_node_lacks_for_one_more_task():
    draft = draft_of(NODE.replace("- {name: d0, queue: d, gpus: 1,", "- {name: d0, queue: d, gpus: 1, class: batch,"))
    (shape,) = gang.shapes(draft, draft.fleet.jobs["w"], 0)
    assert clearing.short_of(shape, [0, 1]) == [4, 4]
    draft.tx.lift(draft.fleet.jobs["b0"], draft.fleet.jobs["b0"].held[0])
    assert clearing.short_of(shape, [0]) == [1]
    draft.tx.lift(draft.fleet.jobs["a0"], draft.fleet.jobs["a0"].held[0])
    assert clearing.short_of(shape, [0]) == [3]  # of the second task: one fits


def test_nodes_where_free_and_loose_gpus_together_would_hold_a_task_the_emptiest_first():
    draft = draft_of(NODE.replace("gpus: 4, priority: 50", "gpus: 7, priority: 50"))
    (shape,) = gang.shapes(draft, draft.fleet.jobs["w"], 0)
    everywhere = draft.fleet.columns.everywhere
    assert clearing.plausible(draft, shape, everywhere) == [1]  # two GPUs of the other are firm
    assert clearing.plausible(draft, shape, everywhere, firm_too=True) == [0, 1]
    draft.tx.lift(draft.fleet.jobs["other"], draft.fleet.jobs["other"].held[0])
    assert clearing.plausible(draft, shape, everywhere, firm_too=True) == [1, 0]
    assert clearing.plausible(draft, shape, Region(0, 1), firm_too=True) == [0]


def anybody(draft: Draft) -> Anybody:
    trial = draft.trial()
    trial.__enter__()
    return Anybody(draft, draft.fleet.jobs["w"], {}, trial)


def test_what_stopping_anybody_on_a_node_costs_at_the_least():
    draft = draft_of(NODE)
    rights, rows = anybody(draft), draft.fleet.jobs
    lost = HOUR + warm(draft, "a0")
    youngest = min(rows[name].youth for name in ("a0", "b0", "d0", "firm"))
    assert rights.floor(0, 8) == (False, 20, lost * WHOLE * 8, youngest)
    assert rights.floor(0, 1) == (False, 20, lost * WHOLE, youngest)
    assert rights.floor(0, 9) is None
    assert rights.floor(0, 0) == ()
    draft.tx.lift(rows["a0"], rows["a0"].held[0])
    assert rights.floor(0, 1) == (), "somebody has left already"


def test_only_where_all_are_firm_a_firm_one_must_stop():
    draft = draft_of(NODE)
    for name in ("a0", "b0", "d0"):
        row = draft.fleet.jobs[name]
        draft.tx.lift(row, row.held[0])
    found = anybody(draft).floor(0, 2)
    assert found is not None
    assert found[0] is True
    other = draft.fleet.jobs["other"]
    draft.tx.lift(other, other.held[0])
    assert anybody(draft).floor(1, 1) is None, "nobody is there"


# --- whether it is worth a look -------------------------------------------------------------------

GANG = """
nodes: [{name: n, times: 3, gpus: 4}]
jobs:
  - {name: r, gpus: 3, at: "n0:0-2"}
  - {name: s, gpus: 2, at: "n1:0-1"}
  - {name: w, tasks: TASKS, gpus: 2}
"""


@pytest.mark.parametrize(
    ("tasks", "now", "ever"), [(3, True, True), (4, False, True), (6, False, True), (7, False, False)]
)
def test_a_gang_might_fit_if_its_tasks_find_room_and_could_ever_if_they_did_on_empty_nodes(
    tasks: int, now: bool, ever: bool
):
    draft = draft_of(GANG.replace("TASKS", str(tasks)))
    row = draft.fleet.jobs["w"]
    assert gang.might_fit(draft, row) is now
    assert gang.could_ever_fit(draft, row) is ever
    maker = RoomMaker(draft, row, Takers(claim_of(draft)))
    (shape,) = maker.shapes()
    assert maker._could_ever(shape, draft.fleet.columns.everywhere) is ever
    assert maker._could_ever(shape, Region(0, 1)) is False


@pytest.mark.parametrize(("tasks", "enough"), [(3, True), (4, False)])
def test_as_many_whole_gpus_are_idle_as_a_job_lacks(tasks: int, enough: bool):
    draft = draft_of(GANG.replace("TASKS", str(tasks)))
    assert draft.fleet.columns.whole_total == 7
    assert backfill.enough_idle(draft, draft.fleet.jobs["w"]) is enough


def test_every_set_is_weighed_where_no_more_than_ten_stand():
    lines = "".join(f"  - {{name: j{i}, gpus: 1, at: 'n{i // 4}:{i % 4}'}}\n" for i in range(11))
    text = f"nodes: [{{name: n, times: 3, gpus: 4}}]\njobs:\n{lines}  - {{name: w, gpus: 4}}\n"
    draft = draft_of(text)
    maker = RoomMaker(draft, draft.fleet.jobs["w"], Takers(claim_of(draft)))
    assert not maker._few_in(Region(0, 3))
    row = draft.fleet.jobs["j10"]
    draft.tx.lift(row, row.held[0])
    assert maker._few_in(Region(0, 3))
    assert maker._few_in(Region(0, 0))


def test_a_search_ends_after_as_many_tries_as_the_policy_allows_for_a_claim_and_for_a_cycle():
    draft = draft_of(GANG.replace("TASKS", "4"))
    draft.policy = replace(draft.policy, search_limit=2, search_total=3)
    row = draft.fleet.jobs["w"]
    first, second = (RoomMaker(draft, row, Takers(claim_of(draft))) for _ in range(2))
    assert [first._go_on() for _ in range(3)] == [True, True, False]
    assert draft.effort == 3
    assert second._go_on() is False
    draft.effort = 2
    third = RoomMaker(draft, row, Takers(claim_of(draft)))
    assert [third._go_on() for _ in range(2)] == [True, False]


# --- what a borrower may move ---------------------------------------------------------------------

BORROWING = """
nodes: [{name: n, times: 2, gpus: 4}]
queues: [{name: a, quota: 4}, {name: b, quota: 4}]
jobs:
  - {name: a0, queue: a, gpus: 3, at: "n0:0-2"}
  - {name: b0, queue: b, gpus: 2, at: "n1:0-1"}
  - {name: w, queue: a, gpus: WANTED}
  - {name: v, queue: b, gpus: 2}
"""


@pytest.mark.parametrize(("gpus", "borrows"), [(1, False), (2, True)])
def test_a_claimant_borrows_once_it_passes_its_fair_share_and_moves_twice_its_gpus_at_most(gpus: int, borrows: bool):
    draft = draft_of(BORROWING.replace("WANTED", str(gpus)))
    row = draft.fleet.jobs["w"]
    movers = Movers(draft, row, draft.fleet.shortfall(row))
    assert movers.borrower is borrows
    assert movers.largest_gap == 2
    unit = victims.whole(draft.fleet.jobs["b0"])
    exact = unit._replace(cost=2 * gpus * WHOLE)
    assert movers.few_enough([exact])
    assert movers.few_enough([exact._replace(cost=exact.cost + 1)]) is not borrows
    b0 = draft.fleet.jobs["b0"]
    assert movers.lets_move(b0)
    b0.priority = row.priority + 1
    assert movers.lets_move(b0) is not borrows


def test_a_task_without_a_hole_of_its_size_is_the_last_to_move():
    draft = draft_of(BORROWING.replace("WANTED", "1"))
    row = draft.fleet.jobs["w"]
    movers = Movers(draft, row, draft.fleet.shortfall(row))
    small, large = (victims.whole(draft.fleet.jobs[name]) for name in ("b0", "a0"))
    assert movers.key((small,))[:2] == (False, 2 * WHOLE)
    assert movers.key((large,))[:2] == (True, 3 * WHOLE)
    assert movers.key((small, large))[:2] == (True, 5 * WHOLE)
    share = small._replace(places=(Held(0, 0, 0, (0, 1, 2, 3), share=1),))
    assert movers.key((share,))[0] is False
