"""`yard show`: everything that is known of one job. Called by `root`."""

from __future__ import annotations

import click

from gpuyard.cli.console import options, terminal
from gpuyard.cli.console.completing import names
from gpuyard.client import Client


@options.command(
    "show",
    """
    yard show train
    yard show train -o json | jq .history
    """,
)
@click.argument("job", shell_complete=names("jobs"))
@options.output()
def show(job: str, form: str) -> None:
    """Everything about one job: what it asks, where it stood, how its attempts went, its limits and its output."""
    with Client() as client:
        document = client.job(job)
    if form != "table":
        terminal.write_document(document, form)
        return
    from gpuyard.cli.rendering import job_page

    terminal.write(job_page.page(document))
