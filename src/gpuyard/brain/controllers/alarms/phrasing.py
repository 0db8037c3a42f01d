"""How the watches say names, spans and moments. Called by them; it looks at nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

NAMES_SHOWN = 3


def duration(seconds: float) -> str:
    """A span in the one unit that keeps it whole: `10 min`, `6 h`."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def moment(at: float) -> str:
    """A time of the day, UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def some(names: Sequence[str]) -> str:
    """A list of names that does not run away: `a, b and c`, `a, b, c and 9 more`."""
    shown, more = list(names[:NAMES_SHOWN]), len(names) - NAMES_SHOWN
    if more > 0:
        shown.append(f"{more} more")
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
