"""`yard demo`: a short tour of plan, why and frag over the example snapshots.

Called by `root`. It types the commands a newcomer would type, and says before each what to look at. It shows nothing
that those commands do not.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from gpuyard.cli import frag, options, plan, render_plan, sources, terminal, why
from gpuyard.cli.plan import Planned
from gpuyard.model.errors import Refused
from gpuyard.model.outlook import Outlook
from gpuyard.model.reasons import Code

STOPS_MAX = 4
"""A tour that ends in time is taken to its end."""


@options.command(
    "demo",
    """
    yard demo
    """,
)
def demo() -> None:
    """A short tour on example fleets: what starts, what waits and why, and how scattered the GPUs lie."""
    paths = sources.examples()
    if not paths:
        raise Refused("There are no example snapshots beside the package; install gpuyard again.")
    screen = terminal.Screen()
    say(screen, "GPUYard reads a whole moment of a fleet from one file, and plans it. Nothing here touches a machine.")
    stops = [visit(screen, path) for path in paths[:STOPS_MAX]]
    measure(screen, stops)
    farewell(screen, paths[0])


def visit(screen: terminal.Screen, path: Path) -> Planned:
    """One example: its story, its plan, and the most telling question about it."""
    say(screen, story(path))
    typed(screen, "plan", shown(path))
    planned = plan.foresee_file(str(path), None)
    render_plan.draw(screen, planned.snapshot, planned.outlook, planned.timing)
    if planned.outlook.waiting:
        explain(screen, path, planned)
    return planned


def explain(screen: terminal.Screen, path: Path, planned: Planned) -> None:
    """Ask why about the job whose answer says most."""
    chosen = max(planned.outlook.waiting, key=lambda each: len(each.suggestions) + len(each.ladder))
    typed(screen, "why", chosen.job, "--snapshot", shown(path))
    why.write(planned.snapshot, sources.job_named(planned.snapshot, chosen.job), "table")


def measure(screen: terminal.Screen, stops: Sequence[Planned]) -> None:
    """How scattered the GPUs lie, where somebody waits because of it."""
    for planned in stops:
        if scattered(planned.outlook):
            say(screen, "How much of a fleet is lost to scatter is a number, and so is what packing would win back.")
            typed(screen, "frag", "--snapshot", shown(Path(planned.file)))
            frag.write(planned.snapshot, "table")
            return


def scattered(outlook: Outlook) -> bool:
    """Whether somebody waits because free GPUs lie apart."""
    return any(each.reason.code is Code.FRAGMENTED for each in outlook.waiting)


def farewell(screen: terminal.Screen, path: Path) -> None:
    """Three commands to go on with."""
    say(screen, "Next:")
    for args in (
        ("free", "--snapshot", shown(path)),
        ("plan", shown(path), "-o", "json"),
        ("schema", "snapshot"),
    ):
        screen.show(terminal.text(f"  yard {shlex.join(args)}", "cyan"))


def story(path: Path) -> str:
    """What an example is about: the comment at its top, else its name."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# ").rstrip())
    return " ".join(lines).strip() or path.stem


def shown(path: Path) -> str:
    """The path as one would type it from here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def say(screen: terminal.Screen, words: str) -> None:
    """A sentence of the guide."""
    screen.show(terminal.text(""), terminal.text(words, "italic"))


def typed(screen: terminal.Screen, *args: str) -> None:
    """A command as it would be typed."""
    screen.show(terminal.text(""), terminal.text(f"$ yard {shlex.join(args)}", "bold cyan"), terminal.text(""))
