"""`yard agent`: what a node's daemon does, from the command line; `yard agent record` keeps a machine in a file.

Called by `root`. What is asked and how is the agent's own business.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuyard.cli.console import options, terminal, words
from gpuyard.model.errors import GpuYardError
from gpuyard.runtime.clock import SystemClock

if TYPE_CHECKING:
    from gpuyard.agent.nvml.caller import NvmlSource
    from gpuyard.agent.nvml.record import NvmlRecord

BETWEEN_LOOKS_S = 1.0
"""Some readings are means between two looks."""


class Untold(GpuYardError):
    """NVML tells nothing here."""


def source_of(replay: str, faults: str, deadline_s: float) -> NvmlSource:
    """NVML, or a record in its place; files are read here once, so that a mistake in them is told at once."""
    from gpuyard.agent.nvml import faults as fault_files
    from gpuyard.agent.nvml import record as records
    from gpuyard.agent.nvml.caller import NvmlSource

    if faults and not replay:
        raise click.UsageError("--faults happen to a recorded machine: give --nvml-replay too.")
    if replay:
        records.read(Path(replay))
    if faults:
        fault_files.read(Path(faults))
    return NvmlSource(_given(replay), _given(faults), deadline_s)


def _given(path: str) -> Path | None:
    return Path(path).absolute() if path else None


@options.group(
    "agent",
    """
    yard agent record -o machine.json
    """,
)
@click.pass_context
def agent(ctx: click.Context) -> None:
    """Watch this machine's GPUs."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@options.command("record", "yard agent record -o machine.json")
@click.option("-o", "--output", "path", default="-", metavar="FILE", help="Where to; - is standard output.")
@click.option("--about", default="", help="A sentence that goes into the file.")
@click.option("--deadline", default=45.0, show_default=True, type=click.FloatRange(min=0.1), help="Seconds for NVML.")
def record(path: str, about: str, deadline: float) -> None:
    """Every fact that NVML tells of this machine, in one JSON file that `--nvml-replay` takes.

    It holds UUIDs and bus addresses; no serial numbers, host name or processes.
    """
    from gpuyard.agent.nvml import record as records

    made = _record(source_of("", "", deadline), about)
    text = records.written(made)
    if path == "-":
        terminal.write(text)
    else:
        Path(path).write_text(text, encoding="utf-8")
        terminal.say(f"{words.counted(len(made.machine.gpus), 'GPU')} recorded in {path}.")


def _record(source: NvmlSource, about: str) -> NvmlRecord:
    from gpuyard.agent.nvml.caller import NvmlCaller
    from gpuyard.agent.nvml.facts import Trouble
    from gpuyard.agent.nvml.record import NvmlRecord

    clock = SystemClock()
    caller = NvmlCaller(source, clock.monotonic)
    try:
        machine = caller.machine()
        caller.sample()
        time.sleep(BETWEEN_LOOKS_S)
        sample = caller.sample()
    finally:
        caller.close()
    if isinstance(machine, Trouble):
        raise Untold(f"Nothing to record: {machine}.")
    if isinstance(sample, Trouble):
        raise Untold(f"Nothing to record: {sample}.")
    day = datetime.fromtimestamp(clock.now(), UTC).date().isoformat()
    return NvmlRecord(made=day, synthetic=False, about=about, machine=machine, sample=sample)


agent.add_command(record)
