"""`progress()`: what a job says about itself while it runs. Called inside a task, by the user's program.

It writes one line of JSON to the pipe named in GPUYARD_PROGRESS, which the yard reads; outside a yard it does nothing.
It never raises and never waits: neither a full disk nor a yard that is away may hold up a training.
"""

from __future__ import annotations

import json
import os

FILE = "GPUYARD_PROGRESS"


def progress(done: float | None = None, total: float | None = None, *, saved: bool = False) -> bool:
    """Tell how far the job is, e.g. `progress(step, steps)`, and with `saved=True` that its work is saved so far.

    The first call after a start tells that the job has warmed up: make it when the first step is done. True if it was
    taken.
    """
    path = os.environ.get(FILE)
    if not path:
        return False
    told = {"done": done, "total": total, "saved": bool(saved) or None}
    try:
        line = json.dumps({key: value for key, value in told.items() if value is not None}, default=float)
        pipe = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, TypeError, ValueError):
        return False
    try:
        os.write(pipe, line.encode() + b"\n")
    except OSError:
        return False
    finally:
        os.close(pipe)
    return True
