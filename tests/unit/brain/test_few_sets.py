"""Sets of few victims: in which order they are tried, and which are not tried at all since nobody in them could stop
more cheaply than is known."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from gpuyard.brain.engine.cycle import open_draft
from gpuyard.brain.engine.giving_way import victims
from gpuyard.brain.engine.giving_way.bounds import few_sets
from gpuyard.brain.engine.giving_way.bounds.few_sets import FewSets, Weighing
from gpuyard.brain.engine.giving_way.claims import Claim
from gpuyard.brain.engine.giving_way.clearing import Key
from gpuyard.brain.engine.giving_way.consolidation import Movers
from gpuyard.brain.engine.giving_way.preemption import NearTakers
from gpuyard.brain.engine.giving_way.resettling import RoomMade, Settling
from gpuyard.brain.engine.giving_way.victims import Unit
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.foresee import outlook
from gpuyard.model.actions import Evict
from tests.support.moments import moment

NOW = 1_767_225_600.0
PRICES = {"a": 1, "b": 2, "c": 4, "d": 8}


def units_of(jobs: str) -> dict[str, Unit]:
    fleet = Fleet(moment(f"nodes: [{{name: n0, gpus: 4, gpu_memory: 80Gi}}]\njobs:\n{jobs}"))
    return {name: victims.whole(row) for name, row in fleet.jobs.items()}


def four(more: str = "") -> dict[str, Unit]:
    return units_of("".join(f"  - {{name: {name}, at: 'n0:{g}'{more}}}\n" for g, name in enumerate(PRICES)))


def price(units: Iterable[Unit]) -> Key:
    return (sum(PRICES[unit.row.name] for unit in units),)


def tried(units: dict[str, Unit], lacking: int, best: int = 99, most: int = 4, firm: str = "") -> list[str]:
    """The names of the sets that are tried, for so many GPUs, if a set of that price is known to do and some may not
    stop."""

    def may_stop(those: tuple[Unit, ...]) -> bool:
        return not any(unit.row.name in firm for unit in those)

    weigh = Weighing(price, lambda those: len(those) >= lacking, may_stop, lambda key: key < (best,))
    sets = FewSets(list(units.values()), most, weigh).cheapest_first()
    return ["".join(unit.row.name for unit in those) for those in sets]


def test_sets_come_in_the_order_of_their_keys_and_only_those_that_may_suffice():
    assert tried(four(), lacking=2, most=2) == ["ab", "ac", "bc", "ad", "bd", "cd"]
    assert tried(four(), lacking=3) == ["abc", "abd", "acd", "bcd", "abcd"]
    assert tried(four(), lacking=2, most=1) == []


def test_a_set_is_tried_only_if_some_in_it_who_suffice_could_be_cheaper_than_what_is_known():
    assert tried(four(), lacking=1, best=1) == []
    assert tried(four(), lacking=1, best=2) == ["a", "ab", "ac", "abc", "ad", "abd", "acd", "abcd"]
    assert tried(four(), lacking=2, best=4) == ["ab", "abc", "abd", "abcd"]
    assert tried(four(), lacking=2, best=3) == []


def test_where_nobody_need_stop_every_set_is_tried():
    assert len(tried(four(), lacking=0, best=0)) == 15


def test_who_may_only_be_moved_is_tried_with_those_who_may_stop():
    assert tried(four(), lacking=2, firm="b") == ["ac", "abc", "ad", "abd", "cd", "acd", "bcd", "abcd"]
    assert tried(four(), lacking=2, firm="bcd") == []
    assert tried(four(), lacking=1, firm="bcd", most=2) == ["a", "ab", "ac", "ad"]


def test_what_is_found_on_the_way_counts_at_once():
    known = [99]
    weigh = Weighing(price, lambda those: len(those) >= 1, lambda those: True, lambda key: key < (known[0],))
    met = []
    for those in FewSets(list(four().values()), 4, weigh).cheapest_first():
        met.append("".join(unit.row.name for unit in those))
        if met[-1] == "b":
            known[0] = 2
    assert met == ["a", "b", "ab", "ac", "abc", "ad", "abd", "acd", "abcd"]


@pytest.mark.parametrize("more", [", tasks: 2, min: 1, gpus: 1", ", gpu_memory: 8Gi"])
def test_gangs_that_give_one_task_and_tasks_sized_by_memory_are_tried_in_every_set(more: str):
    assert len(tried(four(more), lacking=1, best=1)) == 15


def test_an_extra_goes_with_its_gang_and_a_gang_not_beside_its_extra():
    text = "jobs:\n  - {name: el, at: ['n0:0', 'n0:1', 'n0:2'], tasks: 3, min: 1, gpus: 1}\n  - {name: y, at: 'n0:3'}"
    rows = Fleet(moment(f"nodes: [{{name: n0, gpus: 4}}]\n{text}")).jobs
    first, second, whole = victims.units_of(rows["el"])
    other = victims.whole(rows["y"])
    assert not few_sets._covered(first, (second,))
    assert few_sets._covered(first, (whole,))
    assert few_sets._covered(whole, (first,))
    assert not few_sets._covered(whole, (other,))
    assert not few_sets._covered(other, ())


CLAIMS = """
nodes: [{name: n0, gpus: 8}]
queues: [{name: a, weight: 1}, {name: b, weight: 3}]
jobs:
  - {name: "a{i}", times: 8, queue: a, at: "n0:{i}"}
  - {name: "b{i}", times: 8, queue: b, gpus: 1}
"""


def test_no_outcome_is_better_than_its_rights_say_of_those_who_stop():
    draft = open_draft(Fleet(moment(CLAIMS)), Memory(), NOW)
    row = draft.fleet.jobs["b0"]
    asked = draft.fleet.shortfall(row)
    takers = NearTakers(Claim(draft, row, asked))
    one, two = (victims.whole(draft.fleet.jobs[name]) for name in ("a0", "a1"))
    key = takers.key((one,))
    with draft.trial():
        draft.remember(one.row)
        draft.tx.lift_all(one.row, one.places)
        assert takers.rank(RoomMade((), (one,), ())) == takers.at_best(key)
        assert takers.rank(RoomMade((two,), (one,), ())) > takers.at_best(key)
    assert takers.rank(RoomMade((), (), ())) == takers.at_best(()) < takers.rank(RoomMade((two,), (), ()))
    assert Movers(draft, row, asked).at_best(key) == ()


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many had stepped aside, each time that a try was brought to its end."""
    found: list[int] = []
    settle = Settling.settle

    def noted(self: Settling, gone: list[Unit], thorough: bool = False) -> RoomMade | None:
        found.append(len(gone))
        return settle(self, gone, thorough)

    monkeypatch.setattr(Settling, "settle", noted)
    return found


def test_many_equal_claims_on_one_node_are_settled_with_few_tries(settled: list[int]):
    found = outlook(moment(CLAIMS))
    assert sum(isinstance(action, Evict) for action in found.actions) == 6
    assert len(settled) < 100


def test_at_a_limit_that_nobody_who_may_stop_is_under_nothing_is_tried(settled: list[int]):
    text = """
nodes: [{name: n0, gpus: 8}]
queues: [{name: a}, {name: b, quota: 4, limit: 2}]
jobs:
  - {name: "x{i}", times: 6, queue: a, at: "n0:{i}"}
  - {name: y, queue: b, at: "n0:6"}
  - {name: z, queue: b, at: "n0:7"}
  - {name: w, queue: b, gpus: 1}
"""
    assert not outlook(moment(text)).actions
    assert len(settled) <= 4


MODELS = """
nodes: [{name: n0, gpus: 2, model: A100}, {name: n1, gpus: 2, model: H100}]
queues: [{name: q, limit: {A100: 1}}]
jobs:
  - {name: any, queue: q, at: "n0:0"}
  - {name: wants, queue: q, gpus: 1, models: [A100]}
"""


def test_where_queues_count_the_gpus_of_a_model_a_move_may_change_who_may_stop():
    fleet = Fleet(moment(MODELS))
    assert fleet.tree.by_model
    assert not Fleet(moment(CLAIMS)).tree.by_model
