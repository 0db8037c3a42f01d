"""Circles among those who wait for each other, and whether letting one of them give way would help another."""

from __future__ import annotations

from collections.abc import Iterator

from gpuyard.brain.controllers.deadlock.parties import Parties, Party, Role
from gpuyard.brain.engine.giving_way import stale_gangs, victims
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.placing import gang


def circles(parties: Parties) -> Iterator[list[str]]:
    """Those who all wait for each other, directly or through others; each circle once, in the order of the parties."""
    reach = {name: _reachable(parties, name) for name in parties}
    told: set[str] = set()
    for name in parties:
        circle = [other for other in parties if other in reach[name] and name in reach[other]]
        if circle and name not in told and any(parties[each].role is Role.HALF for each in circle):
            told.update(circle)
            yield circle


def _reachable(parties: Parties, start: str) -> set[str]:
    found: set[str] = set()
    ahead = [start]
    while ahead:
        for name in parties[ahead.pop()].waits:
            if name in parties and name not in found:
                found.add(name)
                ahead.append(name)
    return found


def who_is_helped(draft: Draft, victim: Party, circle: list[Party]) -> str:
    """Who of ours can go on once this one has given way; "" if nobody can, and nothing is gained by it."""
    with draft.trial():
        step_back(draft, victim)
        others = [party for party in circle if party is not victim and not party.row.job.foreign]
        halves = {party.name: party for party in others if party.role is Role.HALF}
        for row in stale_gangs.in_order(party.row for party in halves.values()):
            if stale_gangs.repair(draft, row):
                return row.name
        return next((party.name for party in others if _goes_on(draft, party)), "")


def _goes_on(draft: Draft, party: Party) -> bool:
    """Whether somebody with a reservation could start, or somebody who must leave a node could move."""
    with draft.trial():
        if party.role is Role.RESERVED:
            kept = draft.kept[party.name]
            draft.tx.lift_all(kept.stand_in, list(kept.stand_in.held))
            return gang.place(draft, party.row)
        if party.role is Role.DRAINED:
            draft.remember(party.row)
            draft.tx.lift_all(party.row, victims.whole(party.row).places)
            return gang.place(draft, party.row)
        return False


def step_back(draft: Draft, victim: Party) -> None:
    """A half-placed gang leaves its places; one that holds nothing gives back what is kept for it."""
    if victim.role is Role.RESERVED:
        kept = draft.kept[victim.name]
        draft.tx.lift_all(kept.stand_in, list(kept.stand_in.held))
        del draft.kept[victim.name]
        return
    draft.remember(victim.row)
    draft.tx.lift_all(victim.row, victims.whole(victim.row).places)


def needs_what_others_hold(draft: Draft, circle: list[Party]) -> bool:
    """Whether one of ours would be complete if the load that is not ours were gone."""
    with draft.trial():
        for party in circle:
            if party.row.job.foreign:
                draft.remember(party.row)
                draft.tx.lift_all(party.row, victims.whole(party.row).places)
        return any(stale_gangs.repair(draft, party.row) for party in circle if party.ours and party.role is Role.HALF)


def gives_way(draft: Draft, party: Party) -> tuple[object, ...]:
    """The lower priority, then the cheaper, then the younger."""
    row = party.row
    return (row.priority, victims.lost_work(draft, victims.whole(row)), row.youth)
