"""Where a benchmark spends its time: cProfile over what is timed, and nothing else."""

from __future__ import annotations

import cProfile
import pstats

from bench.measuring import Case, Stopwatch

LINES = 25
MOST_RUNS = 20


def profile(case: Case) -> None:
    """Print the costliest functions, by their own time and with all they call."""
    case.run()  # what is paid once is not what repeats
    Stopwatch.profiler = cProfile.Profile()
    for _ in range(min(case.runs, MOST_RUNS)):
        case.run()
    stats = pstats.Stats(Stopwatch.profiler).strip_dirs()
    stats.sort_stats("cumulative").print_stats(LINES)
    stats.sort_stats("tottime").print_stats(LINES)
