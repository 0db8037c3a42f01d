"""Claims that follow from each other in a circle: each is lawful, and after the last all stand as before the first.

Rules 16 and 17 allow such circles (a higher priority of the own queue is asked for no share, the next queue is), and no
end of theirs is at rest. A plan that comes back to where it was ends there, so who stands in one waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from tests.oracle.claims import Claim, Unit, View
from tests.oracle.places import TooLarge, lifted
from tests.oracle.shapes import Moment, State

MOST_STEPS = 6
MOST_STATES = 60
MOST_TAKES = 12
"""How long a circle is looked for, in how many states, and how many takes are looked at for each claim."""

Who = frozenset[tuple[str, str, int]]


def comes_round(claim: Claim, units: list[Unit], movers: tuple[str, ...]) -> bool:
    """Whether lawful claims that follow from this take lead back to the state in which it was asked."""
    view = View.of(claim.moment, strict=False)
    first = _granted(claim, units, movers)
    goal, seen = _who(claim.state), {_who(claim.state)}
    edge = [first] if first is not None else []
    for _ in range(MOST_STEPS):
        following: list[State] = []
        for state in edge:
            for after in _next(view, state):
                if _who(after) == goal:
                    return True
                if _who(after) not in seen and len(seen) < MOST_STATES:
                    seen.add(_who(after))
                    following.append(after)
        edge = following
    return False


def _who(state: State) -> Who:
    """Who runs, with how many tasks of each group; where does not matter."""
    counts = {name: Counter(spot.group for spot in spots) for name, spots in state.items()}
    return frozenset((name, group, count) for name in counts for group, count in counts[name].items())


def _next(view: View, state: State) -> Iterator[State]:
    """The state after each start, or else each take, of somebody who waits."""
    for name in _waiting(view.moment, state):
        claim = Claim(view, state, name)
        try:
            if claim.fits(state):
                found = _granted(claim, [], ())
                yield from [found] if found is not None else []
                continue
            for units, movers in islice(claim.takes(mixed=False), MOST_TAKES):
                found = _granted(claim, units, movers)
                yield from [found] if found is not None else []
        except TooLarge:
            continue


def _waiting(moment: Moment, state: State) -> list[str]:
    jobs = (moment.jobs[name] for name in sorted(moment.jobs))
    return [j.name for j in jobs if not j.held and j.can_complete and not moment.complete(j, state.get(j.name, ()))]


def _granted(claim: Claim, units: list[Unit], movers: tuple[str, ...]) -> State | None:
    """The state once these are gone, the movers elsewhere, and the claimant stands."""
    left = lifted(claim.state, [(u.job, u.spots) for u in units])
    new = claim.arranged(left, movers)
    if new is None:
        return None
    name = claim.job.name
    return {**left, **{m: new[m] for m in movers}, name: (*left.get(name, ()), *new.get(name, ()))}
