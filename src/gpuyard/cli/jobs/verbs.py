"""`yard cancel`, `hold`, `release`, `requeue`, `vouch`: one word to jobs. Called by `root`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from gpuyard.cli.console import options, terminal
from gpuyard.client import Client
from gpuyard.model.errors import Refused

Document = dict[str, Any]


def _tell(jobs: tuple[str, ...], act: Callable[[Client, str], Document], past: str) -> None:
    """Every job is told; the first that cannot be is what the command ends with."""
    refused: Refused | None = None
    with Client() as client:
        for job in jobs:
            try:
                act(client, job)
                terminal.write(f"{job} {past}\n")
            except Refused as error:
                if refused is not None:
                    terminal.say(f"error: {refused}")
                refused = error
    if refused is not None:
        raise refused


@options.command("cancel", "yard cancel train\nyard cancel $(yard jobs -o name)")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
def cancel(jobs: tuple[str, ...]) -> None:
    """End jobs: those that run get their signal and their grace first."""
    _tell(jobs, Client.cancel, "is cancelled")


@options.command("hold", "yard hold train")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
def hold(jobs: tuple[str, ...]) -> None:
    """Keep waiting jobs from starting until they are released."""
    _tell(jobs, Client.hold, "is held")


@options.command("release", "yard release train")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
def release(jobs: tuple[str, ...]) -> None:
    """Let held jobs start again."""
    _tell(jobs, Client.release, "is released")


@options.command("requeue", "yard requeue train")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
def requeue(jobs: tuple[str, ...]) -> None:
    """Stop running jobs, or take ended ones, and put them back in their queue."""
    _tell(jobs, Client.requeue, "is queued again")


@options.command("vouch", "yard vouch train")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
def vouch(jobs: tuple[str, ...]) -> None:
    """Say that nothing is left of jobs whose GPUs are withheld (`yard status` names them): they are given on.

    Look at the processes that `yard status` names first: what still runs shares the GPU with whoever gets it next.
    """
    _tell(jobs, Client.vouch, "is vouched for")
