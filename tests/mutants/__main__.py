"""`python -m tests.mutants`: so many small mistakes in the brain, and who notices them.

Each mutant is one operator, constant or branch changed; it is tried with what reaches its statement: scenarios, moments
of the oracle, fast tests with fixed seeds. Whatever nobody notices is printed. Exit code 1 if too much survives.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import random
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

from tests.mutants import argued, importing, reaching
from tests.mutants.changing import Mutant, mutants, mutated
from tests.support.scenario import Scenario, load_all

LEAST = 0.85
"""The share that must be noticed."""

BESIDE_THE_BRAIN = ("numpy", "rich", "hypothesis", "gpuyard.files", "tests.support.invariants", "tests.oracle.judge")

SURVEYS = 6
"""Processes among which the survey is divided."""

Verdict = tuple[Mutant, str | None]


def main() -> int:
    asked = argparse.ArgumentParser(prog="python -m tests.mutants")
    asked.add_argument("-n", type=int, default=200, help="how many mutants")
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--only", nargs="+", metavar="FILE:LINE/N", help="these, or all of a line or file")
    asked.add_argument("--jobs", type=int, default=max((os.cpu_count() or 2) // 2, 1))
    asked.add_argument("--scenario", help="try nothing but scenarios whose file and name match this")
    asked.add_argument("--tests", nargs="+", default=[], help="try nothing but these files of tests")
    asked.add_argument(
        "--seconds", type=float, default=40.0, help="processor time for each; what is left out is not asked"
    )
    asked.add_argument("--verbose", action="store_true", help="also say who noticed each")
    given = asked.parse_args()
    os.environ["HYPOTHESIS_PROFILE"] = "mutants"
    chosen = choose(given.n, given.seed, given.only)
    scenarios = [s for s in load_all() if re.search(given.scenario or "", f"{s.file} {s.name}")]
    preload()
    work = partial(attempt_with, given.tests, given.seconds)
    if not given.tests:
        everything = None if given.scenario else surveyed(scenarios, given.jobs)
        work = partial(attempt, everything, scenarios, given.seconds)
    verdicts: list[Verdict] = []
    for verdict in all_done(chosen, work, given.jobs):
        verdicts.append(verdict)
        if given.verbose or verdict[1] is None:
            print(said(verdict), flush=True)
    return summed_up(verdicts, given.seed)


def preload() -> None:
    """Everything but the brain is imported once, before processes part; what is there is never looked at again."""
    for name in BESIDE_THE_BRAIN:
        importlib.import_module(name)
    gc.freeze()


def choose(count: int, seed: int, only: list[str] | None) -> list[Mutant]:
    """A random choice of every mutant there is, or those that are named."""
    paths = sorted(importing.BRAIN.rglob("*.py"))
    every = [m for path in paths for m in mutants(path, path.relative_to(importing.BRAIN).as_posix())]
    if only:
        return [m for m in every if any(is_meant(m, part) for part in only)]
    return random.Random(seed).sample(every, min(count, len(every)))


def is_meant(mutant: Mutant, part: str) -> bool:
    """Whether `file`, `file:line` or `file:line/number` names it; the file may be told by its end."""
    names = (mutant.file, f"{mutant.file}:{mutant.line}", mutant.name)
    return any(name == part or name.endswith(f"/{part}") for name in names)


# --- processes: some for the survey, one for each mutant -----------------------------------------


def surveyed(scenarios: list[Scenario], jobs: int) -> list[Any]:
    """Every trial, on the brain as it is."""
    return [trial for _, found in all_done(range(SURVEYS), partial(survey, scenarios), jobs) for trial in found]


def survey(scenarios: list[Scenario], part: int) -> Any:
    """One part of all trials: the tests, or every so manieth of the others."""
    reached = reaching.watch()
    from tests.mutants import trials

    if not part:
        return trials.survey_tests(reached)
    return trials.survey(scenarios, reached, part - 1, SURVEYS - 1)


def attempt(everything: Any, scenarios: list[Scenario], most_s: float, mutant: Mutant) -> str | None:
    """Who notices the mutant."""
    importing.install(lambda file, source: mutated(source, mutant) if file == mutant.file else None)
    from tests.mutants import trials

    place = f"{mutant.file}:{mutant.statement}"
    if everything is None:
        everything = [trials.Trial(scenario.name, frozenset([place]), 0.0) for scenario in scenarios]
    relevant = [t for t in everything if mutant.statement is None or place in t.reached]
    try:
        return trials.killer(trials.most_telling(relevant, mutant.file), scenarios, most_s)
    except Exception as error:  # noqa: BLE001 - a brain that cannot even be imported
        return f"{type(error).__name__}: {error}"


def attempt_with(tests: list[str], most_s: float, mutant: Mutant) -> str | None:
    """Which of these tests notices the mutant; for whoever is writing them."""
    importing.install(lambda file, source: mutated(source, mutant) if file == mutant.file else None)
    from tests.mutants import trials

    try:
        return trials.noticed_by(tests, most_s)
    except Exception as error:  # noqa: BLE001 - as above
        return f"{type(error).__name__}: {error}"


def begun(work: Callable[[], Any]) -> tuple[Any, Connection]:
    """A process that does the work and sends its result."""
    context = get_context("fork")
    reading, writing = context.Pipe(duplex=False)
    process = context.Process(target=lambda: writing.send(work()))
    process.start()
    writing.close()
    return process, reading


def all_done(asked: Sequence[Any], work: Callable[[Any], Any], jobs: int) -> Iterator[tuple[Any, Any]]:
    """Each that is asked with what the work on it gives, as it comes; so many at once."""
    waiting = list(reversed(asked))
    under_way: dict[Any, tuple[Any, Any]] = {}
    while waiting or under_way:
        while waiting and len(under_way) < jobs:
            each = waiting.pop()
            process, reading = begun(partial(work, each))
            under_way[reading] = each, process
        for ready in wait(list(under_way)):
            each, process = under_way.pop(ready)
            yield each, received(ready)
            process.join()


def received(reading: Any) -> Any:
    """What the process sent; one that died noticed the mutant in its own way."""
    try:
        return reading.recv()
    except EOFError:
        return "the process broke"


# --- what is said --------------------------------------------------------------------------------


def said(verdict: Verdict) -> str:
    mutant, who = verdict
    change = f"{mutant.name}  {mutant.before}  ->  {mutant.after}"
    if who is not None:
        return f"  {change}\n      noticed: {' '.join(who.split())[:160]}"
    why = argued.why(mutant)
    return f"{'argued ' if why else 'SURVIVES'} {change}" + (
        "" if mutant.text == mutant.before else f"\n      {mutant.text}"
    )


def summed_up(verdicts: list[Verdict], seed: int) -> int:
    """The share by file and in all; 1 if it is too small."""
    by_file: dict[str, list[bool]] = defaultdict(list)
    for mutant, who in verdicts:
        by_file[mutant.file].append(who is not None)
    for file, noticed in sorted(by_file.items()):
        print(f"{sum(noticed):4d} of {len(noticed):3d}  {file}")
    killed = sum(who is not None for _, who in verdicts)
    reasoned = sum(who is None and argued.why(mutant) is not None for mutant, who in verdicts)
    share = killed / max(len(verdicts), 1)
    print(f"seed {seed}: {killed} of {len(verdicts)} noticed ({share:.1%}); of the others {reasoned} change nothing")
    return int(share < LEAST)


if __name__ == "__main__":
    sys.exit(main())
