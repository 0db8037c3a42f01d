"""Where tasks could run: every arrangement tried, up to devices that are alike (rules 5, 10, 11, 13).

`arrange` answers whether all the asked tasks fit together around what stands already. It gives up after a bounded
number of steps by raising `TooLarge`; whoever asked then says nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

from tests.oracle.shapes import Avoid, Device, Group, Job, Moment, Node, Spot, State, suits

MOST_STEPS = 4_000

Key = tuple[str, int]


class TooLarge(Exception):
    """The search was given up: no verdict."""


class Load:
    """What is used on devices and nodes; tasks are put on and taken off."""

    def __init__(self, moment: Moment) -> None:
        self.moment = moment
        self.used: dict[Key, Fraction] = defaultdict(Fraction)
        self.whole: Counter[Key] = Counter()
        self.slices: dict[Key, Counter[str]] = defaultdict(Counter)
        self.cpu: dict[str, Fraction] = defaultdict(Fraction)
        self.tenants: Counter[tuple[str, str]] = Counter()
        """Tasks by job and node."""
        self.closed: set[Key] = set()
        """Devices that are kept for somebody else."""

    @classmethod
    def of(cls, moment: Moment, state: State) -> Load:
        """Everybody of the state, and those on their way out."""
        load = cls(moment)
        for name, spots in state.items():
            for spot in spots:
                load.put(moment.jobs[name], spot)
        for name, spot in moment.going:
            load.put(moment.jobs[name], spot)
        return load

    def put(self, job: Job, spot: Spot, sign: int = 1) -> None:
        """Add a task, or with sign -1 take it away."""
        group, node = job.group(spot.group), self.moment.nodes[spot.node]
        self.cpu[spot.node] += sign * group.cpu
        self.tenants[job.name, spot.node] += sign
        if spot.mig:
            for gpu, profile in zip(spot.gpus, spot.mig, strict=True):
                self.slices[spot.node, gpu][profile] += sign
            return
        for gpu in spot.gpus:
            if group.gpus:
                self.whole[spot.node, gpu] += sign
                self.used[spot.node, gpu] += sign
            else:
                self.used[spot.node, gpu] += sign * self.moment.cost(job, group, node)[0]

    def broken(self) -> Iterator[str]:
        """Devices and nodes that hold more than they can."""
        for (node, gpu), used in sorted(self.used.items()):
            if used > 1 or (self.whole[node, gpu] and used != self.whole[node, gpu]):
                yield f"{node}:{gpu} holds {float(used)} GPUs"
        for (node, gpu), held in sorted(self.slices.items()):
            device = self.moment.nodes[node].devices[gpu]
            if any(n > Counter(device.slices or ())[profile] for profile, n in held.items()):
                yield f"{node}:{gpu} has not so many slices as {dict(held)}"
        for name, used in sorted(self.cpu.items()):
            if used > self.moment.nodes[name].cpu:
                yield f"{name} has not so much CPU as {float(used)}"


@dataclass(frozen=True)
class Ask:
    """Tasks of one group that need a place; `around` are the members that stay."""

    job: Job
    group: Group
    count: int
    around: tuple[Spot, ...] = ()


def asks(job: Job, lacking: dict[str, int], around: tuple[Spot, ...] = ()) -> list[Ask]:
    """What a job asks for, group by group."""
    return [Ask(job, job.group(name), count, around) for name, count in sorted(lacking.items())]


def asks_again(job: Job, spots: tuple[Spot, ...]) -> list[Ask]:
    """The same job with as many tasks, all of them anew."""
    return asks(job, dict(Counter(spot.group for spot in spots)))


def arrange(load: Load, wanted: list[Ask], suits: Callable[[State], bool] = lambda _: True) -> State | None:
    """Places for everybody asked that suit, or None if there are none."""
    search = _Search(load, wanted, suits)
    return search.found if search.place(0, 0, None) else None


def circular(moment: Moment, before: State, after: State) -> bool:
    """Whether jobs move in a circle, each to where another was: then none of them can go first (rule 26)."""

    def devices(name: str, spots: tuple[Spot, ...]) -> set[tuple[str, int]]:
        cpu = {s.node for s in spots if moment.jobs[name].group(s.group).cpu}
        return {(s.node, g) for s in spots for g in s.gpus} | {(node, -1) for node in cpu}

    names = [name for name in after if before.get(name)]
    old = {name: devices(name, before[name]) for name in names}
    new = {name: devices(name, after[name]) for name in names}
    left = set(names)
    while ready := {n for n in left if not any(new[n] & old[other] for other in left if other != n)}:
        left -= ready
    return bool(left)


def circle_in(before: State, after: State) -> bool:
    """Whether the net change from one state to the other has jobs that move in a circle, each to where the next one
    was; those who keep a place, come or go are in none."""

    def devices(one: tuple[Spot, ...], other: tuple[Spot, ...]) -> set[Key]:
        kept = Counter((s.group, s.node, s.gpus, s.mig) for s in other)
        return {(s.node, g) for s in one if not kept[s.group, s.node, s.gpus, s.mig] for g in s.gpus}

    names = [name for name in after if after[name] and before.get(name)]
    old = {name: devices(before[name], after[name]) for name in names}
    new = {name: devices(after[name], before[name]) for name in names}
    left = {name for name in names if new[name] and old[name]}
    while ready := {n for n in left if not any(new[n] & old[other] for other in left if other != n)}:
        left -= ready
    return bool(left)


class _Search:
    def __init__(self, load: Load, wanted: list[Ask], suits: Callable[[State], bool]) -> None:
        self.load = load
        self.wanted = wanted
        self.suits = suits
        self.steps = MOST_STEPS
        self.placed: dict[str, list[Spot]] = defaultdict(list)
        for ask in wanted:
            self.placed[ask.job.name] = list(ask.around)
        self.new: dict[str, list[Spot]] = defaultdict(list)

    @property
    def found(self) -> State:
        return {name: tuple(spots) for name, spots in self.new.items()}

    def place(self, which: int, done: int, last: Spot | None) -> bool:
        """Place task `done` of ask `which` and all after it. Tasks of one ask are alike, so their nodes rise."""
        self.steps -= 1
        if self.steps < 0:
            raise TooLarge
        if which == len(self.wanted):
            return self.suits(self.found)
        ask = self.wanted[which]
        if done == ask.count:
            return self.place(which + 1, 0, None)
        for spot in options(self.load, ask.job, ask.group, self.placed[ask.job.name]):
            if last is not None and spot.node < last.node:
                continue
            self.load.put(ask.job, spot)
            self.placed[ask.job.name].append(spot)
            self.new[ask.job.name].append(spot)
            if self.place(which, done + 1, spot):
                return True
            self.new[ask.job.name].pop()
            self.placed[ask.job.name].pop()
            self.load.put(ask.job, spot, -1)
        return False


def options(load: Load, job: Job, group: Group, members: Iterable[Spot]) -> Iterator[Spot]:
    """Where one more task of the group may stand beside its members, devices that are alike told once."""
    moment = load.moment
    members = list(members)
    for name in sorted(moment.nodes):
        node = moment.nodes[name]
        if not suits_group(moment, job, group, node, members):
            continue
        if load.cpu[name] + group.cpu > node.cpu or not set(node.taints) <= set(job.tolerates):
            continue
        if not welcome(load, job, node):
            continue
        for devices in _devices(load, job, group, node):
            mig = tuple(sorted(group.mig)) if group.mig else ()
            spot = Spot(group.name, name, tuple(d.index for d in devices), mig)
            if together(moment, job, [*members, spot]) and below_caps(load, spot):
                yield spot


# --- neighbours (rule 14) ---------------------------------------------------------------------------------------------


def welcome(load: Load, job: Job, node: Node) -> bool:
    """Whether the job shares no domain with whom it avoids, or who avoids it; nodes that name no domain share one."""
    for (name, where), count in load.tenants.items():
        other, there = load.moment.jobs[name], load.moment.nodes[where]
        if count and any(there.domain(a.level) == node.domain(a.level) for a in shuns(load.moment, job, other)):
            return False
    return True


def shuns(moment: Moment, one: Job, other: Job) -> list[Avoid]:
    """By which wishes the two may not meet."""
    if one.name == other.name:
        return [one.avoid] if one.avoid and one.avoid.own else []
    pairs = ((one.avoid, other), (other.avoid, one))
    return [avoid for avoid, whom in pairs if avoid and set(avoid.queues) & set(moment.path(whom.queue))]


def below_caps(load: Load, spot: Spot) -> bool:
    """Whether a task put there leaves no domain busier than its pool may be."""
    moment, here = load.moment, load.moment.nodes[spot.node]
    for pool, level, most in moment.caps:
        if here.pool != pool or not spot.gpus:
            continue
        nodes = {n.name for n in moment.nodes.values() if n.pool == pool and n.domain(level) == here.domain(level)}
        kept = {key for key in load.closed if key[0] in nodes}
        if len(busy(load, nodes) | kept | {(spot.node, gpu) for gpu in spot.gpus}) > most:
            return False
    return True


def busy(load: Load, nodes: set[str]) -> set[Key]:
    """Devices of these nodes that are in use."""
    used = {key for key, amount in load.used.items() if amount}
    return {key for key in used | {key for key, held in load.slices.items() if held.total()} if key[0] in nodes}


def suits_group(moment: Moment, job: Job, group: Group, node: Node, members: list[Spot]) -> bool:
    """One model per group, and one that the job takes."""
    if not (group.gpus or group.share or group.gpu_memory or group.mig):
        return True
    if not suits(job, node):
        return False
    models = {moment.nodes[spot.node].model for spot in members if spot.group == group.name}
    return models <= {node.model}


def _devices(load: Load, job: Job, group: Group, node: Node) -> Iterator[tuple[Device, ...]]:
    well = [d for d in node.devices if not d.sick and (node.name, d.index) not in load.closed]
    if group.mig:
        yield from _slices(load, group.mig, [d for d in well if d.slices is not None])
    elif group.gpus:
        free = [d for d in well if d.slices is None and not load.used[node.name, d.index]]
        yield from filter(node.aligned, _combinations(free, group.gpus))
    elif group.share or group.gpu_memory:
        share = load.moment.cost(job, group, node)[0] if node.memory or group.share else Fraction(2)
        seen = set()
        for d in well:
            used = load.used[node.name, d.index]
            if d.slices is None and used + share <= 1 and (d.island, used) not in seen:
                seen.add((d.island, used))
                yield (d,)
    else:
        yield ()


def _combinations(free: list[Device], count: int) -> Iterator[tuple[Device, ...]]:
    seen = set()
    for chosen in combinations(free, count):
        shape = tuple(sorted(Counter((d.island, d.numa) for d in chosen).items()))
        if shape not in seen:
            seen.add(shape)
            yield chosen


def _slices(load: Load, profiles: tuple[str, ...], devices: list[Device]) -> Iterator[tuple[Device, ...]]:
    """A device for each slice, all on one node."""
    first, *rest = sorted(profiles)
    for d in devices:
        held = load.slices[d.node, d.index]
        if held[first] < Counter(d.slices)[first]:
            if not rest:
                yield (d,)
                continue
            held[first] += 1
            found = list(_slices(load, tuple(rest), devices))
            held[first] -= 1
            for others in found:
                yield (d, *others)


def together(moment: Moment, job: Job, spots: Iterable[Spot]) -> bool:
    """Whether no required level is crossed (rule 10)."""
    spots = list(spots)
    scopes = [(job.required, spots)]
    scopes += [(g.required, [s for s in spots if s.group == g.name]) for g in job.groups]
    scopes += [(level, [s for s in spots if s.group in names]) for level, names in job.bundles]
    return all(_one_domain(moment, level, members) for level, members in scopes if level and members)


def _one_domain(moment: Moment, level: str, spots: list[Spot]) -> bool:
    if level == "nvlink":
        places = {(s.node, moment.nodes[s.node].devices[g].island) for s in spots for g in s.gpus}
        places |= {(s.node, -1) for s in spots if not s.gpus}
        return len(places) <= 1 or (len({p for p in places if p[1] >= 0}) <= 1 and len({p[0] for p in places}) == 1)
    domains = {moment.nodes[spot.node].domain(level) for spot in spots}
    return len(domains) == 1 and None not in domains


def lifted(state: State, gone: Iterable[tuple[str, tuple[Spot, ...]]]) -> State:
    """The state without these tasks."""
    left = dict(state)
    for name, spots in gone:
        kept = list(left.get(name, ()))
        for spot in spots:
            kept.remove(spot)
        left[name] = tuple(kept)
    return left
