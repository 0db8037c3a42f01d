"""What queues may take back from each other by their shares, at the very borders (rule 17), and who could grow."""

from __future__ import annotations

import pytest

from gpuyard.brain.engine.giving_way import growth, victims
from gpuyard.brain.engine.giving_way.reclaim import Reclaim
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.model.resources import WHOLE
from tests.support.moments import moment

NOW = 1_767_225_600.0
TREE = """
nodes: [{name: n, times: 2, gpus: 8}]
queues:
  - {name: east, quota: 8}
  - {name: west, quota: 8}
  - {name: a, parent: east, quota: 4}
  - {name: b, parent: east, quota: 4}
  - {name: c, parent: west, quota: 4}
jobs:
  - {name: a0, queue: a, gpus: 2, at: "n0:0-1"}
  - {name: b0, queue: b, gpus: 4, at: "n0:2-5"}
  - {name: b1, queue: b, gpus: 1, at: "n0:6"}
  - {name: c0, queue: c, gpus: 8, at: "n1:0-7"}
  - {name: w, queue: a, gpus: WANTED}
"""


def reclaim_of(gpus: int = 2) -> tuple[Draft, Reclaim]:
    draft = Draft(Fleet(moment(TREE.replace("WANTED", str(gpus)))), Memory(), NOW)
    row = draft.fleet.jobs["w"]
    return draft, Reclaim(draft, row, draft.fleet.shortfall(row))


def share(draft: Draft, **gpus: float) -> None:
    for name, amount in gpus.items():
        draft.shares[draft.fleet.tree.index[name]][0] = amount * WHOLE


def test_two_queues_part_where_their_branches_do():
    draft, reclaim = reclaim_of()
    index = draft.fleet.tree.index
    assert tuple(reclaim.parting(index["b"])) == (index["a"], index["b"])
    assert tuple(reclaim.parting(index["c"])) == (index["east"], index["west"])


@pytest.mark.parametrize(
    ("gpus", "shares", "from_b", "from_c"),
    [
        (2, {}, True, False),  # a has 2 of 4, b 5 of 4; west has just its 8
        (2, {"a": 4}, True, False),
        (2, {"a": 3.5}, False, False),  # the own queue never passes its share
        (3, {"a": 5, "b": 5}, False, False),  # beyond quota, and b is not above its share
        (3, {"a": 5, "b": 4.5}, True, False),
        (3, {"a": 4.5, "b": 4.5}, False, False),
        (1, {"west": 7.5, "east": 8}, True, True),
        (1, {"west": 7.5, "east": 7.5}, True, False),
    ],
)
def test_the_claimant_s_side_stays_within_and_the_victim_s_is_above(
    gpus: int, shares: dict[str, float], from_b: bool, from_c: bool
):
    draft, reclaim = reclaim_of(gpus)
    share(draft, a=8, b=5, east=8, west=8, c=8)
    share(draft, **shares)
    index = draft.fleet.tree.index
    assert reclaim.allows(index["b"]) is from_b
    assert reclaim.allows(index["c"]) is from_c


@pytest.mark.parametrize(
    ("taken", "lacks", "bearable"),
    [
        (2, 9, True),  # within its quota nobody asks what the other side lacks
        (3, 2.9, True),
        (3, 3, False),  # as much as is gained is too much
        (3, 3.5, False),
        (3, 4, True),  # it was not above its share before
        (3, -1, True),
        (3, 0, True),
    ],
)
def test_beyond_its_quota_a_claimant_takes_only_what_the_other_side_can_bear(taken: int, lacks: float, bearable: bool):
    draft, reclaim = reclaim_of(taken)
    tree, rows = draft.fleet.tree, draft.fleet.jobs
    gone = victims.whole(rows["b0"])
    draft.tx.lift_all(gone.row, gone.places)
    held = gone.places[0]._replace(gpus=tuple(range(2, 2 + taken)), cost=taken * WHOLE)
    draft.tx.put(rows["w"], held)
    share(draft, a=8, b=1 + lacks)
    tree.quota[tree.index["b"]][0] = 0  # so that nobody could claim it back within its quota
    assert reclaim.bearable([gone]) is bearable
    assert reclaim.bearable([])


def test_nobody_takes_what_could_be_claimed_back_at_once():
    draft, reclaim = reclaim_of(3)
    rows = draft.fleet.jobs
    gone = victims.whole(rows["b1"])
    draft.tx.lift_all(gone.row, gone.places)
    draft.tx.put(rows["w"], gone.places[0]._replace(gpus=(6, 7), cost=3 * WHOLE))
    share(draft, a=8, b=4)
    parting = reclaim.parting(draft.fleet.tree.index["b"])
    assert not reclaim._could_claim_back(rows["b1"], parting), "b has its quota"
    assert reclaim.bearable([gone])
    draft.fleet.tree.quota[draft.fleet.tree.index["b"]][0] = 5 * WHOLE
    assert not reclaim._could_claim_back(rows["b1"], parting), "its share is full"
    share(draft, b=5)
    assert reclaim._could_claim_back(rows["b1"], parting)
    assert not reclaim.bearable([gone])
    below = {row.name for row in reclaim._waiting_below(parting.theirs, [gone])}
    assert below == {"b1"}
    assert reclaim._before(parting.theirs, [gone]) == [5 * WHOLE]
    assert reclaim._before(parting.ours, [gone]) == [5 * WHOLE]


# --- extras ---------------------------------------------------------------------------------------

GROWING = """
nodes: [{name: n0, gpus: 8}]
jobs:
  - {name: e, tasks: 4, min: 2, gpus: 1, at: ['n0:0', 'n0:1']}
  - {name: f, tasks: 4, min: 2, gpus: 1, MORE at: ['n0:2', 'n0:3', 'n0:4']}
"""


@pytest.mark.parametrize(("more", "extra"), [("", True), ("succeeded: 1, ", True), ("min: 3, ", False)])
def test_a_job_has_an_extra_if_more_run_than_it_needs(more: str, extra: bool):
    text = GROWING.replace("MORE", more)
    if "min: 3" in more:
        text = text.replace("tasks: 4, min: 2, gpus: 1, min: 3", "tasks: 4, min: 3, gpus: 1")
    draft = Draft(Fleet(moment(text)), Memory(), NOW)
    rows = draft.fleet.jobs
    assert not growth._has_extra(rows["e"])
    assert growth._has_extra(rows["f"]) is extra
    assert growth._others_have_extras(draft, rows["e"]) is extra
    assert not growth._others_have_extras(draft, rows["f"])
    assert growth._least(draft, rows["e"]) == [WHOLE]
