"""kill -9 of the control plane at its fault points, under load: nothing accepted is lost, nothing runs twice.

After each kill the state on disk and the real processes are looked at from outside. `make test` does 30 kills, `make
proof` more.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from gpuyard.worlds.local.state import book as books
from gpuyard.worlds.local.state.store import FILE, Store

ROOT = Path(__file__).resolve().parents[2]
KILLS = 110 if os.environ.get("HYPOTHESIS_PROFILE") == "proof" else 15
POINTS_MAX = 60
PHASES = {"waiting", "held", "starting", "running", "stopping", "succeeded", "failed", "cancelled"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_killed_yard_loses_nothing_and_starts_nothing_twice(tmp_path: Path, seed: int):
    dice = Random(seed)
    killed = 0
    for run in range(KILLS):
        killed += drive(tmp_path, run, dice.randint(1, POINTS_MAX)) == -signal.SIGKILL
        look(tmp_path)
    assert killed >= 0.8 * KILLS
    assert drive(tmp_path, KILLS, 0) == 0
    look(tmp_path)
    assert not [name for name, phase in phases(tmp_path).items() if phase not in ("succeeded", "failed", "cancelled")]
    assert not marked(tmp_path)


def drive(folder: Path, run: int, point: int) -> int:
    command = [sys.executable, "-m", "tests.support.crashing", str(folder), str(run), str(point)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def look(folder: Path) -> None:
    """What must hold whatever happened."""
    accepted = lines(folder / "accepted")
    known = phases(folder)
    assert not [name for name in accepted if name not in known], "accepted and lost"
    assert set(known.values()) <= PHASES
    twice = [line for line, count in Counter(lines(folder / "begun")).items() if count > 1]
    assert not twice, f"started twice: {twice}"
    held = Counter(uuid for uuids in marked(folder).values() for uuid in uuids)
    assert not [uuid for uuid, count in held.items() if count > 1], "a GPU held twice"


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def phases(folder: Path) -> dict[str, str]:
    if not (folder / "state" / FILE).exists():
        return {}
    store = Store(folder / "state" / FILE)
    rows = store.rows("SELECT name, phase FROM jobs")
    books.load(store)  # whatever is there can be read back
    store.close()
    return dict(rows)


def marked(folder: Path) -> dict[str, list[str]]:
    """The GPUs of every task process that is alive, by the task's mark."""
    found: dict[str, list[str]] = {}
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            content = (process / "environ").read_bytes().decode(errors="replace")
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        env = dict(pair.split("=", 1) for pair in content.split("\0") if "=" in pair)
        if "GPUYARD_MARK" in env and env.get("PWD", "").startswith(str(folder)) and state != "Z":
            found[env["GPUYARD_MARK"]] = list(filter(None, env["CUDA_VISIBLE_DEVICES"].split(",")))
    return found
