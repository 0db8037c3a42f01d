"""Deadlock: those who each hold, or are kept, what the other needs (rule 23).

Called by `decide` before the cycle. Inside the brain no half-placed gang can arise, gangs start whole or not at all;
around it it can: foreign schedulers, members that died, limits that were lowered. A circle may run over nodes, a
queue's quota or limit, a disruption budget, a reservation or a drain; it is named, and by policy broken.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import replace
from typing import NamedTuple

from gpuyard.brain.controllers import Controller, Nothing
from gpuyard.brain.controllers.deadlock import circles, parties, ways_out
from gpuyard.brain.controllers.deadlock.parties import Parties, Party, Role
from gpuyard.brain.engine.giving_way import stale_gangs
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.settling import evacuation
from gpuyard.model.actions import Action, Deadlock
from gpuyard.model.policy import DeadlockRule
from gpuyard.model.reasons import Code, Reason


class Deadlocks(Controller[Nothing]):
    """Ends every deadlock, or says how it would."""

    part = Nothing

    def act(self, draft: Draft, part: Nothing) -> Nothing:
        """Name every circle and, if the policy says so, let one after the other give way until none is left."""
        resolve(draft)
        return part


class Knot(NamedTuple):
    """A circle: who of it gives way and whom that helps, or what would end it that nobody may do."""

    deadlock: Deadlock
    party: Party | None = None
    helped: str = ""
    forbidden: tuple[Action, ...] = ()


def resolve(draft: Draft) -> None:
    """One circle after the other; those that nobody can break are named once."""
    named: set[tuple[str, ...]] = set()
    while (knot := find(draft, named)) is not None:
        named.add(knot.deadlock.jobs)
        if knot.party is None or draft.policy.deadlock is DeadlockRule.PROPOSE:
            draft.said.deadlocks.append(knot.deadlock)
            _propose(draft, knot)
        else:
            draft.said.deadlocks.append(replace(knot.deadlock, way_out=""))
            _untie(draft, knot, knot.party)


def _propose(draft: Draft, knot: Knot) -> None:
    for action in knot.forbidden:
        draft.propose(action)
    if knot.party is not None and knot.party.role is Role.HALF:
        reason = Reason(Code.DEADLOCK, message=knot.deadlock.message)
        evacuation.propose_eviction(draft, knot.party.name, reason, knot.helped)


def _untie(draft: Draft, knot: Knot, party: Party) -> None:
    if party.role is Role.RESERVED:
        circles.step_back(draft, party)
        return
    stale_gangs.release(draft, party.row, Reason(Code.DEADLOCK, message=knot.deadlock.message))
    draft.served[party.name] = knot.helped


def find(draft: Draft, named: Container[tuple[str, ...]] = ()) -> Knot | None:
    """The first circle that was not named yet; None if there is none."""
    known = parties.find(draft)
    for circle in circles.circles(known) if known else ():
        if tuple(circle) not in named:
            found = _judged(draft, known, circle)
            if found is not None:
                return found
    return None


def _judged(draft: Draft, known: Parties, circle: list[str]) -> Knot | None:
    """The circle as a deadlock; None where breaking it helps nobody of ours, so that it is no more than a queue."""
    members = [known[name] for name in circle]
    message = "; ".join(party.told(circle) for party in members)
    for party, helped in _who_could_give_way(draft, members):
        way_out = ways_out.by_stopping(draft, party).message
        return Knot(Deadlock(tuple(circle), message, party.name, way_out), party, helped)
    spared = any(party.role is Role.SPARED for party in members)
    foreign = [party.row.job.foreign for party in members]
    if all(foreign) or spared or (any(foreign) and circles.needs_what_others_hold(draft, members)):
        way = ways_out.by_nobody_of_ours(draft, members)
        return Knot(Deadlock(tuple(circle), message, "", way.message), forbidden=way.actions)
    return None


def _who_could_give_way(draft: Draft, members: list[Party]) -> Iterator[tuple[Party, str]]:
    ours = sorted((party for party in members if party.ours), key=lambda party: circles.gives_way(draft, party))
    for party in ours:
        helped = circles.who_is_helped(draft, party, members)
        if helped:
            yield party, helped
