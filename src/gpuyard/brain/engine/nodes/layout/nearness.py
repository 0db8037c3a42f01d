"""Which of a node's free devices lie nearest to each other: one NVLink island, else one PCIe switch, else one NUMA node
(rule 12). Bit masks in, devices out; knows nothing of tasks."""

from __future__ import annotations

from functools import lru_cache

Grades = tuple[tuple[int, ...], ...]
"""What of a node is near to each other, nearest first."""


@lru_cache(maxsize=1 << 16)
def whole_devices(grades: Grades, free: int, suspect: int, count: int) -> tuple[int, ...]:
    """`count` devices out of the `free` bits: healthy ones first, then as near to each other as can be."""
    healthy = free & ~suspect
    if healthy.bit_count() >= count:
        return _bits(_nearest(grades, healthy, count))
    return _bits(healthy | _nearest(grades, free & suspect, count - healthy.bit_count()))


def _nearest(grades: Grades, free: int, count: int) -> int:
    """The tightest island that holds them all, of the first grade that has one, and inside it by the other grades
    again; where none does, as few islands as can be."""
    for number, islands in enumerate(grades):
        holding = [part for mask in islands if (part := mask & free).bit_count() >= count]
        if holding:
            best = min(holding, key=int.bit_count)
            return _nearest(grades[:number] + grades[number + 1 :], best, count)
    joined = _joining(grades, free)
    if not joined:
        return _lowest(free, count)
    best = max(joined, key=int.bit_count)
    return best | _nearest(grades, free & ~best, count - best.bit_count())


def _joining(grades: Grades, free: int) -> list[int]:
    """The free parts of the first grade that joins any two of them; none where no grade does: cards without NVLink are
    no islands to fill up."""
    parts = ([mask & free for mask in islands] for islands in grades)
    return next((each for each in parts if any(part.bit_count() > 1 for part in each)), [])


def _lowest(mask: int, count: int) -> int:
    taken = 0
    for _ in range(count):
        bit = mask & -mask
        taken |= bit
        mask ^= bit
    return taken


def _bits(mask: int) -> tuple[int, ...]:
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)
