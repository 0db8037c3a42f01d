"""`yard jobs`: of the running yard, or of a snapshot where one is named. Called by `root`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from gpuyard.cli.console import choosing, options
from gpuyard.cli.console.choosing import JobChoice
from gpuyard.cli.console.completing import names
from gpuyard.cli.rendering.listings import job_tables
from gpuyard.cli.rendering.listings.tables import TableWish, listing_options


@options.command(
    "jobs",
    """
    yard jobs -w
    yard jobs 'sweep*' --phase waiting
    yard jobs --ended --user ann
    yard jobs --all -o name
    yard jobs --snapshot fleet.yaml -o wide --sort-by -priority
    """,
)
@click.argument("patterns", nargs=-1, metavar="[PATTERN...]", shell_complete=names("jobs"))
@click.option("--ended", is_flag=True, help="Those that ended, newest first: the newest hundred, with --all every one.")
@click.option("--all", "everything", is_flag=True, help="Active ones and every one that ended.")
@click.option("--each", is_flag=True, help="Members of arrays one by one, not as one row.")
@choosing.filters
@listing_options()
@options.snapshot()
def jobs(path: str, patterns: tuple[str, ...], choice: JobChoice, wish: TableWish, **which: Any) -> None:
    """Jobs, where they run or why they wait: those that run, newest first, then those that wait, longest first.

    A PATTERN is a name, or one with * and ? in it. AGE counts from the submission, RUN is how long it has run. On a
    terminal the list ends where the screen does and says how many are left out. Of a snapshot REASON is what the next
    plan would say of them.
    """
    choice = replace(choice, patterns=patterns)
    if not path:
        job_tables.show(job_tables.JobsWish(wish, choice, **which))
        return
    from gpuyard.cli.rendering.listings import snapshot_tables

    snapshot_tables.show_jobs(path, wish, choice)
