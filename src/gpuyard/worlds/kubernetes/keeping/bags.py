"""Names filed under names: a hundred thousand gangs of one pod, and some of thousands. Used by `cache`."""

from __future__ import annotations

from collections.abc import Collection, Iterator

FEW = 16
"""So many are kept as a tuple, which takes a tenth of the memory of a set; one alone takes none."""


class Bags:
    """No name is twice in one bag, and there are no empty bags."""

    def __init__(self) -> None:
        self._bags: dict[str, str | tuple[str, ...] | set[str]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._bags)

    def __contains__(self, bag: object) -> bool:
        return bag in self._bags

    def of(self, bag: str) -> Collection[str]:
        """What is in it, in no order."""
        found = self._bags.get(bag, ())
        return (found,) if isinstance(found, str) else found

    def only(self, bag: str) -> str:
        """What is in it, if that is one alone; else ""."""
        found = self._bags.get(bag)
        return found if isinstance(found, str) else ""

    def add(self, bag: str, name: str) -> None:
        """Into it."""
        there = self.of(bag)
        if isinstance(there, set):
            there.add(name)
        elif name not in there:
            self._bags[bag] = _kept((*there, name))

    def discard(self, bag: str, name: str) -> None:
        """Out of it, if it is there."""
        there = self.of(bag)
        if isinstance(there, set):
            there.discard(name)
            left: Collection[str] = there
        else:
            left = tuple(each for each in there if each != name)
        if not left:
            self._bags.pop(bag, None)
        elif len(left) <= FEW // 2 or not isinstance(left, set):
            self._bags[bag] = _kept(tuple(left))


def _kept(names: tuple[str, ...]) -> str | tuple[str, ...] | set[str]:
    if len(names) == 1:
        return names[0]
    return names if len(names) <= FEW else set(names)
