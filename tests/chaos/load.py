"""The jobs of a storm, drawn from its dice: every kind of thing that people run, small.

Used by `storm`. The tasks are `worker`; what they are to do is in the wish, so that the verdict knows it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import Any

from tests.chaos.truth import Wish

WORKER = Path(__file__).with_name("worker.py")
RETRIES = 50
"""What the storm kills was not the job's fault, but counts as failed: enough for any storm."""
NODES, GPUS = 2, 4

Document = dict[str, Any]


def fleet(run: str) -> str:
    """Two nodes; no other yard on this machine has their GPUs."""
    nodes = [
        f"  - {{name: n{n}, gpus: {GPUS}, model: H100-SXM5-80GB, uuids: [{', '.join(uuids(run, n))}]}}"
        for n in range(NODES)
    ]
    return "apiVersion: gpuyard.dev/v1\nkind: Snapshot\nnodes:\n" + "\n".join(nodes) + "\n"


def uuids(run: str, node: int) -> list[str]:
    return [f"GPU-{run}-{node}-{index}" for index in range(GPUS)]


SHAPES: dict[str, tuple[int, Document]] = {
    "one": (6, {"gpus": 1}),
    "two": (3, {"gpus": 2}),
    "node": (1, {"gpus": 4}),
    "half": (2, {"fraction": 0.5}),
    "cpu": (1, {}),
    "gang": (3, {"gpus": 1, "tasks": 3}),
    "wide": (1, {"gpus": 3, "tasks": 2}),
    "elastic": (3, {"gpus": 1, "tasks": 4, "min": 2}),
    "array": (3, {"gpus": 1, "array": "0-3%2"}),
}
MODES = {"work": 10, "fail": 1, "limit": 1, "orphan": 2, "chatter": 2, "deaf": 2}
"""How often each; what a task does is told in `worker`. `limit` works for longer than its time limit allows."""


class Load:
    """Draws jobs."""

    def __init__(self, dice: Random, truth: Path, without: frozenset[str] = frozenset()) -> None:
        self._dice = dice
        self._truth = truth
        self._modes = {mode: weight for mode, weight in MODES.items() if mode not in without}
        self._shapes = {shape: weight for shape, (weight, _) in SHAPES.items() if shape not in without}
        self._priorities = [50] if "preemption" in without else [10, 50, 50, 90]
        self._count = 0

    def draw(self) -> tuple[Document, list[Wish]]:
        """A job, and what is to come of it: one wish, or one for each member of an array."""
        self._count += 1
        name = f"j{self._count}"
        shape = _weighted(self._dice, self._shapes)
        mode = _weighted(self._dice, self._modes)
        asked = SHAPES[shape][1]
        if mode in ("deaf", "chatter") and "tasks" in asked:
            mode = "work"  # a terminal belongs to one task
        if shape == "half":
            mode = "half"
        document = {"name": name, **asked, **self._manners(mode), "run": self._run(mode)}
        tasks = int(asked.get("tasks", 1))
        names = [f"{name}-{member}" for member in range(4)] if "array" in asked else [name]
        retries = int(document["run"]["retries"])
        return document, [Wish(each, mode, tasks, int(asked.get("min", tasks)), retries) for each in names]

    def command(self, mode: str, seconds: float) -> list[str]:
        """What a task executes."""
        return [sys.executable, "-I", "-S", str(WORKER), str(self._truth), mode, str(seconds)]

    def _manners(self, mode: str) -> Document:
        manners: Document = {"priority": self._dice.choice(self._priorities), "preemptible": True}
        if mode == "limit":
            manners["time_limit"] = "2s"
        elif self._dice.random() < 0.3:
            manners["checkpoint"] = {"grace": "1s", "signal": "SIGTERM"}
        return manners

    def _run(self, mode: str) -> Document:
        seconds = 3600.0 if mode == "limit" else self._dice.choice([0.0, 0.3, 1.0, 2.0, 4.0])
        command = self.command(mode, seconds)
        run: Document = {"command": command, "workdir": "/", "retries": 1 if mode == "fail" else RETRIES}
        return run | ({"tty": True} if mode in ("deaf", "chatter") else {})


def _weighted(dice: Random, weights: dict[str, int]) -> str:
    return dice.choices(list(weights), list(weights.values()))[0]
