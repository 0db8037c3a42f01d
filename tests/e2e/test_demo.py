"""`yard demo`, interrupted: no process and no folder is left behind. Its whole run is compared in test_readme."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import PATIENCE_S, wait_for

pytestmark = pytest.mark.slow


def of_state(folder: str) -> list[int]:
    """Processes that have the folder in their environment or command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
        except OSError:
            continue
        if folder.encode() in words:
            found.append(int(path.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing_behind(number: signal.Signals, tmp_path: Path):
    env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    # Where these tests run in the background, children would ignore Ctrl-C from the start.
    listens = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", f"{listens}; from gpuyard.cli.main import main; main()", "demo", "--port", "0"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as demo:
        assert demo.stdout is not None
        lines = [demo.stdout.readline() for _ in range(3)]
        folder = re.search(r"State:\s+(\S+)", "".join(lines))
        assert folder is not None, lines
        wait_for(lambda: of_state(folder[1]), "jobs run")
        demo.send_signal(number)
        assert demo.wait(PATIENCE_S) == 130
    assert of_state(folder[1]) == []
    assert list(tmp_path.iterdir()) == []
