"""`yard snapshot`, `yard backup`, `yard restore`: a yard's moment and its state as files. Called by `root`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from gpuyard.cli import options, terminal, words
from gpuyard.client import Client, Unreachable, places
from gpuyard.model.errors import Refused


@options.command(
    "snapshot",
    """
    yard snapshot > moment.yaml
    yard snapshot -o json | yard plan -
    """,
)
@options.output(("yaml", "json"))
def snapshot(form: str) -> None:
    """The whole moment as a file: for bug reports, for `yard plan`, for what-if."""
    with Client() as client:
        terminal.write_document(client.snapshot(), form)


@options.command(
    "backup",
    """
    yard backup yard-before-upgrade.db
    """,
)
@click.argument("file")
def backup(file: str) -> None:
    """A consistent copy of the state of the running yard, in a new file."""
    with Client() as client:
        made = client.backup(os.path.abspath(file))
    terminal.write(f"{made['path']}: {words.size(int(made['bytes']))}\n")


@options.command(
    "restore",
    """
    yard down
    yard restore yard-before-upgrade.db
    yard up
    """,
)
@click.argument("file")
@click.option("--state", default="", metavar="FOLDER", help="The state folder.  [default: XDG state folder]")
def restore(file: str, state: str) -> None:
    """Put a backup in the place of the state of a yard that is down; what was there is kept beside it."""
    from gpuyard.worlds.local import store

    folder = Path(state).absolute() if state else places.state_folder()
    _refuse_if_up(folder)
    store.restore(Path(file).absolute(), folder / store.FILE)
    terminal.write(f"Restored {file} into {folder}. `yard up` starts with it.\n")


def _refuse_if_up(folder: Path) -> None:
    try:
        pid = Client.at_state(folder).status()["pid"]
    except Unreachable:
        return
    raise Refused(f"The yard in {folder} is up (process {pid}). Stop it first: `yard down`.")
