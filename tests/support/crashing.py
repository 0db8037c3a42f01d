"""A yard under load that is killed -9 at its N-th fault point: `python -m tests.support.crashing FOLDER RUN POINT`.

Run by tests/e2e/test_crash.py as a process of its own. Every name that was accepted is written to `accepted` before
anything else happens; every task writes itself to `begun` when it really starts. POINT 0 is never reached: the yard
then runs until every job has ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

from gpuyard.model.errors import Refused
from gpuyard.runtime.clock import SystemClock
from gpuyard.runtime.embedded.yard import EmbeddedYard, Settings
from gpuyard.runtime.service import Caller
from tests.support.yards import fleet

ME = Caller("me")
ADMIN = Caller("admin", admin=True)
FLEET = "nodes: [{name: n0, gpus: 4, model: H100}, {name: n1, gpus: 4, model: H100}]"


class Killer:
    """Ends this process without a word at the N-th point."""

    def __init__(self, point: int) -> None:
        self.left = point

    def __call__(self, point: str) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path, run: int, point: int) -> None:
    settings = Settings(folder / "state", fleet(FLEET), backoff=0.05, term_grace=0.3)
    yard = EmbeddedYard(settings, SystemClock(), Killer(point))
    yard.start()
    if point:
        load(yard, folder, run)
    release(yard)
    end = time.monotonic() + 600
    while any(job["phase"] not in ("succeeded", "failed", "cancelled") for job in yard.jobs(ME)):
        assert time.monotonic() < end, [(job["name"], job["phase"], job.get("reason")) for job in yard.jobs(ME)]
        yard.wait_events(yard.store.last_event, 0.2)
    yard.close()


def load(yard: EmbeddedYard, folder: Path, run: int) -> None:
    """A little of everything, the same for the same run."""
    dice = Random(run)
    for number in range(6):
        put(yard, folder, job(f"j{run}.{number}", dice))
        if dice.random() < 0.3:
            with contextlib.suppress(Refused):
                yard.act(ME, f"j{run}.{dice.randrange(number + 1)}", dice.choice(["cancel", "hold", "requeue"]))
        if dice.random() < 0.2:
            yard.drain(ADMIN, {"node": dice.choice(["n0", "n1"]), "gpu": dice.choice([None, 0, 3])})
    release(yard)


def release(yard: EmbeddedYard) -> None:
    """What was held or drained, also before a crash, goes on."""
    for place, _ in yard.world.closures.draining():
        yard.undrain(ADMIN, {"node": place.node, "gpu": place.gpu})
    for document in yard.jobs(ME):
        if document["phase"] == "held":
            yard.act(ME, document["name"], "release")


def put(yard: EmbeddedYard, folder: Path, document: dict[str, Any]) -> None:
    answers = yard.submit(ME, [document], key=document["name"])
    with open(folder / "accepted", "a", encoding="utf-8") as file:
        file.writelines(f"{answer['name']}\n" for answer in answers)


def job(name: str, dice: Random) -> dict[str, Any]:
    line = 'echo "$GPUYARD_JOB $GPUYARD_ATTEMPT $RANK" >> ../../../../begun'
    script = f"{line}; sleep {dice.choice([0, 0.05, 0.3])}; exit {dice.choice([0, 0, 0, 1])}"
    shape: dict[str, Any] = dice.choice(
        [{"gpus": 1}, {"gpus": 2}, {"gpus": 2, "tasks": 2}, {"gpus": 4}, {"array": "0-2%2"}]
    )
    keys = {"priority": dice.choice([10, 50, 90]), "preemptible": True}
    return {"name": name, **shape, **keys, "run": {"command": ["sh", "-c", script], "retries": 1}}


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
