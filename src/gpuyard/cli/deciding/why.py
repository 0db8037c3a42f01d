"""`yard why`: one sentence, the ladder with counts, what would let the job start, who is in the way.

Called by `root`. The brain explains; this finds the job and prints.
"""

from __future__ import annotations

import click

from gpuyard.cli.console import options, sources, terminal
from gpuyard.cli.console.completing import names
from gpuyard.cli.rendering import inventory
from gpuyard.cli.rendering.documents import Document
from gpuyard.model.actions import Start
from gpuyard.model.job import Job, Placement
from gpuyard.model.snapshot import Snapshot


@options.command(
    "why",
    """
    yard why train
    yard why train --snapshot fleet.yaml -o json | jq .reason.suggestions
    """,
)
@click.argument("job", shell_complete=lambda ctx, _param, typed: _complete(ctx, typed))
@options.snapshot()
@options.output()
def why(job: str, path: str, form: str) -> None:
    """Why a job waits, and what would let it start."""
    if not path:
        from gpuyard.cli.deciding import live_why

        live_why.write(job, form)
        return
    snapshot = sources.read(path).snapshot
    write(snapshot, sources.job_named(snapshot, job, path), form)


def write(snapshot: Snapshot, job: Job, form: str) -> None:
    """Answer for one job."""
    from gpuyard.cli.rendering import why_text

    answer = {"job": job.name, "phase": inventory.phase(job).value} | _answer(snapshot, job)
    if form == "table":
        why_text.draw(terminal.Screen(), answer, snapshot.now)
    else:
        terminal.write_document(answer, form)


def _answer(snapshot: Snapshot, job: Job) -> Document:
    """Why it waits; or, where it runs or will after the next plan, where."""
    from gpuyard.brain import foresee
    from gpuyard.cli.rendering.documents import explanation_document, moment, placement_documents
    from gpuyard.files.writing import shape_document

    explanation = foresee.why(snapshot, job.name)
    if explanation is not None:
        return shape_document(job) | explanation_document(explanation)
    starts = not job.placements
    places = _planned_places(snapshot, job.name) if starts else job.placements
    since = {} if job.started is None else {"started": moment(job.started)}
    return {"starts": starts, "placements": placement_documents(places)} | since


def _planned_places(snapshot: Snapshot, name: str) -> tuple[Placement, ...]:
    from gpuyard.brain import foresee

    starts = (action for action in foresee.outlook(snapshot).actions if isinstance(action, Start))
    return next((start.placements for start in starts if start.job == name), ())


def _complete(ctx: click.Context, typed: str) -> list[str]:
    """Job names of the snapshot that is already on the line, or of the running yard."""
    path = ctx.params.get("path")
    if not path:
        return names("jobs")(ctx, click.Argument(["job"]), typed)
    if path == sources.STDIN:
        return []
    try:
        return [job.name for job in sources.read(path).snapshot.jobs if job.name.startswith(typed)]
    except sources.Unusable:
        return []
