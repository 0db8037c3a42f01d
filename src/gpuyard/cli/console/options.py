"""What commands share: how one is declared, and the options that mean the same everywhere.

Called by the command modules at import. It reads and prints nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import click

from gpuyard.cli.console import hints

Decorator = Callable[[Any], Any]

LISTING_FORMATS = ("table", "wide", "json", "yaml", "name")
DOCUMENT_FORMATS = ("table", "json", "yaml")


class YardCommand(click.Command):
    """A command that takes --debug and --state also behind its own name, where people put them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _take_everywhere(self)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples as they stand."""
        write_examples(self.epilog or "", formatter)


class YardGroup(click.Group):
    """A listing that also has verbs; without one it lists."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["invoke_without_command"] = True
        super().__init__(*args, **kwargs)
        _take_everywhere(self)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples as they stand."""
        write_examples(self.epilog or "", formatter)


def _take_everywhere(command: click.Command) -> None:
    """What `yard` itself takes; a command that has its own --state keeps it."""
    command.params.append(click.Option(["--debug"], is_flag=True, expose_value=False, hidden=True))
    if not any("--state" in param.opts for param in command.params):
        command.params.append(state_option(hidden=True))


def state_option(hidden: bool = False) -> click.Option:
    """Which yard is meant, where there are several."""
    return click.Option(
        ["--state"], metavar="FOLDER", expose_value=False, hidden=hidden, callback=_reach,
        help="Speak to the yard that keeps its state there.  [default: GPUYARD_STATE, else the XDG state folder]",
    )  # fmt: skip


def _reach(ctx: click.Context, _: click.Parameter, folder: str | None) -> None:
    """For this command the folder stands in the environment's place; hints carry it on."""
    if not folder:
        return
    from gpuyard.client import places

    ctx.meta[hints.REACH] = folder
    before = {name: os.environ.pop(name, None) for name in (places.STATE, places.URL)}
    os.environ[places.STATE] = os.path.abspath(folder)

    def restore() -> None:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value

    ctx.call_on_close(restore)


def write_examples(examples: str, formatter: click.HelpFormatter) -> None:
    """One a line: click would fold them into one paragraph."""
    with formatter.section("Examples"):
        for line in examples.strip().splitlines():
            formatter.write(f"{'':{formatter.current_indent}}{line.strip()}\n")


def command(name: str, examples: str) -> Decorator:
    """Declare a command; the examples end its help page, one a line."""
    return click.command(name, cls=YardCommand, epilog=examples)


def group(name: str, examples: str) -> Decorator:
    """Declare a listing with verbs of its own."""
    return click.group(name, cls=YardGroup, epilog=examples, subcommand_metavar="[VERB ...]")


def output(formats: tuple[str, ...] = DOCUMENT_FORMATS) -> Decorator:
    """How the answer is written."""
    return click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="How to write the answer.",
    )


KUBE = "kube:"
"""In the place of a file: the cluster."""


def snapshot() -> Decorator:
    """The file that stands in for a yard, or a cluster; without either the running yard is asked."""
    file = click.option(
        "--snapshot",
        "path",
        metavar="FILE",
        default="",
        help="Ask this snapshot (YAML or JSON; - reads stdin) instead of the running yard.",
    )
    cluster = click.option(
        "--kube", "path", flag_value=KUBE, help="Ask the Kubernetes cluster that kubectl would ask, and change nothing."
    )
    return lambda command: file(cluster(command))


def watch() -> Decorator:
    """Whether the answer is drawn again when something changes."""
    return click.option("-w", "--watch", is_flag=True, help="Stay, and draw again whenever something changes.")


def seconds_of(text: str) -> float:
    """A duration of the command line."""
    from gpuyard.files import units

    try:
        return units.read_duration(text)
    except units.Wrong as wrong:
        raise click.UsageError(f"'{text}' {wrong}") from None


def agree(question: str, yes: bool, default: bool = True) -> None:
    """Ask before something is done that hits others; where there is no terminal to ask at, --yes must have said so."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("There is no terminal to ask at, so nothing was changed. Add --yes to do it.")
    if not click.confirm(question, default=default, err=True):
        raise click.Abort
