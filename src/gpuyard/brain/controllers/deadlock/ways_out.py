"""What would end a circle that nobody breaks: tried, with its bill, and put into words for an operator (rule 23)."""

from __future__ import annotations

from typing import NamedTuple

from gpuyard.brain.controllers.deadlock.parties import Party, Role
from gpuyard.brain.engine.giving_way import stale_gangs, victims
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.settling import billing, evacuation, stories
from gpuyard.model.actions import Action, Evict, Move
from gpuyard.model.answers.bill import Bill, Toll
from gpuyard.model.outside.phrases import duration
from gpuyard.model.resources import WHOLE, gpu_words


class WayOut(NamedTuple):
    """A sentence, and the actions that it stands for, if there are any that we could take."""

    message: str
    actions: tuple[Action, ...] = ()


def by_stopping(draft: Draft, party: Party) -> WayOut:
    """One of the circle gives way."""
    unit = victims.whole(party.row)
    bill = Bill((Toll(party.name, unit.cost, victims.lost_work(draft, unit) / WHOLE, moved=False),))
    return WayOut(f"`yard requeue {party.name}` would end it ({_told(bill)})")


def by_nobody_of_ours(draft: Draft, circle: list[Party]) -> WayOut:
    """Past a budget, where one keeps the circle closed; else others have to let go of what they hold."""
    for party in circle:
        if party.role is Role.SPARED:
            for gang in (other for other in circle if other.name in party.waits):
                if (found := _past_budget(draft, gang, party.where)) is not None:
                    return found
    foreign = " and ".join(party.name for party in circle if party.row.job.foreign)
    return WayOut(f"it ends when {foreign} lets go, which is not ours to stop" if foreign else "nobody may give way")


def _past_budget(draft: Draft, party: Party, name: str) -> WayOut | None:
    """Whom completing the gang would disturb if the budget were not, at what cost; None if that would not help."""
    with draft.relaxed(budget=name):
        if not stale_gangs.repair(draft, party.row):
            return None
        changed = {n: held for n, held in draft.before.items() if draft.is_changed(draft.fleet.jobs[n])}
        actions = evacuation.net_actions(draft.fleet, changed, stories.Story(draft.because, draft.served))
        bill = billing.bill(draft, actions, changed)
    disturbing = [each for each in actions if isinstance(each, Move | Evict) and each.job != party.name]
    told = " and ".join(f"{'moving' if isinstance(each, Move) else 'stopping'} {each.job}" for each in disturbing)
    return WayOut(f"{told} would end it ({_told(bill)}), which budget {name} forbids", actions)


def _told(bill: Bill) -> str:
    return f"{gpu_words(bill.gpus)} disturbed, {duration(bill.lost_gpu_s)} of GPU time to do again"
