"""A key while something is drawn again and again: `q` leaves, as it leaves `less` and `top`.

Called by `redrawing` and the demo. Where nobody sits at a terminal it changes nothing.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

LEAVE = b"qQ"


def until_q(moments: Iterable[None]) -> Iterator[None]:
    """The moments as they come, until there are no more or somebody has typed `q`."""
    if not _somebody_types():
        yield from moments
        return
    with _key_by_key() as typed, _Bell(moments) as bell:
        while True:
            ready, _, _ = select.select([typed, bell.reading], [], [])
            if typed in ready and any(key in LEAVE for key in os.read(typed, 64)):
                return
            if bell.reading in ready:
                if not bell.rang():
                    return
                yield


class _Bell:
    """Rings through a pipe at every moment of an iterator that blocks, so that it can be waited for beside a key."""

    def __init__(self, moments: Iterable[None]) -> None:
        self.reading, self._writing = os.pipe()
        self._moments = moments
        self._error: BaseException | None = None

    def __enter__(self) -> _Bell:
        threading.Thread(target=self._ring, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """The writing end stays open: the thread may still be waiting for its next moment, and ends with us."""
        os.close(self.reading)

    def rang(self) -> bool:
        """Whether there was another moment; what went wrong while waiting for one goes wrong here."""
        if os.read(self.reading, 1) == b"!":
            return True
        if self._error is not None:
            raise self._error
        return False

    def _ring(self) -> None:
        try:
            for _ in self._moments:
                os.write(self._writing, b"!")
        except BrokenPipeError:
            return  # left meanwhile
        except Exception as error:  # noqa: BLE001 -- raised again where it is waited for
            self._error = error
        os.close(self._writing)


def _somebody_types() -> bool:
    """Whether this is the program that the keys of a terminal go to."""
    try:
        return sys.stdin.isatty() and sys.stdout.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False


@contextmanager
def _key_by_key() -> Iterator[int]:
    """The terminal without waiting for whole lines and without echo; as it was afterwards. Ctrl-C still interrupts."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
