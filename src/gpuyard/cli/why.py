"""`yard why`: one sentence, the ladder with counts, what would let the job start, who is in the way.

Called by `root`. The brain explains; this finds the job and prints.
"""

from __future__ import annotations

import click

from gpuyard.cli import inventory, options, sources, terminal, words
from gpuyard.cli.documents import Document
from gpuyard.model.actions import Start
from gpuyard.model.job import Job, Phase, Placement
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
        from gpuyard.cli import live_why

        live_why.write(job, form)
        return
    snapshot = sources.read(path).snapshot
    write(snapshot, sources.job_named(snapshot, job), form)


def write(snapshot: Snapshot, job: Job, form: str) -> None:
    """Answer for one job."""
    from gpuyard.brain import foresee
    from gpuyard.cli import render_why
    from gpuyard.cli.documents import explanation_document

    explanation = foresee.why(snapshot, job.name)
    state = inventory.phase(job)
    if explanation is None:
        _write_running(snapshot, job, form)
    elif form == "table":
        jobs = {each.name: each for each in snapshot.jobs}
        render_why.draw(terminal.Screen(), jobs, state, explanation)
    else:
        document = explanation_document(explanation)
        terminal.write_document({"job": job.name, "phase": state.value} | document, form)


def _write_running(snapshot: Snapshot, job: Job, form: str) -> None:
    """It runs, or will after the next plan: say where."""
    from gpuyard.cli.documents import placement_documents

    state = inventory.phase(job)
    placements = job.placements or _planned_places(snapshot, job.name)
    if form == "table":
        terminal.Screen().show(terminal.text(_running_sentence(snapshot, job, state)))
        return
    document: Document = {"job": job.name, "phase": state.value, "starts": state is Phase.WAITING}
    terminal.write_document(document | {"placements": placement_documents(placements)}, form)


def _running_sentence(snapshot: Snapshot, job: Job, state: Phase) -> str:
    if not job.placements:
        places = words.places(_planned_places(snapshot, job.name))
        return f"{job.name} is next: it starts in the coming plan, on {places}."
    since = "" if job.started is None else f", since {words.duration(snapshot.now - job.started)}"
    return f"{job.name} is {state.value} on {words.places(job.placements)}{since}; nothing stands in its way."


def _planned_places(snapshot: Snapshot, name: str) -> tuple[Placement, ...]:
    from gpuyard.brain import foresee

    starts = (action for action in foresee.outlook(snapshot).actions if isinstance(action, Start))
    return next((start.placements for start in starts if start.job == name), ())


def _complete(ctx: click.Context, typed: str) -> list[str]:
    """Job names of the snapshot that is already on the line."""
    path = ctx.params.get("path")
    if not path or path == sources.STDIN:
        return []
    try:
        return [job.name for job in sources.read(path).snapshot.jobs if job.name.startswith(typed)]
    except sources.Unusable:
        return []
