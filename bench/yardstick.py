"""A fixed piece of work, so that figures of different days and machines can be compared: it never changes.

Half of it is pure Python (dictionaries, tuples, sorting), half of it NumPy on small arrays: the mix that planning is.
"""

from __future__ import annotations

import numpy as np

from bench.measuring import Case, Sample, worked

PYTHON_ROUNDS = 190
NUMPY_ROUNDS = 120_000


def fixed_work() -> Sample:
    """The seconds that both halves take."""
    python_s, _ = worked(_python)
    numpy_s, _ = worked(_numpy)
    return Sample(python_s + numpy_s, python_s + numpy_s, {"python_s": python_s, "numpy_s": numpy_s})


def _python() -> int:
    total = 0
    for turn in range(PYTHON_ROUNDS):
        table: dict[tuple[int, str], list[int]] = {}
        for i in range(4_000):
            table.setdefault((i * 7919 % 613, "abc"[i % 3]), []).append(i ^ turn)
        for key in sorted(table, key=lambda key: (-len(table[key]), key)):
            total += sum(value for value in table[key] if value & 3) % (key[0] + 1)
    return total


def _numpy() -> float:
    room, score = np.arange(1_000) % 9, np.linspace(0.0, 1.0, 1_000)
    total = 0.0
    for turn in range(NUMPY_ROUNDS):
        part = slice(turn % 900, turn % 900 + 64)
        holding = np.flatnonzero(np.minimum(room[part], 4) >= 3)
        total += float(score[part][holding].max(initial=0.0))
    return total


CASES = (Case("yardstick", "a fixed piece of work: compare days by it", "s", fixed_work, runs=5),)
