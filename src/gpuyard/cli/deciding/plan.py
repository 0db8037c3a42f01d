"""`yard plan`: what would start, move and stop on snapshots, and why the rest waits.

Called by `root`. It reads, asks the brain's foresight and prints; several files are planned one after the other, and
one that cannot be read does not stop the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import click

from gpuyard.cli.console import options, sources, terminal
from gpuyard.cli.rendering.documents import Document
from gpuyard.model.answers.outlook import Outlook
from gpuyard.model.outside.collector import collector_resting, made_to_stay
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.clock import SystemClock

UNREADABLE = 2


@dataclass(frozen=True)
class Planned:
    """One file's answer."""

    file: str
    snapshot: Snapshot
    outlook: Outlook
    timing: Document


@options.command(
    "plan",
    """
    yard plan fleet.yaml
    yard plan fleet.yaml -o json | jq '.waiting[].reason.code'
    yard plan snapshots/*.json -o ndjson
    """,
)
@click.argument("files", nargs=-1, metavar="FILE...")
@click.option("--kube", is_flag=True, help="Plan the Kubernetes cluster that kubectl would ask, and change nothing.")
@click.option("--cycles", type=click.IntRange(min=1), metavar="N", help="Plan this many cycles, not to the end.")
@options.output(("table", "json", "ndjson", "yaml"))
@click.pass_context
def plan(ctx: click.Context, files: tuple[str, ...], kube: bool, cycles: int | None, form: str) -> None:
    """What would start, move and stop, and why the rest waits.

    Cycles run until nothing changes any more, with effects instant and time standing still; the net change is
    shown. Several files give one JSON object a line. - reads stdin.
    """
    files = (*files, options.KUBE) if kube else files
    if not files:
        raise click.UsageError("Missing argument 'FILE...'.", ctx)
    several = len(files) > 1
    form = "ndjson" if several and form == "json" else form
    failed = False
    for path in files:
        try:
            _WRITERS[form](foresee_file(path, cycles), several)
        except sources.Unusable as unusable:
            failed = True
            _report(unusable, form)
    ctx.exit(UNREADABLE if failed else 0)


def foresee_file(path: str, cycles: int | None) -> Planned:
    """Read one file and plan it, timed."""
    from gpuyard.brain import foresee  # loads NumPy, which is neither reading nor deciding

    clock = SystemClock()
    source = sources.read(path, clock)
    begun = clock.monotonic()
    with collector_resting():
        outlook = foresee.outlook(source.snapshot, cycles)
        made_to_stay()
    decide_ms = (clock.monotonic() - begun) * 1000
    timing = {"read_ms": round(source.read_ms, 3), "decide_ms": round(decide_ms, 3), "cycles": outlook.cycles}
    return Planned(path, source.snapshot, outlook, timing)


def document(planned: Planned, named: bool) -> Document:
    """The plan as JSON has it; one of several carries its file."""
    from gpuyard.cli.rendering.documents import plan_document

    name = {"file": planned.file} if named else {}
    return name | plan_document(planned.outlook, planned.timing)


def _write_table(planned: Planned, several: bool) -> None:
    from gpuyard.cli.rendering import plan_text

    screen = terminal.Screen()
    if several:
        screen.show(terminal.text(planned.file, "bold underline"))
    plan_text.draw(screen, planned.snapshot, planned.outlook, planned.timing)
    if several:
        terminal.write("\n")


def _write_json(planned: Planned, _several: bool) -> None:
    terminal.write_json(document(planned, named=False))


def _write_line(planned: Planned, _several: bool) -> None:
    terminal.write_json_line(document(planned, named=True))


def _write_yaml(planned: Planned, several: bool) -> None:
    terminal.write_yaml(document(planned, named=several), separator=several)


_WRITERS: dict[str, Callable[[Planned, bool], None]] = {
    "table": _write_table,
    "json": _write_json,
    "ndjson": _write_line,
    "yaml": _write_yaml,
}


def _report(unusable: sources.Unusable, form: str) -> None:
    """On a line of its own: among JSON lines as one of them, else as words."""
    if form == "ndjson":
        terminal.write_json_line({"file": unusable.path, "error": "\n".join(unusable.problems)})
    else:
        terminal.say(f"error: {unusable}")
