"""`yard nodes`, `yard queues`: of the running yard, or of a snapshot where one is named.

Called by `root`. What a listing of a file needs is imported only for files: these are typed all day long.
"""

from __future__ import annotations

import click

from gpuyard.cli.console import options
from gpuyard.cli.looking import queue_setting
from gpuyard.cli.rendering.listings import live_tables
from gpuyard.cli.rendering.listings.tables import TableWish, listing_options
from gpuyard.client import Client


@options.command(
    "nodes",
    """
    yard nodes -w
    yard nodes --snapshot fleet.yaml -o wide --sort-by -free
    """,
)
@listing_options()
@options.snapshot()
def nodes(path: str, wish: TableWish) -> None:
    """Nodes, their GPUs and who holds them.

    In the map every GPU is one sign: ■ held, ◧ shared, □ free, ✗ sick, ? suspect and free, − drained, ▤ cut into
    MIG slices; a gap parts NVLink islands.
    """
    if not path:
        live_tables.show(live_tables.NODES, Client.nodes, wish)
        return
    from gpuyard.cli.rendering.listings import snapshot_tables

    snapshot_tables.show_nodes(path, wish)


@options.group(
    "queues",
    """
    yard queues
    yard queues --snapshot fleet.yaml --sort-by -used
    yard queues set research --quota H100=64 --limit 96
    """,
)
@listing_options()
@options.snapshot()
@click.pass_context
def queues(ctx: click.Context, path: str, wish: TableWish) -> None:
    """Queues: quota, use, fair share. Amounts are GPUs; a dash is unlimited."""
    if ctx.invoked_subcommand is not None:
        return
    if not path:
        live_tables.show(live_tables.QUEUES, Client.queues, wish)
        return
    from gpuyard.cli.rendering.listings import snapshot_tables

    snapshot_tables.show_queues(path, wish)


queues.add_command(queue_setting.set_queue)
queues.add_command(queue_setting.delete_queue)
