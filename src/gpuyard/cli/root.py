"""The `yard` group: which commands there are, with their one line of help, and where each is found.

Called by `main`. Help lives here and not with the commands, so that `yard --help` imports none of them.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from gpuyard import __version__
from gpuyard.cli.console.hints import nearest
from gpuyard.cli.console.options import state_option

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

EXAMPLES = """\
yard demo                         a yard with 200 jobs, in under a minute
yard up --detach                  your own, on this machine's GPUs
yard run --gpus 2 -- python t.py  run a command on two of them
yard why train                    why a job waits, and what would help
yard free H100:8x4                where 4 tasks of 8 H100 each fit now
yard plan fleet.yaml              what would happen on a fleet in a file
"""

EXIT_CODES = """\
0 done              2 usage, or unreadable input   4 refused: it can never run
1 failed, or a bug  3 no such name                 5 accepted, but waiting
"""


@dataclass(frozen=True)
class CommandEntry:
    """One line of `yard --help`, and the module that is imported when the command is called."""

    name: str
    module: str
    help: str


SECTIONS: dict[str, tuple[CommandEntry, ...]] = {
    "Run": (
        CommandEntry("run", "jobs.run", "Run a command as a job, and stay with it."),
        CommandEntry("submit", "jobs.submit", "Hand in job files, or Slurm scripts."),
        CommandEntry("logs", "jobs.following", "What a job has written."),
        CommandEntry("attach", "jobs.attaching", "Connect this terminal to a job's."),
        CommandEntry("wait", "jobs.following", "Wait until jobs run, or have ended."),
        CommandEntry("cancel", "jobs.verbs", "End jobs."),
        CommandEntry("hold", "jobs.verbs", "Keep waiting jobs from starting."),
        CommandEntry("release", "jobs.verbs", "Let held jobs start again."),
        CommandEntry("requeue", "jobs.verbs", "Stop jobs and put them back in their queue."),
        CommandEntry("vouch", "jobs.verbs", "Say that nothing is left of jobs whose GPUs are withheld."),
    ),
    "Decide and explain": (
        CommandEntry("why", "deciding.why", "Why a job waits, and what would let it start."),
        CommandEntry("plan", "deciding.plan", "What would start, move and stop, and why the rest waits."),
        CommandEntry("sim", "deciding.sim", "Replay a trace under several policies, and compare."),
        CommandEntry("whatif", "deciding.whatif", "What more nodes, other quotas or policies would change."),
    ),
    "Look": (
        CommandEntry("jobs", "looking.jobs", "Jobs, where they run or why they wait."),
        CommandEntry("show", "looking.show", "Everything about one job, with its history."),
        CommandEntry("nodes", "looking.nodes_queues", "Nodes, their GPUs and who holds them."),
        CommandEntry("queues", "looking.nodes_queues", "Queues: quota, use, fair share; `set`, `delete`."),
        CommandEntry("free", "looking.free", "What is free, for which shape, for me."),
        CommandEntry("top", "looking.accounts", "Who holds which GPUs, live."),
        CommandEntry("health", "looking.accounts", "Which GPUs are unwell, and whom that hits."),
        CommandEntry("report", "looking.accounts", "GPU-hours and money, by user or queue."),
        CommandEntry("alerts", "looking.alerts", "What somebody should look at, and what to type next."),
        CommandEntry("frag", "looking.frag", "How scattered the free GPUs are."),
        CommandEntry("defrag", "looking.defrag", "What tidying up would move, gain and cost."),
    ),
    "Keep": (
        CommandEntry("drain", "keeping.drain", "Empty a node or GPU gently; shows who that hits first."),
        CommandEntry("undrain", "keeping.drain", "Open a node or GPU again."),
        CommandEntry("up", "keeping.up", "Run the embedded yard on this machine."),
        CommandEntry("down", "keeping.down", "Stop the embedded yard; jobs run on."),
        CommandEntry("status", "keeping.status", "Whether a yard is up, where, and how well."),
        CommandEntry("page", "keeping.status", "A fresh address of the live page."),
        CommandEntry("doctor", "keeping.doctor", "Whether this machine is set up right for GPU jobs."),
        CommandEntry("agent", "keeping.agent", "Watch this machine's GPUs for Prometheus; `record` them."),
        CommandEntry("serve", "keeping.serve", "Schedule a Kubernetes cluster."),
        CommandEntry("install", "keeping.install", "Put GPUYard on a Kubernetes cluster."),
        CommandEntry("uninstall", "keeping.install", "Take it off the cluster; what runs goes on."),
        CommandEntry("snapshot", "keeping.state_files", "Write the whole moment as a file."),
        CommandEntry("backup", "keeping.state_files", "Copy the state of the running yard into a file."),
        CommandEntry("restore", "keeping.state_files", "Put a backup in the place of a yard's state."),
    ),
    "Learn": (
        CommandEntry("demo", "learning.demo", "A yard with 200 jobs, live, in under a minute."),
        CommandEntry("tour", "learning.tour", "A short tour on example fleets, without a yard."),
        CommandEntry("schema", "learning.about", "JSON Schema of a file: snapshot, job, policy or queue."),
        CommandEntry("completion", "learning.about", "Completion script for bash, zsh or fish."),
        CommandEntry("version", "learning.about", "Which version this is."),
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

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names and help come from the table: completing the first word imports no command."""
        from click.shell_completion import CompletionItem

        names = [CompletionItem(name, help=ENTRIES[name].help) for name in ENTRIES if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

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


yard.params.append(state_option())
