"""`yard tour`: a short tour of plan, why and frag over the example snapshots.

Called by `root`. It types the commands a newcomer would type, and says before each what to look at. It shows nothing
that those commands do not.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from gpuyard.cli.console import hints, options, sources, terminal
from gpuyard.cli.deciding import plan, why
from gpuyard.cli.deciding.plan import Planned
from gpuyard.cli.looking import frag
from gpuyard.cli.rendering import plan_text
from gpuyard.model.errors import Refused

TOUR: dict[str, tuple[str, ...]] = {
    "two-gangs": (),
    "mixed-models": ("why",),
    "fragmented": ("why", "frag"),
}
"""Which examples are visited, and what is asked there after the plan: short enough to be taken to its end."""


@options.command(
    "tour",
    """
    yard tour
    """,
)
def tour() -> None:
    """A short tour on example fleets: what starts, what waits and why, and how scattered the GPUs lie."""
    stops = {path: TOUR[path.stem] for path in sources.examples() if path.stem in TOUR}
    if not stops:
        raise Refused("There are no example snapshots beside the package; install gpuyard again.")
    screen = terminal.Screen()
    say(screen, "GPUYard reads a whole moment of a fleet from one file, and plans it. Nothing here touches a machine.")
    for path in sorted(stops, key=lambda path: list(TOUR).index(path.stem)):
        visit(screen, path, stops[path])
    farewell(screen, path)


def visit(screen: terminal.Screen, path: Path, asks: Sequence[str]) -> None:
    """One example: its story, its plan, and what is asked about it."""
    say(screen, *story(path))
    typed(screen, "plan", shown(path))
    planned = plan.foresee_file(str(path), None)
    plan_text.draw(screen, planned.snapshot, planned.outlook, planned.timing)
    if "why" in asks and planned.outlook.waiting:
        explain(screen, path, planned)
    if "frag" in asks:
        typed(screen, "frag", "--snapshot", shown(path))
        frag.write(planned.snapshot, "table")


def explain(screen: terminal.Screen, path: Path, planned: Planned) -> None:
    """Ask why about the job whose answer says most."""
    chosen = max(planned.outlook.waiting, key=lambda each: len(each.suggestions) + len(each.ladder))
    typed(screen, "why", chosen.job, "--snapshot", shown(path))
    why.write(planned.snapshot, sources.job_named(planned.snapshot, chosen.job), "table")


def farewell(screen: terminal.Screen, path: Path) -> None:
    """Three commands to go on with."""
    say(screen, "Next:")
    for args in (
        ("free", "--snapshot", shown(path)),
        ("plan", shown(path), "-o", "json"),
        ("schema", "snapshot"),
    ):
        screen.show(terminal.text(f"  {hints.yard()} {shlex.join(args)}", "cyan"))


def story(path: Path) -> list[str]:
    """What an example is about: the paragraphs of the comment at its top, its own commands left out."""
    paragraphs: list[str] = [""]
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        words = line.removeprefix("#").rstrip()
        if not words:
            paragraphs.append("")
        elif not words.startswith("   "):
            paragraphs[-1] = f"{paragraphs[-1]}{words}"
    return [paragraph.strip() for paragraph in paragraphs if paragraph] or [path.stem]


def shown(path: Path) -> str:
    """The path as one would type it from here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def say(screen: terminal.Screen, *paragraphs: str) -> None:
    """What the guide says."""
    screen.show(terminal.text(""), *(terminal.text(words, "italic") for words in paragraphs))


def typed(screen: terminal.Screen, *args: str) -> None:
    """A command as it would be typed."""
    screen.show(terminal.text(""), terminal.text(f"$ yard {shlex.join(args)}", "bold cyan"), terminal.text(""))
