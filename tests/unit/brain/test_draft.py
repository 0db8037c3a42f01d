"""The plan in the making: what it notes, what it takes back, when it is to be looked at again."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from gpuyard.brain import foresee
from gpuyard.brain.decide import decide
from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.picture.draft import FITS, Draft, Kept
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.resources import WHOLE
from tests.support.moments import moment

YARD = """
nodes: [{name: n, times: 2, gpus: 8}]
queues:
  - {name: top, quota: 8}
  - {name: a, parent: top, quota: 4}
  - {name: b, parent: top, quota: 4}
  - {name: c, quota: 8}
jobs:
  - {name: a0, queue: a, gpus: 2, at: "n0:0-1"}
  - {name: a1, queue: a, gpus: 3, at: "n0:2-4"}
  - {name: b0, queue: b, gpus: 1, at: "n0:5"}
  - {name: w, queue: c, gpus: 4}
  - {name: v, queue: b, gpus: 5}
"""
NOW = 1000.0


def draft_of() -> Draft:
    return Draft(Fleet(moment(YARD)), Memory(), NOW)


def on(node: int, *gpus: int) -> Held:
    return Held(0, 0, node, gpus, cost=len(gpus) * WHOLE)


def test_the_earliest_moment_to_come_is_when_to_look_again():
    draft = draft_of()
    found = []
    for at in (NOW - 1, NOW, NOW + 9, NOW + 20, NOW + 5):
        draft.look_again(at)
        found.append(draft.said.look_again_at)
    assert found == [None, None, NOW + 9, NOW + 9, NOW + 5]


def largest(draft: Draft) -> dict[str, int]:
    return {name: draft.largest_gang(draft.fleet.tree.index[name]) // WHOLE for name in ("a", "b", "c", "top", "root")}


def test_the_largest_gang_of_a_queue_is_that_of_any_queue_below_it_and_of_whoever_came_since():
    draft = draft_of()
    assert largest(draft) == {"a": 3, "b": 1, "c": 0, "top": 3, "root": 3}
    v = draft.fleet.jobs["v"]
    draft.tx.put(v, on(1, 0, 1, 2, 3, 4))
    draft.accept(v, FITS)
    assert largest(draft) == {"a": 3, "b": 5, "c": 0, "top": 5, "root": 5}


def test_what_was_taken_before_anybody_asked_counts_too():
    draft = draft_of()
    draft.tx.put(draft.fleet.jobs["w"], on(1, 0, 1, 2, 3))
    assert largest(draft) == {"a": 3, "b": 1, "c": 4, "top": 3, "root": 4}


def test_a_job_is_changed_if_it_is_elsewhere_than_it_was():
    draft = draft_of()
    row = draft.fleet.jobs["a0"]
    before = tuple(row.held)
    assert not draft.is_changed(row)
    draft.remember(row)
    assert not draft.is_changed(row)
    draft.tx.lift(row, before[0])
    assert draft.is_changed(row)
    assert draft.origin(row) == before
    draft.remember(row)
    assert draft.before["a0"] == before, "the first word counts"
    draft.tx.put(row, on(1, 0, 1))
    assert draft.is_changed(row)
    assert Draft(draft.fleet, Memory(), NOW, {"a0": before}).origin(row) == before
    assert Draft(draft.fleet, Memory(), NOW).origin(row) == (on(1, 0, 1),)


def test_more_is_free_once_some_node_has_more_than_when_nothing_fitted():
    draft = draft_of()
    assert draft.more_is_free(), "nobody has looked yet"
    draft.note_free()
    assert not draft.more_is_free()
    row = draft.fleet.jobs["b0"]
    held = row.held[0]
    draft.tx.lift(row, held)
    assert draft.more_is_free()
    draft.note_free()
    assert not draft.more_is_free()
    draft.tx.put(row, held)
    assert not draft.more_is_free()


@pytest.mark.parametrize(("first", "kept"), [(Code.STALE, True), (Code.DEADLOCK, True), (Code.FITS, False)])
def test_that_a_gang_had_to_leave_is_told_of_it_whatever_comes_after(first: Code, kept: bool):
    draft = draft_of()
    row, why = draft.fleet.jobs["a0"], Reason(first)
    draft.because["a0"] = why
    draft.accept(row, Reason(Code.GROWS))
    assert (draft.because["a0"] is why) is kept


def test_jobs_that_wait_for_quota_are_counted_and_the_latest_word_on_a_job_counts():
    draft = draft_of()
    w, v = draft.fleet.jobs["w"], draft.fleet.jobs["v"]
    over, shape = Reason(Code.OVER_LIMIT), Reason(Code.FRAGMENTED)
    draft.wait((w, v), over)
    assert (draft.waits.over_quota, draft.waits.of("w"), draft.waits.of("a0")) == (2, over, None)
    mark = draft.waits.checkpoint()
    draft.wait((w,), shape)
    assert (draft.waits.over_quota, draft.waits.of("w"), draft.waits.of("v")) == (2, shape, over)
    with draft.trial():
        draft.wait((w,), over)
        assert draft.waits.over_quota == 3
    assert draft.waits.over_quota == 2
    assert [each.job for each in draft.waits] == ["v", "w"]
    assert (len(draft.waits), draft.waits[0].reason, draft.waits[1].reason) == (2, over, shape)
    draft.accept(v, FITS)
    assert [each.job for each in draft.waits] == ["w"]
    draft.waits.rollback(mark)
    assert [each.reason for each in draft.waits] == [over, over]
    assert draft.waits == tuple(draft.waits)
    assert draft.waits != ()


# --- trials ---------------------------------------------------------------------------------------


def test_a_trial_that_is_not_kept_leaves_no_trace_also_when_it_fails():
    draft = draft_of()
    row, w = draft.fleet.jobs["a0"], draft.fleet.jobs["w"]
    held = row.held[0]
    draft.because["a0"] = FITS
    draft.wait((w,), Reason(Code.OVER_LIMIT))

    def disturb() -> None:
        draft.remember(row)
        draft.tx.lift(row, held)
        draft.because["a0"] = Reason(Code.GROWS)
        draft.served["a0"] = "w"
        draft.wait((w,), Reason(Code.FRAGMENTED))

    def stands() -> bool:
        noted = (dict(draft.before), dict(draft.served), draft.because["a0"].code)
        return row.held == [held] and noted == ({}, {}, Code.FITS) and draft.waits[0].reason.code is Code.OVER_LIMIT

    with draft.trial() as trial:
        assert trial.untouched()
        disturb()
        assert not trial.untouched()
    assert stands()

    def fail() -> None:
        with draft.trial() as trial:
            disturb()
            trial.keep()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert stands()
    with draft.trial() as trial:
        disturb()
        trial.undo()
        assert stands()
        trial.keep()
    assert stands()
    with draft.trial() as trial:
        disturb()
        trial.keep()
    assert not stands()
    assert draft.before == {"a0": (held,)}


def test_a_note_that_is_made_only_where_there_is_none_is_taken_back_with_the_trial():
    draft = draft_of()
    first, second = Reason(Code.FITS), Reason(Code.GROWS)
    with draft.trial():
        assert draft.because.setdefault("a0", first) is first
        assert draft.because.setdefault("a0", second) is first
    assert draft.because == {}


def test_what_binds_in_a_trial_binds_no_longer_than_the_trial_also_when_it_is_kept_or_fails():
    draft = draft_of()
    row = draft.fleet.jobs["w"]

    def binding() -> list[Kept]:
        return list(draft.binding)

    kept = Kept(row, (), None, False, row)
    with draft.bound([kept]) as trial:
        assert binding() == [kept]
        with draft.bound([]):
            assert binding() == []
        assert binding() == [kept]
        trial.keep()
    assert binding() == []
    with pytest.raises(ZeroDivisionError), draft.bound([kept]):
        raise ZeroDivisionError
    assert binding() == []


def test_rules_set_aside_for_a_look_are_back_afterwards_and_nothing_of_it_is_kept():
    draft = draft_of()

    def aside() -> tuple[bool, bool]:
        return draft.quota_aside, draft.fleet.company.heeded

    draft.fleet.company.heeded = True
    caps, avoiders, draft.effort = draft.fleet.capped, draft.fleet.avoiders, 3
    with draft.relaxed(quota=False, caps=False, neighbours=False) as trial:
        assert aside() == (True, False)
        assert (draft.fleet.capped, draft.fleet.avoiders) == ([], {})
        draft.effort = 9
        with draft.relaxed():
            assert aside() == (True, False), "what is outside set it aside already"
        assert aside() == (True, False)
        with pytest.raises(AssertionError, match="cannot be kept"):
            trial.keep()
    assert aside() == (False, True)
    assert (draft.fleet.capped, draft.fleet.avoiders) == (caps, avoiders)
    assert draft.effort == 3
    with draft.relaxed():
        assert aside() == (False, True)
        assert draft.fleet.capped is caps


# --- what is let go ---------------------------------------------------------------------------------------------------

CONTEST = """
nodes: [{name: n, times: 4, gpus: 8}]
queues: [{name: a, quota: 32}, {name: b}]
jobs:
  - {name: w, queue: a, tasks: 2, gpus: 8}
""" + "".join(f"  - {{name: b{n}{g}, queue: b, gpus: 1, at: 'n{n}:{g}'}}\n" for n in range(4) for g in range(8))


@pytest.fixture
def nobody_looks_for_garbage() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("nobody_looks_for_garbage")
def test_a_plan_in_which_others_give_way_keeps_no_picture_alive_once_it_is_made():
    fleet = Fleet(moment(CONTEST))
    picture = weakref.ref(fleet)
    plan, _ = decide(fleet, Memory(), NOW)
    assert len(plan.actions) == 17
    del fleet
    assert picture() is None


@pytest.mark.usefixtures("nobody_looks_for_garbage")
def test_foresight_keeps_no_picture_alive_once_all_is_told(monkeypatch: pytest.MonkeyPatch):
    pictures: list[weakref.ref[Fleet]] = []

    class Seen(Fleet):
        def __init__(self, *told: object) -> None:
            super().__init__(*told)  # type: ignore[arg-type]
            pictures.append(weakref.ref(self))

    monkeypatch.setattr(foresee, "Fleet", Seen)
    outlook = foresee.outlook(moment(CONTEST))
    assert len(outlook.waiting) == 16
    assert len(pictures) >= 1
    assert [picture() for picture in pictures] == [None] * len(pictures)
