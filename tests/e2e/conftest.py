"""A real yard, as a user starts it: `yard up --detach` in a state folder of its own, with virtual GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuyard.client import Client

PATIENCE_S = 300


def wait_for(holds: Callable[[], Any], what: str) -> Any:
    """Until it holds; what it said then."""
    end = time.monotonic() + PATIENCE_S
    while not (told := holds()):
        assert time.monotonic() < end, f"after {PATIENCE_S} s it is not so that {what}"
        time.sleep(0.05)
    return told


@dataclass
class Shell:
    """Types commands at one yard."""

    state: Path

    def __call__(self, *args: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "GPUYARD_STATE": str(self.state), "COLUMNS": "200", "NO_COLOR": "1"}
        done = subprocess.run(
            [sys.executable, "-m", "gpuyard", *args],
            capture_output=True, text=True, env=env, timeout=PATIENCE_S, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        assert code is None or done.returncode == code, f"{args}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def up(self, *args: str) -> str:
        return self("up", "--detach", "--port", "0", *args).stdout

    def client(self) -> Client:
        return Client.at_state(self.state)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A folder for a yard; whatever runs there at the end is taken down with its jobs."""
    shell = Shell(tmp_path / "s")
    try:
        yield shell
    finally:
        shell("down", "--jobs", code=None)
