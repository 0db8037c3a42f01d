"""`python -m tests.chaos`: storms over a yard, with a seed that is told; exit code 1 if anything was wrong."""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
import time

from tests.chaos import faults, load, storm


def main() -> int:
    asked = argparse.ArgumentParser(prog="python -m tests.chaos")
    asked.add_argument("--seconds", type=float, default=270.0, help="how long each storm blows; then it settles")
    asked.add_argument("--seed", type=int, default=None)
    asked.add_argument("--cgroup", choices=("with", "without", "both"), default="both")
    kinds = sorted({*faults.FAULTS, *load.MODES, *load.SHAPES, *storm.ACTS, "drain", "preemption", "terminal"})
    asked.add_argument("--without", default="", metavar="KIND,...", help=f"leave some out of {', '.join(kinds)}")
    given = asked.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # also who is told to end leaves nothing behind
    seed = secrets.randbelow(1 << 31) if given.seed is None else given.seed
    without = frozenset(filter(None, given.without.split(",")))
    print(f"seed {seed}: SEED={seed} draws the same again", flush=True)
    wrong = 0
    for cgroup in {"with": [True], "without": [False], "both": [True, False]}[given.cgroup]:
        began = time.monotonic()
        outcome = storm.run(storm.Forecast(seed, given.seconds, cgroup, without))
        print(f"\nseed {seed}, {'with' if cgroup else 'without'} cgroup, {time.monotonic() - began:.0f} s")
        print("".join(f"  {name:<28}{count:>6}\n" for name, count in sorted(outcome.counts.items())), end="")
        print(
            "".join(f"  {each}\n" for each in outcome.wrong) or "  nothing lost, doubled, held twice or stuck",
            flush=True,
        )
        wrong += len(outcome.wrong)
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
