"""`yard drain`, `yard undrain`: empty a node or a GPU gently, after showing whom that hits. Called by `root`."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Any

import click

from gpuyard.cli.console import options, terminal, words
from gpuyard.cli.console.completing import names
from gpuyard.cli.console.terminal import Column, Screen
from gpuyard.client import Client

if TYPE_CHECKING:
    from gpuyard.runtime.clustered.draining import ClusterNodes

Document = dict[str, Any]

_HIT = (Column("JOB"), Column("WHAT"), Column("COST OR REASON", wraps=True))


@options.command(
    "drain",
    """
    yard drain n3 --reason "fan is loud"
    yard drain n3:5 --dry-run
    yard drain gpu-7 --kube
    """,
)
@click.argument("place", metavar="NODE[:GPU]", shell_complete=names("nodes"))
@click.option("--reason", default="", metavar="TEXT", help="Why; shown to everybody.")
@click.option("--force", is_flag=True, help="Also jobs that have a right to stay.")
@click.option("--dry-run", is_flag=True, help="Only show whom it would hit.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--kube", is_flag=True, help="A node of the Kubernetes cluster that kubectl would ask, with your own rights."
)
@options.output()
def drain(place: str, reason: str, force: bool, dry_run: bool, yes: bool, kube: bool, form: str) -> None:
    """Close a node or GPU and empty it gently. First shows who would move, stop and stay.

    Jobs that may be disturbed move to another place, or get their checkpoint signal and grace, stop and wait again,
    never more at once than their disruption budgets allow. Others stay until they end by themselves, unless --force.
    """
    with _cluster() if kube else Client() as target:
        node, gpu = parted(place, {str(each["name"]) for each in target.nodes()})
        preview = target.drain(node, gpu, reason, force, dry_run=True)
        if form == "table":
            draw(preview)
        if not dry_run:
            options.agree(f"Drain {place}?", yes)
        answer = preview if dry_run else target.drain(node, gpu, reason, force)
    if form != "table":
        terminal.write_document(answer, form)
    elif not dry_run:
        terminal.write(f"{place} is being drained; `yard undrain {place}{' --kube' * kube}` opens it again\n")


@options.command("undrain", "yard undrain n3\nyard undrain n3:5")
@click.argument("place", metavar="NODE[:GPU]", shell_complete=names("nodes"))
@click.option(
    "--kube", is_flag=True, help="A node of the Kubernetes cluster that kubectl would ask, with your own rights."
)
def undrain(place: str, kube: bool) -> None:
    """Open a node or GPU again."""
    with _cluster() if kube else Client() as target:
        node, gpu = parted(place, {str(each["name"]) for each in target.nodes()})
        terminal.write(f"{target.undrain(node, gpu)['message']}\n")


def _cluster() -> ClusterNodes:
    from gpuyard.cli.console.sources import cluster_snapshot
    from gpuyard.runtime.clock import SystemClock

    moment = cluster_snapshot(SystemClock().now())  # which says so where what clusters need is not installed
    from gpuyard.runtime.clustered import draining, scheduler

    return draining.ClusterNodes(scheduler.found(), SystemClock(), moment, getpass.getuser())


def parted(place: str, nodes: set[str]) -> tuple[str, int | None]:
    """`n3:5` is GPU 5 of n3, unless a node has that very name."""
    node, colon, gpu = place.rpartition(":")
    if place in nodes or not colon:
        return place, None
    if not gpu.isdecimal():
        raise click.UsageError(f"'{place}' is no NODE or NODE:GPU; a GPU is a number, such as {node or 'n3'}:5.")
    return node, int(gpu)


def draw(answer: Document) -> None:
    """Who is hit, and what that costs."""
    terminal.say(f"{answer['message']}.")
    rows = [[each["job"], f"moves to {words.some(each['to'])}", _cost(each)] for each in answer["moves"]]
    rows += [[each["job"], _stops(each), _cost(each)] for each in answer["stops"]]
    rows += [[each["job"], "stays", each["message"]] for each in answer["stays"]]
    rows += [[each["job"], "leaving", each["message"]] for each in answer.get("leaving", ())]
    if rows:
        Screen().table(_HIT, rows)


def _stops(each: Document) -> str:
    return f"gives back {words.counted(each['tasks'], 'task')}" if each.get("tasks") else "stops and waits again"


def _cost(each: Document) -> str:
    return f"{words.gpu_count(each['gpus'])}, {words.work(each['lost_gpu_seconds'])} of work to do again"
