"""One benchmark, one process of its own: so that its peak memory is its own. Keeps and reads results."""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench import happenings, placing, reading, served, taking, yardstick
from bench.measuring import Case, Sample

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
ROWS = (*yardstick.CASES, *placing.CASES, *taking.CASES, *happenings.CASES, *reading.CASES, *served.CASES)
CASES: dict[str, Case] = {case.name: case for case in ROWS}
MANY = 20
"""From so many runs on the tail of a figure can be told."""


@dataclass(frozen=True)
class Result:
    """What is kept of a benchmark; `figure` None means that the engine does not do it yet."""

    name: str
    title: str
    unit: str
    figure: float | None
    best: float | None
    worst: float | None
    aim: float | None
    more_is_better: bool
    peer: str
    runs: int
    peak_mib: float
    notes: dict[str, float] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    bounds: dict[str, float] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        """Whether the aim and every bound beside it are met; None if there is none or no figure."""
        if (self.aim is None and not self.bounds) or self.figure is None:
            return None
        return self._aim_met(self.figure) and all(self.notes[name] <= most for name, most in self.bounds.items())

    def _aim_met(self, figure: float) -> bool:
        return self.aim is None or (figure >= self.aim if self.more_is_better else figure <= self.aim)


def measure(case: Case) -> Result:
    """Run the case here; the caller is a process made for it."""
    samples = [case.run() for _ in range(case.runs)]
    figures = [sample.figure for sample in samples if sample.figure is not None]
    done = len(figures) == len(samples)
    low, high = (min(figures), max(figures)) if done else (None, None)
    best, worst = (high, low) if case.more_is_better else (low, high)
    return Result(
        case.name, case.title, case.unit, _rounded(statistics.median(figures)) if done else None,
        _rounded(best), _rounded(worst), case.aim, case.more_is_better, case.peer, case.runs,
        round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024), _tail(figures) | _notes(samples), machine(),
        dict(case.bounds),
    )  # fmt: skip


def _tail(figures: list[float]) -> dict[str, float]:
    """Where runs are many, one in twenty is slower than p95."""
    if len(figures) < MANY:
        return {}
    return {"p95": _rounded(sorted(figures)[len(figures) * 95 // 100]) or 0.0, "max": _rounded(max(figures)) or 0.0}


def _notes(samples: list[Sample]) -> dict[str, float]:
    return {
        name: _rounded(statistics.median(sample.notes[name] for sample in samples)) or 0.0 for name in samples[0].notes
    }


def _rounded(number: float | None) -> float | None:
    """Four digits tell enough and keep the stored results readable."""
    return None if number is None else float(f"{number:.4g}")


def machine() -> dict[str, Any]:
    """What the figures were taken on; no date, no name, no path."""
    return {
        "cores": os.cpu_count(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def in_its_own_process(name: str) -> Result:
    """Measure in a child, keep the result, return it."""
    told = subprocess.run(
        [sys.executable, "-m", "bench", "measure", name], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    result = Result(**json.loads(told))
    RESULTS.mkdir(exist_ok=True)
    Path(RESULTS, f"{name}.json").write_text(json.dumps(asdict(result), indent=2, sort_keys=True) + "\n")
    return result


def kept() -> list[Result]:
    """The last result of every benchmark that has one, in the table's order."""
    paths = [Path(RESULTS, f"{name}.json") for name in CASES]
    return [Result(**json.loads(path.read_text())) for path in paths if path.exists()]
