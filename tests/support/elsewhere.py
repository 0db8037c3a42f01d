"""The same plan in another process: a planner under a hash seed of its own that answers snapshot by snapshot."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import IO

from gpuyard.brain.foresee import outlook
from gpuyard.model.snapshot import Snapshot

ROOT = Path(__file__).resolve().parents[2]
NO_PLAN = "no plan: the planner died"


class Planner:
    """A child process with its own PYTHONHASHSEED; ask it as often as you like, then close it."""

    def __init__(self, hash_seed: int) -> None:
        self._seed = hash_seed
        self._child = self._born()

    def _born(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": str(self._seed)},
        )

    def plan(self, snapshot: Snapshot) -> str:
        """The whole outlook as text; what made a planner die is for other laws to say."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            pickle.dump(snapshot, self._child.stdin)
            self._child.stdin.flush()
            return str(pickle.load(self._child.stdout))
        except (EOFError, BrokenPipeError):
            self.close()
            self._child = self._born()
            return NO_PLAN

    def close(self) -> None:
        """Let it end."""
        self._child.communicate()


def answer(asked: IO[bytes], told: IO[bytes]) -> None:
    """Plan every snapshot that comes in until no more do."""
    while True:
        try:
            snapshot = pickle.load(asked)
        except EOFError:
            return
        pickle.dump(repr(outlook(snapshot)), told)
        told.flush()


if __name__ == "__main__":
    answer(sys.stdin.buffer, sys.stdout.buffer)
