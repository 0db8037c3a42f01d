"""`yard schema`, `yard completion`, `yard version`: what helps to use the rest.

Called by `root`. They ask nobody about any fleet.
"""

from __future__ import annotations

import click

from gpuyard import __version__
from gpuyard.cli.console import options, terminal

SHELLS = ("bash", "zsh", "fish")
KINDS = ("snapshot", "job", "policy", "queue")


@options.command(
    "schema",
    """
    yard schema snapshot > snapshot.schema.json
    yard schema policy | jq '.properties | keys'
    """,
)
@click.argument("kind", type=click.Choice(KINDS))
def schema(kind: str) -> None:
    """JSON Schema of a file: snapshot, job, policy or queue."""
    from gpuyard import files

    terminal.write_json(files.schema(kind))


@options.command(
    "completion",
    """
    source <(yard completion bash)
    yard completion zsh > ~/.zfunc/_yard
    yard completion fish > ~/.config/fish/completions/yard.fish
    """,
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Completion script for bash, zsh or fish."""
    from click.shell_completion import ShellComplete, get_completion_class

    found = get_completion_class(shell)
    assert found is not None, f"click knows {shell}"
    # The plain source: bash's own would first start a bash to ask for its version.
    script = found(ctx.find_root().command, {}, "yard", "_YARD_COMPLETE")
    terminal.write(ShellComplete.source(script).strip() + "\n")


@options.command(
    "version",
    """
    yard version
    yard version -o json
    """,
)
@options.output()
def version(form: str) -> None:
    """Which version this is."""
    if form == "table":
        terminal.write(f"yard {__version__}\n")
        return
    import platform

    terminal.write_document({"version": __version__, "python": platform.python_version()}, form)
