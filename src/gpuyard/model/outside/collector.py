"""Python's garbage collector at rest while much is made that stays.

Used by those who read files, by the loop and by the command line around planning; the brain itself does not know of it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = 100_000
"""Values more than before, after which garbage is looked for, where it is looked for seldom."""


def collector_resting() -> Resting:
    """Inside, a million values may be made: looking among them for garbage again and again would double the time."""
    return Resting()


class Resting:
    """While it is entered, nobody looks for garbage. Every turn enters one, so it is no generator: those cost more."""

    __slots__ = ("_was_on",)

    def __enter__(self) -> None:
        self._was_on = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._was_on:
            gc.enable()


@contextmanager
def collector_seldom() -> Iterator[None]:
    """Inside, one short turn follows another, and each leaves hardly any garbage among the hundreds of values it makes:
    looking for it after every turn would cost more than it finds. What there is of it is still found, later."""
    before = gc.get_threshold()
    gc.set_threshold(SELDOM, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def made_to_stay() -> None:
    """What exists now is here to stay: it counts as old at once, and is not looked through when the rest is over. What
    of it becomes garbage after all is found when everything old is looked at."""
    gc.freeze()
    gc.unfreeze()
