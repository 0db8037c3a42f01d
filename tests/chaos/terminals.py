"""People at terminals who type and do not read: one at the socket of a job's terminal, one in front of `yard run -it`.

Used by `storm`. A supervisor that waits for any of them hears neither limit nor stop.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuyard.cli.jobs.run import document_of, run
from gpuyard.model.errors import GpuYardError
from tests.chaos.truth import Wish

if TYPE_CHECKING:
    from tests.chaos.storm import Storm

TYPED = b"y" * 60_000
SITTING_MAX = 2


@dataclass
class Sitting:
    """Somebody in front of `yard run -it`, whose screen nobody looks at."""

    name: str
    document: dict[str, Any]
    """What they ask for."""
    process: subprocess.Popen[bytes]
    screen: int


class Terminals:
    """Those who sit, and the lines that are open."""

    def __init__(self, storm: Storm) -> None:
        self._storm = storm
        self._lines: list[socket.socket] = []
        self._sitting: list[Sitting] = []
        self._count = 0

    def attach(self, running: list[str]) -> None:
        """Type a lot to one of these jobs."""
        with contextlib.suppress(GpuYardError, OSError), self._storm.plane.client() as client:
            line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._lines.append(line)
            line.settimeout(0.5)
            line.connect(client.attach(self._storm.dice.choice(running)))
            self._storm.note("attach")
            line.sendall(struct.pack(">BI", 0, len(TYPED)) + TYPED)

    def sit_down(self, command: list[str]) -> None:
        """`yard run -it`, in a terminal of its own."""
        if len(self._sitting) >= SITTING_MAX:
            return
        self._count += 1
        name = f"t{self._count}"
        screen, end = os.openpty()
        words = ["-it", "--name", name, "--key", name, "--gpus", "1", "--retries", "50", "--workdir", "/", "--"]
        process = subprocess.Popen(
            [sys.executable, "-m", "gpuyard", "run", *words, *command],
            stdin=end, stdout=end, stderr=end, start_new_session=True,
            env={**os.environ, "GPUYARD_STATE": str(self._storm.plane.state)},
        )  # fmt: skip
        os.close(end)
        self._storm.note("run -it", name)
        document = document_of(run.make_context("run", [*words, *command]).params)
        sitting = Sitting(name, document, process, screen)
        self._sitting.append(sitting)
        self._storm.later(self._storm.dice.uniform(3.0, 10.0), lambda: self._stand_up(sitting))

    def _stand_up(self, sitting: Sitting) -> None:
        """They are gone before anybody told them whether the yard has taken their job: it may still be about to. Who
        asks again with the same key hears it, and nothing starts twice."""
        sitting.process.kill()
        sitting.process.wait()
        os.close(sitting.screen)
        self._sitting.remove(sitting)

        def accepted() -> None:
            self._storm.wishes[sitting.name] = Wish(sitting.name, "chatter")
            self._storm.outcome.counts["jobs"] += 1

        def refused(_tries: int) -> None:
            self._storm.wrong(f"LOST: asked again, {sitting.name} is refused")

        self._storm.ask(
            lambda client: client.submit([sitting.document], key=sitting.name), accepted, refused=refused, tries=1
        )

    def close(self) -> None:
        """Everybody leaves."""
        for line in self._lines:
            line.close()
        for sitting in self._sitting:
            sitting.process.kill()
            sitting.process.wait()
            os.close(sitting.screen)
