"""The plan told as a cycle of rule 9, decision by decision, so that each can be judged in the state it was made in.

A plan shows its net change only, so the story is told with the places that the plan shows, and stops without a word
where it can no longer be told: where somebody grew meanwhile, where a place was taken by somebody who is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from tests.oracle.claims import Claim, Unit, View, better, listed
from tests.oracle.legal import units_of
from tests.oracle.places import Load, TooLarge, lifted, options
from tests.oracle.plans import UNASKED, Plan, Verdict, changed
from tests.oracle.shapes import Group, Job, Moment, Spot, State
from tests.oracle.shares import first_in_order, use

PATIENCE = 300


class Untold(Exception):
    """The story cannot be told on."""


def decisions_are_the_best(moment: Moment, plan: Plan) -> Iterator[Verdict]:
    """Rules 7, 9, 15 and 19, as far as the plan can be told as a story."""
    if plan.reserves or moment.reserved or moment.going or any(e.code in UNASKED for e in plan.evicts):
        return
    if any(spots and not moment.complete(moment.jobs[n], spots) for n, spots in moment.state.items()):
        return
    try:
        yield from Story(moment, plan).told()
    except (Untold, TooLarge):
        return


class Story:
    """What happened, one decision after the other."""

    def __init__(self, moment: Moment, plan: Plan) -> None:
        self.moment = moment
        self.plan = plan
        self.strict = View.of(moment, strict=True)
        self.lenient = View.of(moment, strict=False)
        self.state: State = dict(moment.state)
        self.placed: tuple[str, ...] = ()
        self.patience = PATIENCE
        self.ran = frozenset(name for name, spots in moment.state.items() if spots)
        self.claims = {e.claimant for e in plan.evicts} | {m.claimant for m in plan.moves}

    def told(self) -> Iterator[Verdict]:
        """Starts in order, then one claim, and so on."""
        while True:
            yield from self._starts()
            claimant = self._next_claimant()
            if not claimant:
                return
            if self._hidden_before(claimant):
                raise Untold
            yield from self._claimed(claimant)
            self.claims.discard(claimant)

    def _waiting(self) -> list[str]:
        jobs = self.moment.jobs.values()
        return [j.name for j in jobs if not self._complete(j.name) and not j.held and j.can_complete]

    def _complete(self, name: str) -> bool:
        return self.moment.complete(self.moment.jobs[name], self.state.get(name, ()))

    # --- all that fits, in order --------------------------------------------------------------------------------------

    def _starts(self) -> Iterator[Verdict]:
        parked: set[str] = set()
        while names := [name for name in self._waiting() if name not in parked]:
            name = first_in_order(self.moment, self.state, names, self.strict.shares, self.ran)
            fits = Claim(self.strict, self.state, name).fits(self.state)
            if not fits:
                parked.add(name)
            elif self.plan.end.get(name):
                yield from self._needless(name)
                self._put(name)
            else:
                if not any(self._may_have_kept(other) for other in parked):
                    yield from self._passed_over(name)
                raise Untold

    def _may_have_kept(self, name: str) -> bool:
        """Whether a job that was blocked may have had a reservation for a while, which the net change does not show."""
        waited = self.moment.now - self.moment.jobs[name].submitted
        limited = any(self.moment.jobs[other].time_limit is not None for other, spots in self.state.items() if spots)
        return limited or waited >= self.moment.reserve_after

    def _needless(self, name: str) -> Iterator[Verdict]:
        gone = [e.job for e in self.plan.evicts if e.claimant == name]
        if (
            gone
            and len(self.plan.starts) == 1
            and len(self.plan.end[name]) == sum(g.wanted for g in self.moment.jobs[name].groups)
        ):
            yield Verdict("needless", name, f"{name} fits at its turn, and {', '.join(gone)} is stopped for it")

    def _passed_over(self, name: str) -> Iterator[Verdict]:
        """It comes first and fits, and does not run in the end: wrong unless a later one may take from it."""
        later = [n for n in self.moment.jobs if n != name and changed(self.moment, self.plan, n)]
        found = Claim(self.strict, self.state, name).arranged(self.state)
        if not later or found is None or not self._fits_anyhow(name, self.placed):
            return
        mine = (*self.state.get(name, ()), *found[name])
        states = (self.state, self.plan.end, self._all_started({**self.state, name: mine}))
        for state in states:
            there = {**state, name: mine}
            for other in [n for n in self.moment.jobs if n != name and n not in self.ran]:  # or of a chain of takes
                claim = Claim(self.lenient, {**there, other: self.moment.state.get(other, ())}, other)
                if claim.right(name, use(self.moment, there)) or claim.right(name, claim.used):
                    return
        yield Verdict("order", name, f"{name} comes first and fits when {', '.join(later)} starts instead")

    def _all_started(self, state: State) -> State:
        """The state once all else that fits has started too: whoever made the side of a job too large may then have
        gone together with it (rule 17), and the net change shows neither."""
        names = [n for n in self._waiting() if not self.moment.complete(self.moment.jobs[n], state.get(n, ()))]
        while names:
            name = first_in_order(self.moment, state, names, self.strict.shares, self.ran)
            names.remove(name)
            claim = Claim(self.strict, state, name)
            found = claim.arranged(state) if claim.admitted(state) else None
            if found is not None:
                state = {**state, name: (*state.get(name, ()), *found[name])}
        return state

    def _fits_anyhow(self, name: str, placed: tuple[str, ...]) -> bool:
        """Whether it fits wherever those stand who started before it: the plan shows only their last place."""
        state = {n: spots for n, spots in self.state.items() if n not in placed}
        return all(Claim(self.strict, other, name).fits(other) for other in self._everywhere(state, placed))

    def _everywhere(self, state: State, placed: tuple[str, ...]) -> Iterator[State]:
        """The state with these jobs started, in every way there is."""
        if not placed:
            yield state
            return
        job = self.moment.jobs[placed[0]]
        tasks = [g for g in job.groups for _ in range(g.wanted)]
        for spots in self._ways(state, job, tasks, ()):
            yield from self._everywhere({**state, job.name: spots}, placed[1:])

    def _ways(self, state: State, job: Job, tasks: list[Group], spots: tuple[Spot, ...]) -> Iterator[tuple[Spot, ...]]:
        self.patience -= 1
        if self.patience < 0:
            raise TooLarge
        if not tasks:
            yield spots
            return
        for spot in options(Load.of(self.moment, {**state, job.name: spots}), job, tasks[0], spots):
            yield from self._ways(state, job, tasks[1:], (*spots, spot))

    def _put(self, name: str) -> None:
        """Start the job where the plan has it; its places must be free in the story too."""
        spots = self.plan.end.get(name, ())
        if len(spots) != sum(g.wanted for g in self.moment.jobs[name].groups):
            raise Untold
        self.state = {**self.state, name: spots}
        self.placed = (*self.placed, name)
        if any(Load.of(self.moment, self.state).broken()):
            raise Untold

    # --- one claim ----------------------------------------------------------------------------------------------------

    def _next_claimant(self) -> str:
        names = [n for n in self._waiting() if n in self.claims]
        if not names:
            return ""
        return first_in_order(self.moment, self.state, names, self.strict.shares, self.ran)

    def _claimed(self, name: str) -> Iterator[Verdict]:
        stops = [e for e in self.plan.evicts if e.claimant == name]
        moves = [m for m in self.plan.moves if m.claimant == name]
        touched = [e.job for e in stops] + [m.job for m in moves]
        if any(self.state.get(job, ()) != self.moment.state.get(job, ()) for job in touched):
            raise Untold
        units = [unit for stop in stops for unit in units_of(self.moment, stop)]
        after = lifted(self.state, [(u.job, u.spots) for u in units])
        for move in moves:
            after[move.job] = self.plan.end.get(move.job, ())
        before, placed = self.state, self.placed
        self.state = after
        self._put(name)
        alone = set(self.plan.starts) <= set(self.placed)
        if units and alone:
            found = list(self._judged(Claim(self.strict, before, name), units))
            movers = tuple(m.job for m in moves)
            if (
                found
                and not self._others_come_first(before, name)
                and self._anyhow(before, placed, name, units, movers)
            ):
                yield from found
        if units and self._merged(Claim(self.lenient, before, name), units):
            raise Untold

    def _merged(self, claim: Claim, units: list[Unit]) -> bool:
        """Whether fewer would have done: then the rest may have gone for somebody whom the plan does not name."""
        after = (lifted(claim.state, [(u.job, u.spots) for u in fewer]) for fewer in _fewer(units))
        return any(claim.fits(state) for state in after)

    def _anyhow(
        self, state: State, placed: tuple[str, ...], name: str, units: list[Unit], movers: tuple[str, ...]
    ) -> bool:
        """Whether the claim is wrong wherever those stood who started before it."""
        base = {n: spots for n, spots in state.items() if n not in placed}
        for other in self._everywhere(base, placed):
            claim = Claim(self.strict, other, name)
            possible = claim.arranged(lifted(other, [(u.job, u.spots) for u in units]), movers) is not None
            if possible and not any(True for _ in self._judged(claim, units)):
                return False
        return True

    def _others_come_first(self, state: State, name: str) -> bool:
        """Whether somebody before the claimant may have claimed something that the net change does not show."""
        self.state, now = state, self.state
        names = self._waiting()
        self.state = now
        while names:
            first = first_in_order(self.moment, state, names, self.strict.shares, self.ran)
            if first == name:
                return False
            if self.plan.end.get(first) or self._could_claim(state, first):
                return True
            names.remove(first)
        return False

    def _hidden_before(self, name: str) -> bool:
        """Whether somebody before the claimant got room in a way that the net change does not show."""
        names = self._waiting()
        while names:
            first = first_in_order(self.moment, self.state, names, self.strict.shares, self.ran)
            if first == name:
                return False
            if self.plan.end.get(first):
                return True
            names.remove(first)
        return False

    def _could_claim(self, state: State, name: str) -> bool:
        claim = Claim(self.lenient, state, name)
        return any(True for _ in claim.moves()) or any(True for _ in claim.takes(mixed=True))

    def _judged(self, claim: Claim, units: list[Unit]) -> Iterator[Verdict]:
        name = claim.job.name
        told = listed(units)
        for movers in claim.moves():
            yield Verdict("take-where-move", name, f"{name} stops {told}; moving {', '.join(movers)} would do")
            return
        for fewer in _fewer(units):
            after = lifted(claim.state, [(u.job, u.spots) for u in fewer])
            if claim.fits(after, ()) and claim.lawful(fewer):
                yield Verdict("too-many", name, f"{name} stops {told}; {listed(fewer)} would do")
                return
        plain = list(claim.takes(mixed=False))
        takes = [
            (other, movers, by)
            for other, movers in (*plain, *claim.takes(mixed=True))
            if (by := better(claim, other, units)) and not (plain and movers and not claim.near(other, movers))
        ]
        hidden = [other for other, _, _ in takes if self._passed_on(claim, other, units)]
        for other, movers, by in takes:
            if other not in hidden and all(better(claim, other, first) for first in hidden):
                aside = f" with {', '.join(movers)} moved" if movers else ""
                yield Verdict(
                    f"not-best-{by.replace(' ', '-')}",
                    name,
                    f"{name} stops {told}; {listed(other)}{aside} is better by {by}",
                )
                return

    def _passed_on(self, claim: Claim, other: list[Unit], units: list[Unit]) -> bool:
        """Whether the better ones may have gone first, and then have taken from those who went in the end: the net
        change shows only these."""
        name = claim.job.name
        gone = lifted(claim.state, [(u.job, u.spots) for u in other])
        after = {**gone, name: self.plan.end.get(name, ())}
        back = [job for job in sorted({u.job for u in other}) if len(self.plan.end.get(job, ())) > len(after[job])]
        takers = [Claim(self.lenient, after, job) for job in back]
        return any(taker.right(u.job, taker.used) for taker in takers for u in units if u.job != taker.job.name)


def _fewer(units: list[Unit]) -> Iterator[list[Unit]]:
    """Every smaller set in which no gang loses its minimum before its extras."""
    for count in range(1, len(units)):
        for some in combinations(units, count):
            chosen = set(some)
            if all(u in chosen for u in units for v in some if u.extra and not v.extra and u.job == v.job):
                yield list(some)
