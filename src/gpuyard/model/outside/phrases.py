"""How numbers and lists are said in a sentence, one way everywhere: "1 node", "3 nodes", "n0, n1 and 4 more"."""

from __future__ import annotations

from collections.abc import Sequence

SHOWN = 3
"""More names than this are counted, not listed."""


def counted(number: float | str, noun: str) -> str:
    """A number with its noun: "1 node", "3 nodes", "0.5 GPUs", "unlimited GPUs"."""
    return f"{number} {agreeing(number, noun, f'{noun}s')}"


def are(number: object) -> str:
    """The verb that belongs to a number: "1 is free", "0.5 are free"."""
    return agreeing(number, "is", "are")


def agreeing(number: object, one: str, more: str) -> str:
    """The words that belong to a number: "1 job was evicted", "2 jobs were"."""
    return one if number in (1, "1") else more


_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def duration(seconds: float) -> str:
    """The two largest units: `2h5m`, `45s`."""
    left, parts = max(0, int(seconds)), list[str]()
    for unit, scale in _UNITS:
        if left >= scale:
            parts.append(f"{left // scale}{unit}")
            left %= scale
        elif parts:
            break
    return "".join(parts[:2]) or "0s"


def work_lost(seconds: float, saves: bool) -> str:
    """What a job loses that is stopped, having worked so long; one that `saves` its work is told to before."""
    return "told to save its work first" if saves else f"{duration(seconds)} of work lost"


def work_again(seconds: float, saves: bool) -> str:
    """What stopping a job would cost it: what it has done since it saved its work, and warming up."""
    return "told to save its work first" if saves else f"{duration(seconds)} to do again"


def listed(names: Sequence[str], most: int = SHOWN, of: int | None = None) -> str:
    """A list of names that does not run away; `of` says how many there are in all, if not all are given."""
    rest = (len(names) if of is None else of) - min(most, len(names))
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
