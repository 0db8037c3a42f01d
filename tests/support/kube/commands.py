"""`yard` as somebody types it who has a kubeconfig."""

from __future__ import annotations

import subprocess
import sys

from tests.support.kube.cluster import environment

PATIENCE_S = 300


def yard(kubeconfig: str, *args: str, code: int = 0, **more: str) -> str:
    """A command, and what it said; it ended so."""
    env = environment(KUBECONFIG=kubeconfig, NO_COLOR="1", COLUMNS="200", **more)
    command = [sys.executable, "-m", "gpuyard", *args]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=PATIENCE_S, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr
