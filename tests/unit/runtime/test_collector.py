"""What is made while the garbage collector rests, and what of it is looked through afterwards."""

from __future__ import annotations

import gc
import weakref

from gpuyard.model.outside.collector import SELDOM, collector_resting, collector_seldom, made_to_stay


class Knot:
    """Holds itself, so that only the collector can let it go."""

    def __init__(self) -> None:
        self.me = self


def is_old(thing: object) -> bool:
    return any(each is thing for each in gc.get_objects(generation=2))


def test_what_is_made_to_stay_counts_as_old_at_once():
    with collector_resting():
        before, knot = gc.isenabled(), Knot()
        assert not is_old(knot)
        made_to_stay()
        assert is_old(knot)
        assert not is_old(young := Knot())
    assert not before
    assert gc.isenabled()
    assert young.me is young


def test_what_was_to_stay_and_became_garbage_is_found_after_all():
    with collector_resting():
        seen = weakref.ref(Knot())
        made_to_stay()
    assert seen() is not None
    gc.collect()
    assert seen() is None


def test_garbage_is_looked_for_seldom_and_found_in_the_end():
    before = gc.get_threshold()
    with collector_seldom():
        gc.collect()
        seen = weakref.ref(Knot())
        kept: list[list[int]] = [[] for _ in range(before[0] + 1)]
        assert seen() is not None
        kept += [[] for _ in range(SELDOM)]
        assert seen() is None
    assert gc.get_threshold() == before
    assert kept
