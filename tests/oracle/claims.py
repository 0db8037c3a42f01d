"""Who may take from whom, and which of two takes is the better: rules 15 to 19, read from their text.

Where the text can be read in two ways a `View` is strict or lenient. What the engine did is wrong only if the lenient
reading forbids it; what it left undone is wrong only if the strict reading allows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from typing import NamedTuple

from tests.oracle.places import Load, TooLarge, arrange, asks, asks_again, circle_in, circular, lifted
from tests.oracle.shapes import RESOURCES, Amounts, Budget, Job, Moment, Spot, State, total
from tests.oracle.shares import (
    Shares,
    above_quota,
    above_share,
    admitted,
    fair_shares,
    stays_within_quota,
    stays_within_share,
    use,
)

MOST_SETS = 1_500
MOST_MOVERS = 2

Closed = frozenset[tuple[str, int]]
"""Devices that are kept for somebody else."""


class Unit(NamedTuple):
    """What goes together: one extra, or what makes up the minimum."""

    job: str
    spots: tuple[Spot, ...]
    extra: bool


def listed(units: list[Unit]) -> str:
    """The units in words."""
    return ", ".join(f"{u.job}{' (extra)' if u.extra else ''}" for u in units)


@dataclass(frozen=True)
class View:
    """One reading of the rules over one moment."""

    moment: Moment
    shares: Shares
    strict: bool
    began: State | None = None
    """Where all stood when the plan began that led here: its net change has no circle (rule 26)."""

    @classmethod
    def of(cls, moment: Moment, strict: bool, began: State | None = None) -> View:
        """A reading."""
        return cls(moment, fair_shares(moment), strict, began)


class Claim:
    """A job in a state, and what it lacks."""

    def __init__(self, view: View, state: State, name: str, lacking: dict[str, int] | None = None) -> None:
        self.view = view
        self.moment = view.moment
        self.state = state
        self.job = view.moment.jobs[name]
        spots = state.get(name, ())
        self.growth = lacking is not None
        self.lacking = view.moment.missing(self.job, spots) if lacking is None else lacking
        costs = [self.moment.cost(self.job, self.job.group(g), None) for g, n in self.lacking.items() for _ in range(n)]
        self.need: Amounts = total(costs)
        self.used = use(view.moment, state)

    # --- starting -----------------------------------------------------------------------------------------------------

    def admitted(self, state: State) -> bool:
        """Rules 2 and 3, whether or not members on their way out count."""
        readings = [admitted(self.moment, state, self.job, self.need, going) for going in (True, False)]
        return all(readings) if self.view.strict else any(readings)

    def fits(self, state: State, movers: tuple[str, ...] = (), closed: Closed = frozenset()) -> bool:
        """Whether the claimant may start in this state, the movers put back somewhere."""
        return self.admitted(state) and self.arranged(state, movers, closed) is not None

    def arranged(
        self,
        state: State,
        movers: tuple[str, ...] = (),
        closed: Closed = frozenset(),
        near: Iterable[Unit] = (),
    ) -> State | None:
        """Places for the claimant and for the movers, the claimant on a node of each of `near`; or None."""
        left = {name: spots for name, spots in state.items() if name not in movers}
        load = Load.of(self.moment, left)
        load.closed |= closed
        wanted = asks(self.job, self.lacking, state.get(self.job.name, ()))
        for name in movers:
            wanted += asks_again(self.moment.jobs[name], state[name])
        before = {name: state[name] for name in movers}

        def suits(after: State) -> bool:
            return not circular(self.moment, before, after) and self._beside(after, near) and self._told(left, after)

        return arrange(load, wanted, suits)

    def _told(self, left: State, after: State) -> bool:
        """Whether the plan that led here may also do this: its net change has no circle then."""
        if self.view.began is None:
            return True
        stands = {name: (*left.get(name, ()), *after.get(name, ())) for name in {*left, *after}}
        return not circle_in(self.view.began, stands)

    def _beside(self, after: State, units: Iterable[Unit]) -> bool:
        """Whether each of these lay on a node where the claimant then runs."""
        nodes = {spot.node for spot in after.get(self.job.name, ())}
        return all(nodes & {spot.node for spot in unit.spots} for unit in units)

    def near(self, units: list[Unit], movers: tuple[str, ...]) -> bool:
        """Whether what is taken lies where the claimant will run: nobody stops elsewhere only to make a place for those
        who move (rule 19), while a take exists that moves nobody."""
        after = lifted(self.state, [(u.job, u.spots) for u in units])
        return self.arranged(after, movers, near=units) is not None

    # --- moving (rule 15) ---------------------------------------------------------------------------------------------

    def movable(self, name: str) -> bool:
        """Whether the whole job may be moved for the claimant."""
        spots = self.state.get(name, ())
        if name == self.job.name or not spots or self.growth or protected(self.view, self.state, whole(name, spots)):
            return False
        if self.view.strict and self._over_limit(name):
            return False
        return not self.borrows() or self.moment.jobs[name].priority <= self.job.priority

    def _over_limit(self, name: str) -> bool:
        """Whether its queues hold more than their limit: rule 2 does not say whether a move is then blocked."""
        path = self.moment.path(self.moment.jobs[name].queue)
        return any(self.used[q][r] > self.moment.queues[q].limit[r] for q in path for r in range(len(RESOURCES)))

    def few_enough(self, movers: tuple[str, ...]) -> bool:
        """A claimant above its fair share moves at most twice its own GPUs."""
        costs = [self.moment.spot_cost(self.moment.jobs[n], s)[0] for n in movers for s in self.state[n]]
        return not self.borrows() or sum(costs) <= 2 * self.need[0]

    def borrows(self) -> bool:
        """Whether it would be above its fair share; read strictly, at any level."""
        path = self.moment.path(self.job.queue)
        levels = path if self.view.strict else path[:1]
        return not all(stays_within_share(self.moment, self.view.shares[q], self.used[q], self.need) for q in levels)

    def moves(self, closed: Closed = frozenset()) -> Iterator[tuple[str, ...]]:
        """Every set of movers that lets the claimant start while all of them run on."""
        if not self.admitted(self.state):
            return
        names = [name for name in sorted(self.state) if self.movable(name)]
        for count in range(1, MOST_MOVERS + 2):
            for movers in combinations(names, count):
                disturbed = [(n, self.state[n]) for n in movers]
                if not self.few_enough(movers) or budget_broken(self.moment, self.state, disturbed):
                    continue
                if self.arranged(self.state, movers, closed) is not None:
                    yield movers

    # --- taking (rules 16 to 18) --------------------------------------------------------------------------------------

    def right(self, name: str, used: Shares) -> str:
        """By which right the claimant may take from the job while the queues hold this; empty if by none."""
        victim, job, moment = self.moment.jobs[name], self.job, self.moment
        if victim.queue == job.queue:
            return "priority" if job.priority > victim.priority else ""
        lent = moment.across == "any" or above_quota(moment, victim.queue, used[victim.queue])
        if moment.across != "never" and job.priority >= moment.critical and victim.priority < job.priority and lent:
            return "critical"
        if self.view.strict and moment.across != "never" and victim.priority >= moment.critical:
            return ""
        return "shares" if self._by_shares(victim, used) else ""

    def _by_shares(self, victim: Job, used: Shares) -> bool:
        moment, shares = self.moment, self.view.shares
        own = self.job.queue
        if not stays_within_share(moment, shares[own], used[own], self.need):
            return False
        ours, theirs = parting(moment, own, victim.queue)
        if stays_within_quota(moment, ours, used[ours], self.need) and above_quota(moment, theirs, used[theirs]):
            return True
        within = stays_within_share(moment, shares[ours], used[ours], self.need)
        return within and above_share(moment, shares[theirs], used[theirs])

    def lawful(self, units: list[Unit]) -> bool:
        """Whether these can go in some order in which each has to, and their side can bear it (rule 17)."""
        return any(self.bearable(units, rights) for rights in self._orders(units))

    def _orders(self, units: list[Unit]) -> Iterator[dict[Unit, str]]:
        """The rights by which they go, for every order that works; each dead end is looked at once."""
        dead: set[frozenset[Unit]] = set()

        def go(left: frozenset[Unit], state: State, rights: dict[Unit, str]) -> Iterator[dict[Unit, str]]:
            if not left:
                yield dict(rights)
                return
            if left in dead:
                return
            worked = False
            used = use(self.moment, state)
            for unit in sorted(left):
                if not unit.extra and any(u.job == unit.job and u.extra for u in left):
                    continue
                right = self.right(unit.job, used)
                if right:
                    after = lifted(state, [(unit.job, unit.spots)])
                    for found in go(left - {unit}, after, {**rights, unit: right}):
                        worked = True
                        yield found
            if not worked:
                dead.add(left)

        yield from go(frozenset(units), self.state, {})

    def bearable(self, units: list[Unit], rights: dict[Unit, str]) -> bool:
        """The last sentence of rule 17."""
        after = lifted(self.state, [(u.job, u.spots) for u in units])
        used = use(self.moment, after)
        return all(not (rights[unit] == "shares" and not self._side_bears(unit, units, after, used)) for unit in units)

    def _side_bears(self, unit: Unit, units: list[Unit], after: State, used: Shares) -> bool:
        moment, shares = self.moment, self.view.shares
        ours, theirs = parting(moment, self.job.queue, moment.jobs[unit.job].queue)
        if stays_within_quota(moment, ours, used[ours], self.need):
            return True
        for r in moment.counted:
            if self.used[theirs][r] > shares[theirs][r]:
                gain = self.need[r]
                if shares[theirs][r] - used[theirs][r] >= gain and (gain or self.view.strict):
                    return False
        return not any(self._claims_back(name, theirs, after, used) for name in self._waiting_below(theirs, after))

    def _waiting_below(self, side: str, after: State) -> list[str]:
        jobs = [job for job in self.moment.jobs.values() if side in self.moment.path(job.queue) and job is not self.job]
        return [j.name for j in jobs if not self.moment.complete(j, after.get(j.name, ())) and not j.held]

    def _claims_back(self, name: str, theirs: str, after: State, used: Shares) -> bool:
        job = self.moment.jobs[name]
        need = self.moment.need(job, after.get(name, ()))
        if not stays_within_quota(self.moment, theirs, used[theirs], need):
            return False
        if self.view.strict:
            return True
        own = job.queue
        return job.can_complete and stays_within_share(self.moment, self.view.shares[own], used[own], need)

    def takes(self, mixed: bool, closed: Closed = frozenset()) -> Iterator[tuple[list[Unit], tuple[str, ...]]]:
        """Every lawful set of stops, with movers if `mixed`, that lets the claimant start."""
        if not self._hopeful(mixed, closed):
            return
        movers = [name for name in sorted(self.state) if self.movable(name)] if mixed else []
        for units in self._reachable():
            gone = [(u.job, u.spots) for u in units]
            after = lifted(self.state, gone)
            stopped = {u.job for u in units}
            for count in range(MOST_MOVERS + 1 if mixed else 1):
                for chosen in combinations([m for m in movers if m not in stopped], count):
                    disturbed = [*gone, *((n, self.state[n]) for n in chosen)]
                    if budget_broken(self.moment, self.state, disturbed) or not self.few_enough(chosen):
                        continue
                    if (
                        self.fits(after, chosen, closed)
                        and not any(self.fits(after, tuple(n for n in chosen if n != m), closed) for m in chosen)
                        and self.lawful(units)
                        and self._all_needed(units, chosen, closed)
                        and not any(self._comes_back(unit, after, chosen) for unit in units)
                    ):
                        yield units, chosen

    def _comes_back(self, unit: Unit, after: State, movers: tuple[str, ...]) -> bool:
        """Whether one of the own queue would start again at once, or could stay for all its place matters: then it has
        not given way, and gives no right to others' GPUs (rules 9, 16 and 17)."""
        job, moment = self.moment.jobs[unit.job], self.moment
        need = total([moment.spot_cost(job, spot) for spot in unit.spots])
        if job.queue != self.job.queue or not admitted(moment, after, job, total([need, self.need]), going=True):
            return False
        left = {name: spots for name, spots in after.items() if name not in movers}
        wanted = asks(self.job, self.lacking, after.get(self.job.name, ()))
        for name in movers:
            wanted += asks_again(moment.jobs[name], after[name])
        stays = {**left, job.name: (*left.get(job.name, ()), *unit.spots)}
        if arrange(Load.of(moment, stays), list(wanted)) is not None:
            return True
        lacking = dict(Counter(spot.group for spot in unit.spots))
        return arrange(Load.of(moment, left), [*wanted, *asks(job, lacking, after.get(job.name, ()))]) is not None

    def _all_needed(self, units: list[Unit], movers: tuple[str, ...], closed: Closed) -> bool:
        """No more than needed: with any of them left, there is no place, or a limit or the own share is in the way."""
        for unit in units:
            rest = [u for u in units if u is not unit and not (unit.extra and u.job == unit.job and not u.extra)]
            state = lifted(self.state, [(u.job, u.spots) for u in rest])
            own = self.moment.jobs[unit.job].queue == self.job.queue
            used = use(self.moment, state)[self.job.queue]
            over = own and not stays_within_share(self.moment, self.view.shares[self.job.queue], used, self.need)
            if not over and self.fits(state, movers, closed):
                return False
        return True

    def _hopeful(self, mixed: bool, closed: Closed) -> bool:
        """Whether the claimant would fit if everybody who may be stopped at all were gone."""
        kept = {}
        for name, spots in self.state.items():
            firm = protected(self.view, self.state, whole(name, spots)) if spots else ""
            kept[name] = spots if name == self.job.name or (firm and not extras(self.view, self.state, name)) else ()
            if firm and not kept[name]:
                spare = {u.spots[0] for u in extras(self.view, self.state, name)}
                kept[name] = tuple(s for s in spots if s not in spare)
        return self.fits(kept, (), closed)

    def _reachable(self) -> Iterator[list[Unit]]:
        """Every set of stops whose members can go in some order, smallest first."""
        seen: set[frozenset[Unit]] = set()
        edge: list[tuple[frozenset[Unit], State]] = [(frozenset(), self.state)]
        while edge:
            following: list[tuple[frozenset[Unit], State]] = []
            for gone, state in edge:
                used = use(self.moment, state)
                for unit in self._next(state):
                    grown = gone | {unit}
                    if grown in seen or not self.right(unit.job, used):
                        continue
                    seen.add(grown)
                    if len(seen) > MOST_SETS:
                        raise TooLarge
                    yield sorted(grown)
                    following.append((grown, lifted(state, [(unit.job, unit.spots)])))
            edge = following

    def _next(self, state: State) -> Iterator[Unit]:
        for name in sorted(state):
            if name == self.job.name or not state[name]:
                continue
            spare = extras(self.view, state, name)
            yield from spare
            unit = whole(name, state[name])
            if not spare and not self.growth and not protected(self.view, state, unit):
                yield unit


# --- who may be disturbed (rules 19 and 21) ---------------------------------------------------------------------------


def whole(name: str, spots: tuple[Spot, ...]) -> Unit:
    """The gang as it stands."""
    return Unit(name, spots, False)


def extras(view: View, state: State, name: str) -> list[Unit]:
    """Each task that may go as an extra: any while there are some to spare, in its minimum runtime only the last."""
    job, moment = view.moment.jobs[name], view.moment
    if not moment.complete(job, state[name]):
        return []
    found: list[Unit] = []
    for group in job.groups:
        live = sorted((s for s in state[name] if s.group == group.name), key=lambda s: s.task)
        spare = len(live) - group.wanted
        if spare > 0:
            young = live[group.wanted :] if in_min_runtime(moment, job) else live
            found += [Unit(name, (spot,), True) for spot in young]
    return [unit for unit in found if not protected(view, state, unit)]


def protected(view: View, state: State, unit: Unit) -> str:
    """Why the unit may not be disturbed; empty if it may."""
    job, moment = view.moment.jobs[unit.job], view.moment
    if not job.preemptible:
        return f"{job.name} is not preemptible"
    if job.evictions >= moment.protect_after:
        return f"{job.name} was evicted {job.evictions} times today"
    if in_min_runtime(moment, job) and not unit.extra:
        return f"{job.name} is inside its minimum runtime"
    return ""


def in_min_runtime(moment: Moment, job: Job) -> bool:
    """Whether the job has not run as long as it may count on."""
    return job.started is not None and moment.now - job.started < job.min_runtime


def budget_broken(moment: Moment, state: State, disturbed: list[tuple[str, tuple[Spot, ...]]]) -> str:
    """The budget that breaks if these tasks are disturbed; empty if none does."""
    gone: Counter[str] = Counter()
    for name, spots in disturbed:
        gone[name] += len(spots)
    for budget in moment.budgets:
        away = sum(gone[name] for name in budget.jobs)
        if away and headroom(moment, state, budget) < away:
            return budget.name
    return ""


def headroom(moment: Moment, state: State, budget: Budget) -> int:
    """How many tasks may be disturbed before the budget breaks."""
    if budget.left is not None:
        return budget.left
    live = sum(len(state.get(name, ())) for name in budget.jobs)
    if budget.min_available is not None:
        return live - budget.min_available
    wanted = sum(group.most for name in budget.jobs if name in moment.jobs for group in moment.jobs[name].groups)
    return (budget.max_unavailable or 0) - (wanted - live)


def parting(moment: Moment, ours: str, theirs: str) -> tuple[str, str]:
    """The two branches just below where the queues part."""
    mine, other = moment.path(ours), moment.path(theirs)
    while mine and other and mine[-1] == other[-1]:
        mine.pop()
        other.pop()
    return mine[-1], other[-1]


# --- the keys of rule 19 ----------------------------------------------------------------------------------------------

Key = tuple[object, ...]


def better(claim: Claim, one: list[Unit], other: list[Unit]) -> str:
    """The key by which one set comes before the other in every reading of the keys; empty if it does not."""
    name = ""
    alone = all(len({unit.job for unit in units}) == 1 for units in (one, other))
    for reading in product((0, 1), (0, 1), (0, 1), WARM, (0, 1), (0, 1)):
        mine, theirs = _key(claim, one, reading), _key(claim, other, reading)
        first = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b), None)
        if first is None or not mine[first] < theirs[first]:  # type: ignore[operator]
            return ""
        if NAMES[first] == "younger" and not alone:
            return ""  # which of several jobs tells a set's age is not said
        name = name or NAMES[first]
    return name


WARM = NEVER, ALWAYS, WITH_ITS_GANG = 0, 1, 2
"""When a restart of an extra is said to warm up: a gang that stops whole is started again whole."""
NAMES = ("own queue", "gang", "below quota", "below share", "priority", "evictions", "lost work", "gangs", "younger")


def _key(claim: Claim, units: list[Unit], reading: tuple[int, ...]) -> Key:
    moment = claim.moment
    jobs = [moment.jobs[name] for name in sorted({u.job for u in units})]
    gangs = [u for u in units if not u.extra]
    stopped = {u.job for u in gangs}
    evictions = [job.evictions for job in jobs]
    youth = max((job.submitted for job in jobs), default=0.0)
    return (
        any(job.queue == claim.job.queue or (reading[4] and not _in_excess(claim, job)) for job in jobs),
        bool(gangs),
        _pushed(claim, units, by_quota=True, reading=reading),
        _pushed(claim, units, by_quota=False, reading=reading),
        max((job.priority for job in jobs), default=0),
        sum(evictions) if reading[2] else max(evictions, default=0),
        sum(
            (
                _lost(moment, u, reading[3] == ALWAYS or (reading[3] == WITH_ITS_GANG and u.job in stopped))
                for u in units
            ),
            0.0,
        ),
        len(gangs),
        -youth,
    )


def _in_excess(claim: Claim, job: Job) -> bool:
    """Whether the victim's side is above its quota or share; one that a critical job takes from need not be."""
    side = parting(claim.moment, claim.job.queue, job.queue)[1]
    used = claim.used[side]
    return above_quota(claim.moment, side, used) or above_share(claim.moment, claim.view.shares[side], used)


def _pushed(claim: Claim, units: list[Unit], by_quota: bool, reading: tuple[int, ...]) -> bool:
    """Whether some queue falls below what it is due: the leaf, or any level up to where the branches part; of anything
    that is counted, or of GPUs."""
    moment = claim.moment
    counted = moment.counted[:1] if reading[5] else moment.counted
    after = use(moment, lifted(claim.state, [(u.job, u.spots) for u in units]))
    for name in {u.job for u in units}:
        queue = moment.jobs[name].queue
        if queue == claim.job.queue:
            continue
        path = moment.path(queue)
        levels = path[: path.index(parting(moment, claim.job.queue, queue)[1]) + 1] if reading[0] else path[:1]
        for q in levels:
            for r in counted:
                due: Fraction | None = moment.queues[q].quota[r] if by_quota else claim.view.shares[q][r]
                if due is None or after[q][r] >= due:
                    continue
                if reading[1] or claim.used[q][r] >= due:
                    return True
    return False


def _lost(moment: Moment, unit: Unit, warm: bool) -> float:
    """GPU-seconds since the last checkpoint, plus warm-up (of an extra too, read so)."""
    job = moment.jobs[unit.job]
    since = max((at for at in (job.started, job.saved) if at is not None), default=moment.now)
    again = job.warm_up if warm or not unit.extra else 0.0
    gpus = sum(moment.spot_cost(job, spot)[0] for spot in unit.spots)
    return float(gpus) * (max(0.0, moment.now - since) + again)
