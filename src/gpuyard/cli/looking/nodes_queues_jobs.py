"""`yard nodes`, `yard queues`, `yard jobs`: of the running yard, or of a snapshot where one is named.

Called by `root`. What a listing of a file needs is imported only for files: `yard jobs` is typed all day long.
"""

from __future__ import annotations

import click

from gpuyard.cli.console import options
from gpuyard.cli.looking import queue_setting
from gpuyard.cli.rendering import live_tables
from gpuyard.cli.rendering.tables import TableWish, listing_options
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
    from gpuyard.cli.rendering import snapshot_tables

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
    from gpuyard.cli.rendering import snapshot_tables

    snapshot_tables.show_queues(path, wish)


queues.add_command(queue_setting.set_queue)


@options.command(
    "jobs",
    """
    yard jobs -w
    yard jobs --all -o name
    yard jobs --snapshot fleet.yaml -o wide --sort-by -priority
    """,
)
@click.option("--all", "all_ended", is_flag=True, help="Every job that ended too, as plain rows.")
@listing_options()
@options.snapshot()
def jobs(path: str, all_ended: bool, wish: TableWish) -> None:
    """Jobs, where they run or why they wait.

    Of a running yard: the active ones and the newest hundred that ended. Of a snapshot REASON is what the next plan
    would say of them.
    """
    if not path:
        live_tables.show_jobs(wish, all_ended)
        return
    from gpuyard.cli.rendering import snapshot_tables

    snapshot_tables.show_jobs(path, wish)
