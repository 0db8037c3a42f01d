"""How a supervisor tells the control plane something. Used by `supervisor`; `launch` has the other end.

Light on purpose: it is loaded with every supervisor.
"""

from __future__ import annotations

import os


class Mouth:
    """Says what became of one task, and never waits for anybody to listen."""

    def __init__(self, fifo: str, key: str) -> None:
        self.fifo = fifo
        self.key = key
        self.untold: list[str] = []
        """What the control plane had no room to hear."""

    def say(self, kind: str) -> None:
        """A word to the control plane, if one is there; if not, it will read our files."""
        if kind not in self.untold:
            self.untold.append(kind)
        self.say_again()

    def say_again(self) -> None:
        """One that is there and has its ears full is told later."""
        try:
            fifo = os.open(self.fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC) if self.untold else -1
        except OSError:
            self.untold = []
            return
        try:
            while self.untold:
                os.write(fifo, f"{self.key} {self.untold[0]}\n".encode())
                self.untold.pop(0)
        except BlockingIOError:
            return
        except OSError:
            self.untold = []
        finally:
            if fifo >= 0:
                os.close(fifo)
