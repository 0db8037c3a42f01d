"""Who can be part of a circle: gangs that are half-placed and stuck, and whoever they and a reservation, a drain or a
disruption budget keep from going on. Each knows whom it waits for, and in which words that is said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from gpuyard.brain.engine.giving_way import stale_gangs, victims
from gpuyard.brain.engine.nodes.requests import STATIC_CHECKERS, is_open
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import NO_QUEUE, JobRow
from gpuyard.brain.engine.placing import gang
from gpuyard.model.node import Budget
from gpuyard.model.resources import as_gpus


class Role(Enum):
    """How somebody comes to stand in a circle."""

    HALF = "half-placed"
    """Below its minimum, and cannot be repaired."""
    RESERVED = "reserved"
    """Waits; GPUs that fall free are kept for it (rule 20)."""
    DRAINED = "drained"
    """Must leave what is being drained, may not be stopped, and has no other place."""
    SPARED = "spared"
    """Would be moved or taken, but for a budget that waits for somebody of the circle."""


@dataclass
class Party:
    """One of them. `where` is the node it must leave, or the budget that spares it."""

    row: JobRow
    role: Role
    where: str = ""
    waits: dict[str, str] = field(default_factory=dict)
    """For whom, and the words that follow."""

    @property
    def name(self) -> str:
        """The job's."""
        return self.row.name

    @property
    def ours(self) -> bool:
        """Whether it could give way at all."""
        return not self.row.job.foreign and self.role in (Role.HALF, Role.RESERVED)

    def told(self, circle: list[str]) -> str:
        """What it has and waits for, as far as the circle goes."""
        others = [name for name in circle if name in self.waits]
        whom = " and ".join(others) + next((self.waits[name] for name in others if self.waits[name]), "")
        match self.role:
            case Role.RESERVED:
                return f"{self.name} has GPUs reserved and waits for {whom}"
            case Role.DRAINED:
                return f"{self.name} must leave {self.where}, which is being drained, and waits for {whom}"
            case Role.SPARED:
                return f"{self.name} may not be disturbed by budget {self.where} until {whom} is complete"
            case _:
                return f"{self.name} holds {as_gpus(sum(held.cost for held in self.row.held))} and waits for {whom}"


Parties = dict[str, Party]


def find(draft: Draft) -> Parties:
    """Everybody who may stand in a circle now, the older first; nobody where no gang is stuck."""
    fleet = draft.fleet
    if not (fleet.rolls.halves or fleet.rolls.outside):  # as in most plans
        return {}
    halves = [row for row in (*fleet.rolls.halves.values(), *fleet.rolls.outside.values()) if row.alive()]
    if not halves or (len(halves) == 1 and not (draft.kept or fleet.budgets or _drained(draft))):
        return {}
    halves.sort(key=lambda row: row.age)
    stuck = [row for row in halves if row.job.foreign or not can_be_repaired(draft, row, halves)]
    parties = {row.name: Party(row, Role.HALF) for row in stuck}
    if not parties:
        return {}
    for name, kept in sorted(draft.kept.items()):
        parties.setdefault(name, Party(kept.row, Role.RESERVED))
    for row, node in sorted(_homeless(draft), key=lambda each: each[0].age):
        parties.setdefault(row.name, Party(row, Role.DRAINED, node))
    for party in [party for party in parties.values() if party.role is Role.HALF]:
        _look_for_spared(draft, party, parties)
    for party in parties.values():
        party.waits.update(_waits_for(draft, party, parties))
    return parties


def can_be_repaired(draft: Draft, row: JobRow, halves: list[JobRow]) -> bool:
    """Whether the gang can be completed without disturbing another one that is half-placed itself."""
    others = {other.name: tuple(other.held) for other in halves if other is not row}
    with draft.trial():
        repaired = stale_gangs.repair(draft, row)
        disturbed = any(sorted(draft.fleet.jobs[name].held) != sorted(held) for name, held in others.items())
        return repaired and not disturbed


# --- who waits for whom -----------------------------------------------------------------------------------------------


def _waits_for(draft: Draft, party: Party, parties: Parties) -> dict[str, str]:
    if party.role is Role.RESERVED:
        wanted = {(held.node, gpu) for held in draft.kept[party.name].places for gpu in held.gpus}
        return {
            other.name: ""
            for other in _halves(party, parties)
            if any((held.node, gpu) in wanted for held in other.row.held for gpu in held.gpus)
        }
    if party.role is Role.SPARED:
        return {}
    if party.role is Role.HALF and not party.row.job.foreign:
        shut = _under_a_queue(draft, party, parties)
        if shut is not None:
            return shut
    return dict(_over_nodes(draft, party, parties))


def _halves(party: Party, parties: Parties) -> Iterator[Party]:
    return (other for other in parties.values() if other is not party and other.role is Role.HALF)


def _under_a_queue(draft: Draft, party: Party, parties: Parties) -> dict[str, str] | None:
    """The other stuck gangs that hold room in the queue that shuts this one out; None if none does."""
    tree, row = draft.fleet.tree, party.row
    excess = tree.refuses(row.queue, draft.fleet.shortfall(row), row.firm)
    if excess is None:
        return None
    q = tree.index[excess.queue]
    counts = [o for o in _halves(party, parties) if o.row.queue != NO_QUEUE and q in tree.paths[o.row.queue]]
    words = f" under the {excess.kind} of queue {excess.queue}"
    return {other.name: words for other in counts if other.row.firm or excess.kind == "limit"}


def _over_nodes(draft: Draft, party: Party, parties: Parties) -> Iterator[tuple[str, str]]:
    """Who holds GPUs, or is kept some, on nodes that this one could use; and who is to leave one that it could."""
    usable = [draft.fleet.shapes.static(request, STATIC_CHECKERS) for request in party.row.requests]
    for other in parties.values():
        if other is party:
            continue
        if other.role is Role.HALF:
            found = any(mask[held.node] for held in other.row.held for mask in usable)
        elif other.role is Role.RESERVED and party.role is Role.HALF:
            held_for = draft.kept[other.name].stand_in.held
            found = any(mask[held.node] for held in held_for for mask in usable)
        elif other.role is Role.DRAINED and party.role is Role.HALF:
            found = _would_suit(draft, party.row, other.where)
        else:
            continue
        if found:
            yield other.name, ""


def _would_suit(draft: Draft, row: JobRow, node: str) -> bool:
    """Whether one of the gang's tasks could run on the node, were it open."""
    described = draft.fleet.columns.nodes[draft.fleet.columns.index[node]]
    checkers = [checker for checker in STATIC_CHECKERS if checker is not is_open]
    return any(all(checker(request, described) for checker in checkers) for request in row.requests)


# --- drains and budgets -----------------------------------------------------------------------------------------------


def _drained(draft: Draft) -> list[str]:
    return [n.name for n in draft.fleet.odd_nodes() if n.closed is not None and n.closed.drains and not n.closed.force]


def _homeless(draft: Draft) -> Iterator[tuple[JobRow, str]]:
    """Who may not be stopped, must leave a drained node, and finds no other place."""
    for node in _drained(draft):
        for row in list(draft.fleet.tenants[draft.fleet.columns.index[node]]):
            if row.firm and row.complete() and not row.job.foreign and not has_place(draft, row):
                yield row, node


def has_place(draft: Draft, row: JobRow) -> bool:
    """Whether a whole gang would fit as things are, were it lifted first."""
    with draft.trial():
        draft.remember(row)
        draft.tx.lift_all(row, victims.whole(row).places)
        return gang.place(draft, row)


def _look_for_spared(draft: Draft, party: Party, parties: Parties) -> None:
    """Whoever would make room for the gang but for a budget that counts the gang's own missing tasks against it."""
    for budget in draft.fleet.budgets:
        if party.name in budget.jobs and victims.headroom(draft, budget) <= 0:
            for name in who_would_go(draft, party.row, budget):
                if name in budget.jobs:
                    spared = parties.setdefault(name, Party(draft.fleet.jobs[name], Role.SPARED, budget.name))
                    spared.waits[party.name] = ""
                    party.waits[name] = ""


def who_would_go(draft: Draft, row: JobRow, budget: Budget) -> list[str]:
    """Whom completing the gang would disturb if that budget were not; nobody if it would not be completed either."""
    with draft.relaxed(budget=budget.name):
        if not stale_gangs.repair(draft, row):
            return []
        return sorted(name for name in draft.before if name != row.name and draft.is_changed(draft.fleet.jobs[name]))
