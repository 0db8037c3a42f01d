"""`yard snapshot`, `yard backup`, `yard restore`: a yard's moment and its state as files. Called by `root`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from gpuyard.cli.console import options, terminal, words
from gpuyard.client import Client, places


@options.command(
    "snapshot",
    """
    yard snapshot > moment.yaml
    yard snapshot -o json | yard plan -
    """,
)
@click.option("--kube", is_flag=True, help="Of the Kubernetes cluster that kubectl would ask.")
@options.output(("yaml", "json"))
def snapshot(form: str, kube: bool) -> None:
    """The whole moment as a file: for bug reports, for `yard plan`, for what-if."""
    if kube:
        from gpuyard.cli.console import sources
        from gpuyard.files import snapshot_document

        terminal.write_document(snapshot_document(sources.read(options.KUBE).snapshot), form)
        return
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
    """Put a backup in the place of the state of a yard that is down; what was there is kept beside it.

    Only what is a yard's backup is taken. Jobs that ran when it was made wait again; numbers of jobs never repeat.
    """
    from gpuyard.files.units import write_time
    from gpuyard.runtime.clock import SystemClock
    from gpuyard.runtime.embedded.state_folder import Holder
    from gpuyard.worlds.local.state import store

    folder = Path(state).absolute() if state else places.state_folder()
    now = SystemClock().now()
    holder = Holder(folder, os.getpid(), f"{write_time(round(now))}, restoring")
    try:
        store.restore(Path(file).absolute(), folder / store.FILE, now)
    finally:
        holder.release()
    terminal.write(f"Restored {file} into {folder}. `yard up` starts with it.\n")
