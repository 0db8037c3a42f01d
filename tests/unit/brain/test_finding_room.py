"""Who is not even tried because there cannot be room for it, wherever it looks."""

from __future__ import annotations

from gpuyard.brain.engine.giving_way import victims
from gpuyard.brain.engine.giving_way.claims import Claim
from gpuyard.brain.engine.giving_way.preemption import Takers
from gpuyard.brain.engine.giving_way.resettling import START, Settling
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.model.resources import WHOLE
from tests.support.moments import moment

NOW = 1_767_225_600.0
YARD = """
nodes:
  - {name: n0, gpus: 4}
  - {name: m0, gpus: 1, model: A100-SXM4-80GB, mig: {0: [3g.40gb, 3g.40gb]}}
jobs:
  - {name: pair, gpus: 2, at: "n0:0-1"}
  - {name: single, gpus: 1, at: "n0:2"}
  - name: mixed
    groups: [{name: a, tasks: 1, gpus: 1}, {name: b, tasks: 1, mig: 3g.40gb}]
    at: [{node: n0, gpus: [3], group: a, task: 0}, {node: m0, gpus: [0], mig: [3g.40gb], group: b, task: 0}]
  - {name: w, gpus: 1}
"""


def test_who_holds_more_than_is_idle_finds_no_room_unless_some_of_it_are_slices():
    draft = Draft(Fleet(moment(YARD)), Memory(), NOW)
    rows = draft.fleet.jobs
    settling = Settling(draft, rows["w"], Takers(Claim(draft, rows["w"], draft.fleet.shortfall(rows["w"]))), START)
    units = {name: victims.whole(rows[name]) for name in ("pair", "single", "mixed")}
    assert units["mixed"].cost > WHOLE
    assert [name for name, unit in units.items() if settling._finds_no_room(unit)] == ["pair", "single"]
    draft.tx.lift_all(rows["single"], units["single"].places)
    assert draft.fleet.columns.idle_total == WHOLE
    assert [name for name, unit in units.items() if settling._finds_no_room(unit)] == ["pair"]
