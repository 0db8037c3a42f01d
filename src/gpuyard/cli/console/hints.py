"""Nearest-name hints for whatever a person mistyped. Called by the commands; it raises nothing itself."""

from __future__ import annotations

from collections.abc import Iterable

SCANNED_MAX = 2_000
"""Comparing with every name of a large yard takes seconds; beyond this only names that begin alike are looked at."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The words " Did you mean 'x'?" for a name that is nearly a known one, else nothing."""
    import difflib

    names = sorted(known)
    if len(names) > SCANNED_MAX:
        names = [other for other in names if other[:2].lower() == name[:2].lower()][:SCANNED_MAX]
    by_lower = {other.lower(): other for other in names}
    close = difflib.get_close_matches(name.lower(), list(by_lower), n=1)
    return f" Did you mean '{by_lower[close[0]]}'?" if close else ""
