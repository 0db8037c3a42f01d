"""`yard submit FILE`: job files and Slurm batch scripts. Called by `root`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from gpuyard.cli.console import options, terminal
from gpuyard.cli.jobs import on_cluster, preview, slurm
from gpuyard.client import Client
from gpuyard.model.errors import Never

Document = dict[str, Any]

WAITS = 5


@options.command(
    "submit",
    """
    yard submit job.yaml
    yard submit job.yaml --dry-run
    yard submit train.sbatch
    """,
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--dry-run", is_flag=True, help="Only tell: exit code 0 starts now, 5 waits, 4 never.")
@on_cluster.option("Hand them to")
@click.option("--queue-anyway", is_flag=True, help="Accept it even if this fleet could never run it.")
@click.option("--key", default="", help="The same key again starts nothing twice.")
@options.output()
@click.pass_context
def submit(ctx: click.Context, /, files: tuple[str, ...], dry_run: bool, kube: bool, form: str, **given: Any) -> None:
    """Hand in jobs from files, all or none; returns with their names at once.

    A file is a job (YAML or JSON, `yard schema job`; several in one YAML file stand between lines of ---) or a Slurm
    script, whose #SBATCH lines are read. - reads stdin.
    """
    documents = [document for path in files for document in read(path)]
    queue_anyway, key = given["queue_anyway"], given["key"]
    if kube:
        on_cluster.submit(documents, dry_run, form)
        return
    with Client() as client:
        forecasts = client.preview(documents)
        if form == "table":
            preview.show(forecasts, documents[0] if len(documents) == 1 else None, queue_anyway)
        if dry_run:
            _write(forecasts, form)
            ctx.exit(verdict(forecasts))
        answers = client.submit(documents, key, queue_anyway)
    if form == "table":
        preview.names(answers)
    else:
        _write(answers, form)


def read(path: str) -> list[Document]:
    """One file as documents of jobs, checked."""
    from gpuyard import files
    from gpuyard.files.text import documents
    from gpuyard.runtime.clock import SystemClock

    text = sys.stdin.read() if path == "-" else documents.read_text(Path(path))
    if not slurm.is_script(text):
        return files.parse_submissions(text, "stdin" if path == "-" else path, SystemClock().now())
    script = slurm.read(text, Path(path if path != "-" else "stdin"))
    for warning in script.warnings:
        terminal.say(f"warning: {warning}")
    preview.check(script.document)
    return [script.document]


def verdict(forecasts: list[Document]) -> int:
    """0 if all would start now, 5 if any would wait; `Never` is an error of its own."""
    for forecast in forecasts:
        if forecast.get("verdict") == "never":
            raise Never(str(forecast.get("message", "It could never run on this fleet.")))
    return WAITS if any(forecast.get("verdict") == "waits" for forecast in forecasts) else 0


def _write(documents: list[Document], form: str) -> None:
    if form != "table":
        terminal.write_document(documents, form)
