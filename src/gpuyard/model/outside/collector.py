"""Python's garbage collector at rest while much is made that stays.

Used by those who read files, by the loop and by the command line around planning; the brain itself does not know of it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_resting() -> Iterator[None]:
    """Inside, a million values may be made: looking among them for garbage again and again would double the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def made_to_stay() -> None:
    """What exists now is here to stay: it counts as old at once, and is not looked through when the rest is over. What
    of it becomes garbage after all is found when everything old is looked at."""
    gc.freeze()
    gc.unfreeze()
