"""`yard down`: the embedded yard is stopped, and no other is taken for it.

Called by `root`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from gpuyard.cli.console import options, terminal, words
from gpuyard.client import Client, Unreachable, places
from gpuyard.model.errors import GpuYardError
from gpuyard.runtime.clock import SystemClock

GONE_S = 60.0
LOOK_S = 0.02


@options.command(
    "down",
    """
    yard down
    yard down --jobs
    yard down --state /tmp/try
    """,
)
@click.option("--jobs", "end_jobs", is_flag=True, help="End the jobs too; without it they run on.")
@click.option("--shared", is_flag=True, help="The yard that all of this machine share.")
@click.option("--state", default="", metavar="FOLDER", help="The yard that keeps its state there.  [default: your own]")
def down(end_jobs: bool, shared: bool, state: str) -> None:
    """Stop your own embedded yard. Its jobs run on, and the next `yard up` finds them again.

    No other yard is ever taken for it: one with another state folder is named by --state, the machine's by --shared.
    """
    if shared and state:
        raise click.UsageError("--shared and --state name two yards; give one of them.")
    with Client(_meant(shared, state)) as client:
        try:
            status = client.status()
        except Unreachable as error:
            raise Unreachable(f"{error}{_another(shared or bool(state))}") from None
        client.shut_down(end_jobs)
    clock = SystemClock()
    until = clock.monotonic() + GONE_S
    while clock.monotonic() < until and _lives(int(status["pid"])):
        time.sleep(LOOK_S)
    if _lives(int(status["pid"])):
        raise Unreachable(f"The yard (process {status['pid']}) has been told to stop and is still closing.")
    running = int(status.get("running", 0))
    left = f" {words.counted(running, 'job')} left running." if running and not end_jobs else ""
    where = f" in {status['state']}" if shared or state else ""
    terminal.write(f"The yard{where} is down.{left}\n")


def _meant(shared: bool, state: str) -> places.Address:
    """One place alone: whoever stops a yard has said which."""
    if shared:
        return places.Address(socket=places.SHARED_SOCKET)
    return next(places.candidates({places.STATE: state} if state else None))


def _another(named: bool) -> str:
    """That the machine's yard is up, to somebody who has none."""
    try:
        with Client(places.Address(socket=places.SHARED_SOCKET)) as client:
            there = not named and bool(client.status())
    except GpuYardError:
        there = False
    return " This machine's shared yard is up; `yard down --shared` stops that one, for everybody." if there else ""


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except PermissionError:
        return True
    except (ProcessLookupError, FileNotFoundError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
