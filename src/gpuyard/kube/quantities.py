"""Amounts as the Kubernetes API writes them: `500m`, `1.5Gi`, `12e3`. Exact, and total: nothing here raises.

Called by whoever reads requests, limits, capacity. Like the API server it rounds up, to a whole or to a thousandth, and
stays within 64 bits. What is no amount at all counts as none: a template may hold one, a pod never does.
"""

from __future__ import annotations

import re
from functools import lru_cache

Quantity = str | int | float
"""As JSON has it: text from the API server, perhaps a bare number in a template of a custom resource."""

LARGEST = (1 << 63) - 1

_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_GRAMMAR = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?:(?P<unit>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?"
)
_DIGITS = 60
"""So many significant digits tell 64 bits and what is behind the point apart from every neighbour that matters."""
_FAR = 10**7
"""Tens beyond this say nothing: the text of an object has fewer digits."""


@lru_cache(maxsize=16384)
def whole(quantity: Quantity | None) -> int:
    """Bytes, devices, pods: rounded up."""
    return _scaled(quantity, 0)


@lru_cache(maxsize=16384)
def milli(quantity: Quantity | None) -> int:
    """Milli-cores: rounded up to a thousandth."""
    return _scaled(quantity, 3)


def _scaled(quantity: Quantity | None, shift: int) -> int:
    """The amount times 10^shift, rounded away from zero as the API server does."""
    found = _GRAMMAR.fullmatch("" if quantity is None else str(quantity).strip())
    if found is None or not (found["whole"] or found["part"]):
        return 0
    significant = ((found["whole"] or "") + (found["part"] or "")).lstrip("0")
    tens = shift - len(found["part"] or "") + max(0, len(significant) - _DIGITS)
    tens += _exponent(found["exponent"]) if found["exponent"] else _DECIMAL.get(found["unit"] or "", 0)
    amount = _times(_leading(significant), tens, 1 << _BINARY.get(found["unit"] or "", 0))
    return -amount if found["sign"] == "-" else amount


def _leading(significant: str) -> int:
    """The first digits, rounded up: no answer has more, and longer numbers only cost time."""
    return int(significant[:_DIGITS] or 0) + bool(significant[_DIGITS:].strip("0"))


def _exponent(text: str) -> int:
    """Within reason: so large a one is never reached by what an API server lets pass in one object."""
    return max(-_FAR, min(_FAR, int(text[:20])))


def _times(digits: int, tens: int, factor: int) -> int:
    if digits == 0:
        return 0
    power: int = 10 ** min(abs(tens), 3 * _DIGITS)
    return min(LARGEST, digits * power * factor if tens >= 0 else -(-digits * factor // power))
