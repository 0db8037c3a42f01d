"""`-w`: an answer that is drawn again when something changes. Called by the listings and by `top`.

On a terminal the screen is cleared first, and `q` leaves; elsewhere each changed answer follows the last, so that it
can be piped.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator

from gpuyard.cli.console import keys, terminal
from gpuyard.client import Client

CLEAR = "\x1b[H\x1b[2J\x1b[3J"
PAUSE_S = 0.5
"""Not more often than this, however much happens."""


def repeat(client: Client, draw: Callable[[], None]) -> None:
    """Draw now and after every change, until interrupted or left with `q`."""
    shown = ""
    for _ in keys.until_q(changes(client)):
        drawn = captured(draw)
        if drawn != shown:
            terminal.draw((CLEAR if sys.stdout.isatty() else "") + drawn)
            sys.stdout.flush()
            shown = drawn


def changes(client: Client) -> Iterator[None]:
    """Now, and then whenever something has happened; a burst counts once."""
    import threading

    pause = threading.Event()
    newest = _newest(client)  # asked before the answer is: what happens meanwhile is drawn twice rather than never
    yield
    for event in client.follow(newest):
        if int(event["id"]) <= newest:
            continue  # was in the last answer
        pause.wait(PAUSE_S)
        newest = _newest(client)
        yield


def captured(draw: Callable[[], None]) -> str:
    """What would be written to stdout, with its colours."""
    width = str(os.get_terminal_size().columns) if sys.stdout.isatty() else ""
    text = _Tty(sys.stdout.isatty())
    before = os.environ.get("COLUMNS")
    if width:
        os.environ["COLUMNS"] = width
    try:
        with contextlib.redirect_stdout(text):
            draw()
    finally:
        if before is None:
            os.environ.pop("COLUMNS", None)
        else:
            os.environ["COLUMNS"] = before
    return text.getvalue()


class _Tty(io.StringIO):
    """Text that says of itself what stdout says."""

    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def _newest(client: Client) -> int:
    events = client.events(-2, 1)
    return int(events[-1]["id"]) if events else 0
