"""`yard top`, `yard health`, `yard report`: who holds what, what is unwell, and what it cost. Called by `root`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import click

from gpuyard.cli.console import options, terminal, words
from gpuyard.cli.console.options import seconds_of
from gpuyard.cli.looking import gpu_use
from gpuyard.cli.rendering.listings import job_tables, live_tables
from gpuyard.cli.rendering.listings.tables import Listing, TableWish, column, listing_options
from gpuyard.client import Client
from gpuyard.runtime.clock import SystemClock

Document = dict[str, Any]

ACTIVE = ("starting", "running", "stopping")
WAITING = ("waiting", "held")
HOUR_S = 3600.0
HOLDER_FIELDS = ("user", "queue", "class", "phase", "held_gpus", "asked_gpus")
JOB_FIELDS = ("name", "user", "queue", "phase", "held_gpus", "asked_gpus", "started", "progress")


@options.command(
    "top",
    """
    yard top
    yard top --by queue --once
    yard top --by job
    yard top --by gpu
    """,
)
@click.option("--by", type=click.Choice(("user", "queue", "class", "job", "gpu")), default="user", show_default=True)
@click.option("--once", is_flag=True, help="Print it and leave, also on a terminal.")
@listing_options()
def top(by: str, once: bool, wish: TableWish) -> None:
    """Who holds which GPUs, and who waits for how many; live on a terminal.

    By job: what runs, how busy its GPUs are, how far it is by its own word, and when it will be done. By GPU: how busy,
    full and hot each is, and who has it. How busy a GPU is is known of real ones alone.
    """
    import sys

    drawn = wish.form in ("table", "wide")
    stays = wish.watch or (drawn and sys.stdout.isatty())

    def ask(client: Client) -> list[Document]:
        if drawn:
            terminal.write(_headline(client.status()))
        if by == "job":
            busy = gpu_use.of_jobs(client.nodes())
            return [job | {"utilization": busy.get(job["name"])} for job in working(client.jobs(fields=JOB_FIELDS))]
        if by == "gpu":
            return gpu_use.gpus(client.nodes())
        return holders(client.jobs(fields=HOLDER_FIELDS), by)

    listing = {"job": WORKING, "gpu": gpu_use.GPUS}.get(by) or _holder_listing(by)
    live_tables.show(listing, ask, replace(wish, watch=stays and not once))


def working(jobs: Sequence[Document]) -> list[Document]:
    """The jobs that hold GPUs, those with most first."""
    found = [job for job in jobs if job["phase"] in ACTIVE]
    return sorted(found, key=lambda job: (-float(job.get("held_gpus", 0)), str(job["name"])))


WORKING: Listing[Document] = Listing(
    "job",
    (
        column("JOB", lambda job: job["name"], cuts=True),
        column("USER", lambda job: job.get("user") or "-"),
        column("GPUS", job_tables.gpus, right=True),
        column("UTIL", lambda job: gpu_use.percent(job.get("utilization")), right=True),
        column("RUN", job_tables.run_time, right=True),
        column("PROGRESS", job_tables.progress, wraps=True),
    ),
    lambda job: job,
    "No job runs.",
)


def holders(jobs: Sequence[Document], by: str) -> list[Document]:
    """One row for each user, queue or class: GPUs held and asked for, jobs running and waiting."""
    rows: dict[str, Document] = defaultdict(lambda: {"gpus": 0.0, "running": 0, "waiting": 0, "asked": 0.0})
    for job in jobs:
        row = rows[str(job.get(by) or "-")]
        asked = float(job_tables.asked(job))
        if job["phase"] in ACTIVE:
            row["running"] += 1
            row["gpus"] += float(job.get("held_gpus", asked))
        elif job["phase"] in WAITING:
            row["waiting"] += 1
            row["asked"] += asked
    found = [{"name": name, **row} for name, row in rows.items() if row["running"] or row["waiting"]]
    return sorted(found, key=lambda row: (-row["gpus"], -row["asked"], row["name"]))


def _holder_listing(by: str) -> Listing[Document]:
    cells = (
        column(by.upper(), lambda row: row["name"]),
        column("GPUS", lambda row: live_tables.amount(row["gpus"]), right=True),
        column("RUNNING", lambda row: row["running"], right=True),
        column("WAITING", lambda row: row["waiting"], right=True),
        column("ASKED", lambda row: live_tables.amount(row["asked"]), right=True),
    )
    return Listing("job", cells, lambda row: row)


def _headline(status: Document) -> str:
    return (
        f"{words.counted(status['gpus'], 'GPU')}: {status['gpus_held']} held, {status['gpus_free']} free, "
        f"{status['gpus_sick']} sick; "
        f"{words.counted(status['running'], 'job')} running, {status['waiting']} waiting\n"
    )


# --- health --------------------------------------------------------------------------------------


@options.command(
    "health",
    """
    yard health
    yard health -w
    """,
)
@listing_options()
def health(wish: TableWish) -> None:
    """Which GPUs are unwell, and which jobs that hits."""
    live_tables.show(HEALTH, lambda client: unwell(client.nodes()), wish)


def unwell(nodes: Sequence[Document]) -> list[Document]:
    """Every GPU that is not healthy."""
    return [
        {"name": f"{node['name']}:{device['index']}", "model": node.get("model", ""), **device}
        for node in nodes
        for device in live_tables.devices(node)
        if device.get("health", "healthy") != "healthy"
    ]


HEALTH: Listing[Document] = Listing(
    "unwell GPU",
    (
        column("GPU", lambda row: row["name"]),
        column("MODEL", lambda row: row["model"] or "-"),
        column("HEALTH", lambda row: row["health"]),
        column("JOBS", lambda row: words.some(row.get("jobs", [])), wraps=True),
        column("UUID", lambda row: row.get("uuid", "-"), wide=True),
        column("EVIDENCE", lambda row: row.get("evidence", "-"), wide=True, wraps=True),
    ),
    lambda row: row,
    "Every GPU is healthy.",
)


# --- report --------------------------------------------------------------------------------------


@options.command(
    "report",
    """
    yard report
    yard report --by queue --since 7d -o json
    """,
)
@click.option("--by", default="user", show_default=True, metavar="user|queue", help="Whom to count for.")
@click.option("--since", default="30d", show_default=True, metavar="TIME", help="How far back: 12h, 7d.")
@listing_options("csv")
def report(by: str, since: str, wish: TableWish) -> None:
    """GPU-hours and money.

    GPU-hours are those that were held; of LOST ones the work has to be done again, because a job was stopped for
    another or lost its node. PRODUCTIVE are those in which the GPUs were at work, IDLE those in which they were not;
    what nobody measured, as on virtual GPUs, is neither.
    """
    begin = SystemClock().now() - seconds_of(since)
    live_tables.show(_report_listing(by), lambda client: client.report(by, begin), wish)


def _report_listing(by: str) -> Listing[Document]:
    cells = (
        column(by.upper(), lambda row: row.get("name", row.get(by, "-"))),
        column("GPU-HOURS", _hours("gpu_seconds"), right=True),
        column("LOST", _hours("lost_gpu_seconds"), right=True),
        column("PRODUCTIVE", _measured_hours("productive_gpu_seconds"), right=True),
        column("IDLE", _measured_hours("idle_gpu_seconds"), right=True),
        column("TASKS", lambda row: row.get("tasks", "-"), right=True),
        column("MONEY", lambda row: f"{row['money']:,.2f}" if "money" in row else "-", right=True),
    )
    return Listing("GPU-hour", cells, lambda row: {"name": row.get(by, "-")} | row)


def _measured_hours(key: str) -> Callable[[Document], str]:
    return lambda row: _hours(key)(row) if key in row else "-"


def _hours(key: str) -> Callable[[Document], str]:
    return lambda row: _as_hours(float(row.get(key, 0)))


def _as_hours(seconds: float) -> str:
    """Hours with as many digits as tell something: a job of a minute is not nothing."""
    hours = seconds / HOUR_S
    return f"{max(hours, 0.0001):.2g}" if 0 < hours < 1 else f"{hours:,.1f}"
