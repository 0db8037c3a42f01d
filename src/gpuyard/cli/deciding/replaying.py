"""What `yard sim`, `yard whatif` and the comparison of placements share: settings from options, and runs with a bar.

Called by those commands. It prints nothing but progress.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuyard.model.errors import Refused
from gpuyard.runtime.clock import SystemClock

if TYPE_CHECKING:
    from gpuyard.runtime.simulating.simulation import Progress, Setting, SimulatedRun
    from gpuyard.worlds.sim.traces.trace import Window


ONCE = "its tasks only arrive, and are tried once"
TIMELESS = "its times count from 0 and not from a day"
NO_COPIES = "only openb's tasks are drawn again until they ask for so much"
UNSAID: dict[str, dict[str, str]] = {
    "openb": dict.fromkeys(("faults", "overhead", "quirk"), ONCE) | dict.fromkeys(("from", "until"), TIMELESS),
    "muri": dict.fromkeys(("from", "until"), TIMELESS),
}
"""Options that say nothing of a trace of that format, and why; beside them what openb alone takes."""
OPENB_ALONE = {"arrivals": NO_COPIES, "moves": "nobody is tried once in it, so the policy says who may be moved"}


def setting_of(trace: str, fleet_word: str, form: str, given: dict[str, Any]) -> Setting:
    """Everything but policy and seed."""
    from gpuyard.runtime.simulating.simulation import Setting
    from gpuyard.worlds.sim import faults, fleets
    from gpuyard.worlds.sim.traces import reading
    from gpuyard.worlds.sim.world import Rules

    window = window_of(given.get("since"), given.get("until"))
    source = reading.read(Path(trace), form, given.get("arrivals"), window)
    _check_said(source.format, given)
    rules = Rules(
        overhead=given.get("overhead"),
        overhead_every_event=given.get("quirk") == "muri-overhead",
        most_moves=percent(given.get("moves")),
    )
    return Setting(
        source,
        fleets.read(fleet_word),
        rules,
        faults.Rates() if given.get("faults") else None,
        given.get("placements"),
        gantt=given.get("report") is not None,
    )


def _check_said(form: str, given: dict[str, Any]) -> None:
    """An option that would be passed over is refused, with the reason."""
    unsaid = UNSAID.get(form, {}) | (OPENB_ALONE if form != "openb" else {})
    for option, why in unsaid.items():
        value = given.get("since" if option == "from" else option)
        if value is not None and value is not False:
            raise click.UsageError(f"--{option} says nothing of a trace of the format {form}: {why}. Leave it out.")


def check_writable(path: Path | None) -> None:
    """Whether a file can be written is known before a long run, not after."""
    if path is None:
        return
    try:
        with path.open("a", encoding="utf-8"):
            pass
    except OSError as wrong:
        raise Refused(f"{path} cannot be written: {wrong.strerror}; name another file") from None


def window_of(since: str | None, until: str | None) -> Window:
    """The days that are replayed."""
    from gpuyard.worlds.sim.traces.trace import Window

    return Window(_day(since, float("-inf")), _day(until, float("inf")))


def _day(word: str | None, default: float) -> float:
    if word is None:
        return default
    try:
        return datetime.fromisoformat(word).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise click.UsageError(f"{word} is not a date; write it as 2017-10-01.") from None


def seed_range(word: str) -> list[int]:
    """`42`, or `42-46`."""
    first, _, last = word.partition("-")
    if not first.isdigit() or (last and not last.isdigit()):
        raise click.UsageError(f"{word} is not a seed; write 42, or 42-46.")
    return list(range(int(first), int(last or first) + 1))


def percent(word: str | None) -> float:
    """`1%` as a share."""
    if word is None:
        return 0.0
    try:
        return float(word.removesuffix("%")) / 100
    except ValueError:
        raise click.UsageError(f"{word} is not a share; write it as 1%.") from None


def run_all(setting: Setting, policies: Sequence[str], seeds: Sequence[int]) -> list[SimulatedRun]:
    """Every policy with every seed, in order, with a progress bar where somebody watches."""
    from gpuyard.files import Unreadable
    from gpuyard.files.reading import presets
    from gpuyard.runtime.simulating import simulation

    try:
        named = [(name.removesuffix(".yaml"), presets.read_policy(name)) for name in policies]
    except Unreadable as unreadable:
        raise Refused(str(unreadable)) from None
    runs = []
    for one in named:
        for seed in seeds:
            with progress(f"{one[0]}, seed {seed}") as told:
                runs.append(simulation.run(setting, one, seed, SystemClock(), told))
    return runs


@contextmanager
def progress(title: str) -> Iterator[Progress | None]:
    """A bar on stderr with the time left; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
