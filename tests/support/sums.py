"""The same plan on every Python: from 3.12 on `sum` adds floats another way, so the brain adds them with `math.fsum`.

While `only_of_integers` stands in for `sum`, whoever in the product adds floats with it is told so by name.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

PLAIN = sum


def only_of_integers(values: Iterable[Any], /, start: Any = 0) -> Any:
    """`sum`, for whoever adds what has one sum only."""
    added = list(values)
    caller = sys._getframe(1).f_globals.get("__name__", "")
    if caller.startswith("gpuyard.") and any(isinstance(each, float) for each in added):
        raise AssertionError(f"{caller} adds floats with sum(): what comes out depends on Python, math.fsum does not")
    return PLAIN(added, start)
