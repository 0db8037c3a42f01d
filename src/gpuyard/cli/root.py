"""The `yard` group: which commands there are, with their one line of help, and where each is found.

Called by `main`. Help lives here and not with the commands, so that `yard --help` imports none of them.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import click

from gpuyard import __version__
from gpuyard.cli.hints import nearest

EXAMPLES = """\
yard demo                                 a short tour on example fleets
yard plan fleet.yaml                      what would start, move and stop
yard why train --snapshot fleet.yaml      why a job waits, and what would help
yard free H100:8x4 --snapshot fleet.yaml  where 4 tasks of 8 H100 each fit now
"""

EXIT_CODES = """\
0 done              2 usage, or unreadable input   4 refused: it can never run
1 failed, or a bug  3 no such name                 5 accepted, but waiting
"""


@dataclass(frozen=True)
class Entry:
    """One line of `yard --help`, and the module that is imported when the command is called."""

    name: str
    module: str
    help: str


SECTIONS: dict[str, tuple[Entry, ...]] = {
    "Decide and explain": (
        Entry("plan", "plan", "What would start, move and stop, and why the rest waits."),
        Entry("why", "why", "Why a job waits, and what would let it start."),
    ),
    "Look": (
        Entry("free", "free", "What is free, for which shape, for me."),
        Entry("frag", "frag", "How scattered the free GPUs are."),
        Entry("defrag", "defrag", "What tidying up would move, gain and cost."),
        Entry("nodes", "listings", "Nodes, their GPUs and who holds them."),
        Entry("queues", "listings", "Queues: quota, use, fair share."),
        Entry("jobs", "listings", "Jobs, where they run or why they wait."),
    ),
    "Learn": (
        Entry("demo", "demo", "A short tour on example fleets."),
        Entry("schema", "about", "JSON Schema of a file: snapshot, job, policy or queue."),
        Entry("completion", "about", "Completion script for bash, zsh or fish."),
        Entry("version", "about", "Which version this is."),
    ),
}
ENTRIES = {entry.name: entry for section in SECTIONS.values() for entry in section}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in the order of the help page."""
        return list(ENTRIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command itself; this is where its module is imported."""
        entry = ENTRIES.get(cmd_name)
        if entry is None:
            return None
        command = getattr(importlib.import_module(f"gpuyard.cli.{entry.module}"), cmd_name)
        return command if isinstance(command, click.Command) else None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """As click does it, with the nearest name for one that is unknown."""
        if args and args[0] not in ENTRIES and not args[0].startswith("-"):
            raise click.UsageError(f"There is no command '{args[0]}'.{nearest(args[0], ENTRIES)}", ctx)
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The help page: examples before anything else, because that is what people came for."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        _write_block(formatter, "Examples", EXAMPLES)
        for title, entries in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(entry.name.ljust(_NAME_WIDTH), entry.help) for entry in entries])
        click.Command.format_options(self, ctx, formatter)
        _write_block(formatter, "Exit codes", EXIT_CODES)


_NAME_WIDTH = max(map(len, ENTRIES))


def _write_block(formatter: click.HelpFormatter, title: str, text: str) -> None:
    """Lines as they stand: click would fold them into one paragraph."""
    with formatter.section(title):
        for line in text.splitlines():
            formatter.write(f"{'':{formatter.current_indent}}{line}\n")


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    subcommand_metavar="COMMAND ...",
    options_metavar="",
)
@click.version_option(__version__, message="yard %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of a bug.")
@click.pass_context
def yard(ctx: click.Context, debug: bool) -> None:
    """GPUYard places whole gangs of GPU jobs on the right GPUs, and says why when it cannot."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
