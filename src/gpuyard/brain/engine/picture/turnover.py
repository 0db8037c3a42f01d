"""Whose coming waits for whose leaving: what the changes of one plan take where others leave (rule 26).

Somebody waits only where what is free before anybody leaves is too little for all who come: of a device, whole, in part
or in slices, and of a node's CPU, memory and the rest. Asked by `evacuation`, which tells it, and by whoever moves
jobs, for moves that wait for each other can never begin.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from gpuyard.brain.engine.nodes.columns import Columns, Held, left
from gpuyard.model.resources import WHOLE

Resource = tuple[int, object]
"""A node, and what of it: the index of a device, that and the profile of its slices, a name in `BESIDE`, an extra."""

CPU, MEMORY = BESIDE = (("beside", "cpu"), ("beside", "memory"))

PLACE = Held._fields.index("node")
"""From here on a `Held` tells the place and nothing of the task."""


class Exchange(NamedTuple):
    """What a job leaves and what it takes instead: as many as there are of both it moves; more left stop, more taken
    start."""

    name: str
    gone: Sequence[Held]
    come: Sequence[Held]

    @property
    def moves(self) -> int:
        """How many places are exchanged."""
        return min(len(self.gone), len(self.come))


class MoveInTurn(NamedTuple):
    """A job that moves, and those who must have left before."""

    name: str
    after: tuple[str, ...]


def exchange(name: str, before: Iterable[Held], now: Iterable[Held]) -> Exchange:
    """The difference, whatever the numbers of the tasks."""
    was, come = Counter(map(_place, before)), []
    for held in now:
        if was[_place(held)]:
            was[_place(held)] -= 1
        else:
            come.append(held)
    gone = []
    for held in before:
        if was[_place(held)]:
            was[_place(held)] -= 1
            gone.append(held)
    return Exchange(name, gone, come)


def _place(held: Held) -> tuple[object, ...]:
    return (held.leaf, *held[PLACE:])


class Turnover:
    """Who leaves what is short."""

    def __init__(self, columns: Columns, exchanges: Sequence[Exchange]) -> None:
        self._exchanges = exchanges
        leavers: dict[Resource, list[str]] = {}
        gone: dict[Resource, int] = {}
        for name, places, _ in exchanges:
            for held in places:
                for resource, amount in _parts(held):
                    gone[resource] = gone.get(resource, 0) + amount
                    leavers.setdefault(resource, []).append(name)
        self._at_the_end = {resource: _free(columns, resource) for resource in gone}
        self._leavers = {r: names for r, names in leavers.items() if self._at_the_end[r] < gone[r]}
        """Of all that is short: who leaves it."""

    def before(self, name: str, places: Iterable[Held]) -> tuple[str, ...]:
        """Who must have left before the job takes these places; all who move and stop have their turn before."""
        if not self._leavers:
            return ()
        found: set[str] = set()
        for resource in _resources(places):
            found.update(self._leavers.get(resource, ()))
        return tuple(sorted(found - {name}))

    def turns(self) -> list[MoveInTurn]:
        """All moves, in an order in which each finds room when its turn comes, by name among those who do. Those whose
        turn never comes, because each needs what the next one holds, come last."""
        turns, _, _ = self._in_turn
        return turns

    def ring(self) -> list[str]:
        """Jobs that wait for each other to leave; none if every turn comes."""
        _, stuck, room = self._in_turn
        holders = {each.name: {r for r in _resources(each.gone) if r in self._leavers} for each in stuck}
        lacks = {each.name: self._lacks(each, room) for each in stuck}
        waits = {
            name: [other for other, held in holders.items() if other != name and not held.isdisjoint(lacking)]
            for name, lacking in lacks.items()
        }
        return next((ring for each in stuck if (ring := _round(each.name, waits))), [])

    @cached_property
    def _in_turn(self) -> tuple[list[MoveInTurn], list[Exchange], Counter[Resource]]:
        """Every move as a turn, those whose turn never comes, and what is free when all others have moved."""
        room, gone = self._room_at_first(), {each.name for each in self._exchanges if len(each.gone) > len(each.come)}
        waiting = sorted((each for each in self._exchanges if each.moves), key=lambda each: each.name)
        turns: list[MoveInTurn] = []
        while ready := next((each for each in waiting if not self._lacks(each, room)), None):
            self._exchange(ready, room)
            waiting.remove(ready)
            after = gone.intersection(self.before(ready.name, ready.come[: ready.moves]))
            turns.append(MoveInTurn(ready.name, tuple(sorted(after))))
            gone.add(ready.name)
        turns += [MoveInTurn(each.name, self.before(each.name, each.come[: each.moves])) for each in waiting]
        return turns, waiting, room

    def _room_at_first(self) -> Counter[Resource]:
        """What is free of what is short, once those who only stop are gone."""
        room: Counter[Resource] = Counter({resource: self._at_the_end[resource] for resource in self._leavers})
        for each in self._exchanges:
            self._add(room, each.come, 1)
            self._add(room, each.gone[: each.moves], -1)
        return room

    def _exchange(self, each: Exchange, room: Counter[Resource]) -> None:
        self._add(room, each.gone[: each.moves], 1)
        self._add(room, each.come[: each.moves], -1)

    def _add(self, room: Counter[Resource], places: Iterable[Held], sign: int) -> None:
        for held in places:
            for resource, amount in _parts(held):
                if resource in self._leavers:
                    room[resource] += sign * amount

    def _lacks(self, each: Exchange, room: Counter[Resource]) -> list[Resource]:
        """Of what there is too little for it now, were it gone from where it is."""
        after: Counter[Resource] = Counter()
        self._exchange(each, after)
        return [resource for resource, more in after.items() if more < 0 and room[resource] + more < 0]


def _resources(places: Iterable[Held]) -> Iterator[Resource]:
    return (resource for held in places for resource, _ in _parts(held))


def _parts(held: Held) -> Iterator[tuple[Resource, int]]:
    """What a place takes of its node."""
    n = held.node
    if held.mig:
        for g, profile in zip(held.gpus, held.mig, strict=True):
            yield (n, (g, profile)), 1
    else:
        for g in held.gpus:
            yield (n, g), held.share or WHOLE
    if held.cpu:
        yield (n, CPU), held.cpu
    if held.memory:
        yield (n, MEMORY), held.memory
    for name, amount in held.extras:
        yield (n, name), amount


def _free(columns: Columns, resource: Resource) -> int:
    """What is free of it as the columns are now: at the end of the plan."""
    n, what = resource
    if what is CPU:
        return int(columns.cpu[n])
    if what is MEMORY:
        return int(columns.memory[n])
    if isinstance(what, int):
        return left(columns.used[n][what])
    if isinstance(what, str):
        return int(columns.extras.free(what)[n])
    return columns.free_slices[n][what]  # type: ignore[index]


def _round(first: str, waits: dict[str, list[str]]) -> list[str]:
    """The circle that this job comes into by way of whom it waits for; none if that ends somewhere."""
    path: list[str] = []
    done: set[str] = set()

    def follow(name: str) -> list[str]:
        if name in path:
            return path[path.index(name) :]
        if name in done:
            return []
        done.add(name)
        path.append(name)
        found = next((found for other in waits[name] if (found := follow(other))), [])
        path.pop()
        return found

    return follow(first)
