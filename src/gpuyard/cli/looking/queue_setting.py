"""`yard queues set` and `delete`: change a queue, after showing what that does. Called as verbs of `yard queues`."""

from __future__ import annotations

from typing import Any

import click

from gpuyard.cli.console import options, terminal
from gpuyard.cli.console.completing import names
from gpuyard.client import Client

Document = dict[str, Any]


@options.command(
    "set",
    """
    yard queues set research --quota 64 --limit 96
    yard queues set research --quota H100=64 --dry-run
    """,
)
@click.argument("name", shell_complete=names("queues"))
@click.option("--quota", default="", metavar="GPUS", help="Guaranteed: 64, or H100=64,A100=8.")
@click.option("--limit", default="", metavar="GPUS", help="Hard cap: 96, H100=96, or unlimited.")
@click.option("--weight", type=float, help="Share of what is left over.")
@click.option("--priority", type=int, help="Who comes first to what is left over.")
@click.option("--parent", default="", help="The queue it stands below.")
@click.option("--users", default="", metavar="USER,...", help="Who may use it.")
@click.option("--max-grace", default="", metavar="TIME", help="The longest checkpoint.grace of its jobs.")
@click.option("--max-min-runtime", default="", metavar="TIME", help="The longest min_runtime of its jobs.")
@click.option("--max-time-limit", default="", metavar="TIME", help="Their longest time limit.")
@click.option("--groups", default="", metavar="GROUP,...", help="Groups that may use it.")
@click.option("--dry-run", is_flag=True, help="Only show what it would do.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def set_queue(name: str, dry_run: bool, yes: bool, **given: Any) -> None:
    """Create or change a queue. First shows who would move above share or lose GPUs."""
    document = document_of(name, given)
    with Client() as client:
        terminal.say(told(client.set_queue(document, dry_run=True)))
        if dry_run:
            return
        options.agree(f"Change {name}?", yes)
        client.set_queue(document)
    terminal.write(f"{name} is set\n")


@options.command("delete", "yard queues delete research --dry-run")
@click.argument("name", shell_complete=names("queues"))
@click.option("--dry-run", is_flag=True, help="Only show what it would do.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete_queue(name: str, dry_run: bool, yes: bool) -> None:
    """Delete a queue in which no job stands and below which no other queue does."""
    with Client() as client:
        terminal.say(told(client.delete_queue(name, dry_run=True)))
        if dry_run:
            return
        options.agree(f"Delete {name}?", yes, default=False)
        client.delete_queue(name)
    terminal.write(f"{name} is deleted\n")


def document_of(name: str, given: dict[str, Any]) -> Document:
    """The queue's keys that were given."""
    document: Document = {"name": name}
    for key in ("quota", "limit"):
        if given[key]:
            document[key] = amount(given[key], key)
    for key in ("weight", "priority"):
        if given[key] is not None:
            document[key] = given[key]
    for key in ("users", "groups"):
        if given[key]:
            document[key] = [word.strip() for word in given[key].split(",") if word.strip()]
    for key in ("parent", "max_grace", "max_min_runtime", "max_time_limit"):
        if given.get(key):
            document[key] = given[key]
    if len(document) == 1:
        raise click.UsageError("Nothing to change: give --quota, --limit, --weight, --priority, --users or another.")
    return document


def amount(text: str, key: str) -> Any:
    """`64`, `unlimited`, or `H100=64,A100=8`."""
    if "=" not in text:
        return _number(text, key)
    return {model: _number(count, key) for model, _, count in (part.partition("=") for part in text.split(","))}


def _number(text: str, key: str) -> int | str:
    if text == "unlimited":
        return text
    if not text.isdecimal():
        raise click.UsageError(f"--{key} takes GPUs: 64, unlimited, or H100=64,A100=8, not '{text}'.")
    return int(text)


def told(preview: Document) -> str:
    """The preview in words, whatever of it the yard tells."""
    if message := preview.get("message") or preview.get("sentence"):
        return str(message)
    effects = preview.get("effects") or preview.get("loses") or []
    return "\n".join(str(effect) for effect in effects) or "Nobody would lose a GPU."
