"""Work that is kept: how often the brain takes its costly steps to answer a moment, counted and not timed.

A bound, a memo or an early end changes no answer, only what it costs; these numbers are the same on every machine, so
one that was lost shows here as the moment for which twice as many places are tried. `tests/answers/work.txt` holds
them, one question to a drawn yard a line, and `make answers` keeps what is meant to have changed.
"""

from __future__ import annotations

import cProfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

KEPT = Path(__file__).resolve().parent.parent / "answers" / "work.txt"

STEPS: dict[str, dict[str, str]] = {
    "trying": {
        "picture.trial": "Trial.__init__ Trial.undo Relaxed.__init__",
        "picture.draft": "Draft.look_again Draft.note_free",
        "picture.turnover": "Turnover.before _round",
    },
    "placing": {
        "placing.gang": "place lay_group shapes might_fit could_ever_fit Tree.place Tree._largest",
        "placing.adding": "grow _add",
        "placing.topology": "_places _pack lay lay_one put_one best_node _lay_inside _lay_singly _domains _unbroken",
        "placing.devices": "pick stands_free _shared_device _slices island_for",
        "placing.neighbours": "limits _avoided _capped _domains_with _uneven",
        "placing.fragmentation": "if_packed _free_per _largest",
        "placing.keeping": "held_off",
    },
    "looking": {
        "nodes.feasibility": "Shape.sync Shape._recall Shape._room_by_size Shape._work_out Shape._work_out_singly "
        "room_on Shapes._work_out_empty",
        "nodes.weighing.one_by_one": "AsItIs.__init__ pack",
        "nodes.touch_log": "TouchLog.since TouchLog.among",
        "nodes.weighing.scoring": "tightness kept_usable one_island balance spares_scarce trust cpu_tightness",
        "nodes.stranding": "Gauge._refresh Gauge.saved_by_whole Gauge.saved_by_share",
        "nodes.demand": "Demand.__init__ Demand.rows Seen._tally",
        "nodes.eligibility": "Eligibility._need Eligibility._find_tiers Eligibility.static Eligibility._large_enough",
        "nodes.extras": "ExtraColumns.suffice ExtraColumns.copies",
        "nodes.free_before": "FreeBefore._note_all FreeBefore.note FreeBefore._grew_on",
        "nodes.vacancy": "Vacancy.room Vacancy._shift",
        "nodes.company": "Company.counts Company._of",
    },
    "sharing": {
        "sharing.fair_share": "fair_shares _divide _pour _due",
        "sharing.quota": "QueueTree.refuses QueueTree.within QueueTree.above",
        "sharing.costs": "Costs._work_out Costs._bound",
        "queueing.ordering": "Turns.next Turns._rank Turns._best_child Turns._best_bucket _ratio",
        "queueing.admission": "refuses over_reason",
    },
    "claiming": {
        "giving_way.claims": "Claim.__init__ Claim._right Claim._right_in_time Claim._by_share Claim._lanes "
        "Claim._goes_before Claim._some_below Claim._change_by",
        "giving_way.reclaim": "Reclaim.allows Reclaim._part Reclaim._bearable_for Reclaim._could_claim_back",
        "giving_way.victims": "profile units_on units_of whole spare_tasks budgets_allow headroom lost_work unsaved",
        "giving_way.preemption": "Takers._key_of_one Takers._may_go Takers._pushed Takers.accepts Takers.stoppable "
        "Takers.rank MixedTakers.allows enough_to_take _most_from",
        "giving_way.consolidation": "Movers.key Movers.allows Movers.lets_move Movers.stoppable",
    },
    "making room": {
        "giving_way.room_making": "RoomMaker.tries RoomMaker._go_on RoomMaker._by_these RoomMaker._may_suffice "
        "RoomMaker._let_go RoomMaker._fits RoomMaker.regions RoomMaker._few_in RoomMaker._clearing RoomMaker.odd",
        "giving_way.clearing": "cheapest_set candidates plausible concerned short_of _leave _greedy _needed "
        "too_many_extras",
        "giving_way.bounds.floors": "on_devices least_key lost _pushes",
        "giving_way.resettling": "Settling._try_to_move Settling._judged Settling._ways Settling._in_circle "
        "Settling._stand_again Settling.settle",
        "giving_way.growth": "_extra _has_extra _by_taking _by_moving",
        "giving_way.stale_gangs": "repair",
        "giving_way.equal_claims": "follow",
        "cycle": "try_start make_room _first_refusal _start_those",
    },
    "settling": {
        "reserving.reservations": "_consider _pools _emptiest _waited",
        "reserving.eta": "_replay _earliest _start _begins_anew limit_end",
        "reserving.backfill": "enough_idle hold_against _binds _would_fit",
        "settling.keeping_places": "_rows _places _displaced _back_around _keeps _free_again _ring _has_new _choices",
        "settling.evacuation": "_change",
        "settling.stories": "_heir _takers why_started",
    },
    "explaining": {
        "explaining.explain": "Explainer._reason Explainer._fits _ladder no_place _outranked Explainer._movable",
        "explaining.obstacles": "Anybody.key Anybody.allows Anybody._least in_the_way",
        "explaining.rungs": "never would_start required_levels failed_rungs",
        "explaining.suggestions": "_probe _sizes _places movable _after_moving",
        "explaining.views": "look _most_in_one_place",
    },
    "tidying": {
        "defrag.search": "DefragSearch._unit_at DefragSearch._clear DefragSearch._attempt DefragSearch._value",
        "defrag.candidates": "DeviceCosts._per_device DeviceCosts._refresh _sums",
        "defrag.usefulness": "Usefulness._refresh Usefulness._room Usefulness.fits Usefulness.room_at",
        "defrag.relocating": "relocate _land _worse_off",
        "defrag.asked": "asked_by measure AskedShape.of_key",
    },
}
"""The steps by what they are for: each is worth counting, and none is remembered from one moment to the next."""

EVERY_QUESTION = 10
"""Of every so manieth yard each answer is counted, of the others the plan alone."""

Counted = dict[str, int]
"""How many steps of each kind."""


def is_kept(name: str, asked: str) -> bool:
    """Whether the work for this question to this moment is counted."""
    kind, _, number = name.partition(" ")
    return kind == "yard" and (asked == "outlook" or int(number) % EVERY_QUESTION == 0)


@cache
def kinds() -> dict[tuple[str, str], str]:
    """What each step is for, by the file and the name of its function."""
    return {
        (f"gpuyard/brain/engine/{module.replace('.', '/')}.py", function): kind
        for kind, modules in STEPS.items()
        for module, functions in modules.items()
        for function in functions.split()
    }


def unknown_steps() -> Iterator[str]:
    """Steps that no function of the brain is called by any more."""
    for modules in STEPS.values():
        for name, functions in modules.items():
            module = import_module(f"gpuyard.brain.engine.{name}")
            for function in functions.split():
                try:
                    attrgetter(function)(module)
                except AttributeError:
                    yield f"{name}: {function}"


def counted(answer: Callable[[], Any]) -> tuple[Any, Counted]:
    """The answer, and the steps that it took."""
    profile = cProfile.Profile(builtins=False)
    profile.enable()
    try:
        said = answer()
    finally:
        profile.disable()
    return said, sorted_out(profile)


def sorted_out(profile: cProfile.Profile) -> Counted:
    found: Counter[str] = Counter()
    for entry in profile.getstats():
        if isinstance(entry.code, str):
            continue
        _, brain, rest = entry.code.co_filename.rpartition("gpuyard/brain/")
        if kind := kinds().get((brain + rest, entry.code.co_qualname)):
            found[kind] += entry.callcount
    return {kind: found[kind] for kind in STEPS}


def differences(name: str, steps: Counted) -> list[str]:
    """The kinds of steps of which there are more or fewer than are kept; what nobody has kept differs in nothing."""
    before = kept().get(name)
    if before is None or before == steps:
        return []
    told = ", ".join(f"{kind} {before[kind]} -> {steps[kind]}" for kind in STEPS if before[kind] != steps[kind])
    return [f"other work than is kept in tests/answers ({told} steps): if that is right, `make answers` keeps it"]


@cache
def kept() -> dict[str, Counted]:
    """Steps by the moment's name."""
    lines = KEPT.read_text(encoding="utf-8").splitlines() if KEPT.exists() else []
    parted = (line.partition(" | ") for line in lines)
    return {name: dict(zip(STEPS, map(int, steps.split()), strict=True)) for steps, _, name in parted}


def keep(found: Mapping[str, Counted]) -> int:
    """Write them down; how many are new or other than before."""
    lines = [f"{' '.join(map(str, steps.values()))} | {name}" for name, steps in sorted(found.items())]
    changed = sum(steps != kept().get(name) for name, steps in found.items())
    KEPT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return changed
