"""`progress()`: what a job says about itself while it runs. Called inside a task, by the user's program.

It appends one JSON line to the file named in GPUYARD_PROGRESS, which the yard reads; outside a yard it does nothing.
It never raises: a full disk must not end a training.
"""

from __future__ import annotations

import json
import os
from typing import Any

FILE = "GPUYARD_PROGRESS"


def progress(done: float | None = None, total: float | None = None, note: str = "", **values: Any) -> bool:
    """Tell how far the job is, e.g. `progress(step, steps, loss=0.3)`. True if it was written down."""
    path = os.environ.get(FILE)
    if not path:
        return False
    told = {"done": done, "total": total, "note": note or None, **values}
    line = json.dumps({key: value for key, value in told.items() if value is not None}, default=str)
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
    except OSError:
        return False
    return True
