"""The control plane as `yard up` runs it, with a clock that a storm can set: `python -m tests.chaos.plane FOLDER`.

FOLDER has `fleet.yaml`, the state in `disk/s` and the clock's error in `clock`, which may change at any moment.
"""

from __future__ import annotations

import mmap
import signal
import struct
import sys
from pathlib import Path

from gpuyard.cli.keeping import up, which_yard
from gpuyard.runtime.clock import SystemClock
from gpuyard.server.hosting import Hosting

BACKOFF_S = 0.3
TERM_GRACE_S = 1.0
ERROR = struct.Struct("d")


class WrongClock(SystemClock):
    """The machine's clock, as wrong as the file says."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._error = mmap.mmap(file.fileno(), ERROR.size, prot=mmap.PROT_READ)

    def now(self) -> float:
        error: float = ERROR.unpack(self._error[:])[0]
        return super().now() + error


def main(folder: Path) -> None:
    clock = WrongClock(folder / "clock")
    wish = up.UpWish(folder / "disk" / "s", port=0)
    yard = which_yard.make(
        which_yard.find(str(folder / "fleet.yaml"), wish.state, clock.now()), wish.state, clock,
        backoff=BACKOFF_S, term_grace=TERM_GRACE_S,
    )  # fmt: skip
    hosting = Hosting(yard, up.doors(wish), clock)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: hosting.stop())
    hosting.start()
    try:
        hosting.wait()
    finally:
        hosting.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
