"""What a task finds in its environment: a few of the caller's variables, and what was asked for.

Called by `run` and `submit`. Secrets do not end up in a yard's books unasked: what looks like one stays here, and that
is said. What was asked for is kept where only its owner and the yard read it; snapshots and listings have names alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from gpuyard.cli.console import choosing, terminal
from gpuyard.model.outside import phrases, text

PASSED_ON = (
    "PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "LD_LIBRARY_PATH", "PYTHONPATH", "CUDA_HOME", "LANG",
    "TERM", "HF_*", "WANDB_*",
)  # fmt: skip
"""Of the caller's environment, unasked; more with --env NAME, --env-file and --export all."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SECRET = re.compile(r"(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|(?<![A-Z])KEY)", re.IGNORECASE)
LINE = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?:\s*=(?P<value>.*))?")


def chosen(given: Sequence[str], files: Sequence[str] = (), export: str = "") -> dict[str, str]:
    """The task's variables: those passed on, those of the files, those named, each over the ones before."""
    found = _fit(_everything() if export == "all" else {} if export == "none" else _usual())
    for path in files:
        found |= dict(_of_file(path))
    for word in given:
        found |= _of_word(word, "--env")
    return found


def _everything() -> dict[str, str]:
    """The caller's whole environment; what no program could have set by a name is left out."""
    return {name: value for name, value in os.environ.items() if NAME.fullmatch(name)}


def _fit(found: dict[str, str]) -> dict[str, str]:
    """Without what a yard does not keep: control characters, as shells colour manuals with, or half a megabyte.
    Nobody asked for those by name, so they are left out in a word and not refused."""
    unfit = sorted(name for name, value in found.items() if text.wrong_prose(value))
    if unfit:
        told = f"{phrases.listed(unfit)} {'stays' if len(unfit) == 1 else 'stay'} here"
        terminal.say(f"{told}: a variable's value must be text without control characters, of at most 128 KiB.")
    return {name: value for name, value in found.items() if name not in unfit}


def _usual() -> dict[str, str]:
    usual = {name: value for name, value in _everything().items() if any(fnmatchcase(name, p) for p in PASSED_ON)}
    secrets = [name for name in usual if SECRET.search(name)]
    if secrets:
        names = ", ".join(sorted(secrets))
        terminal.say(f"{names} may be secret and stays here; `--env {sorted(secrets)[0]}` passes it on.")
    return {name: value for name, value in usual.items() if name not in secrets}


def _of_word(word: str, where: str) -> dict[str, str]:
    """`NAME=VALUE`, a NAME of the caller's, or a pattern of such."""
    name, equals, value = word.partition("=")
    if equals:
        return {name: value}
    if choosing.is_pattern(name):
        return _fit({each: value for each, value in _everything().items() if fnmatchcase(each, name)})
    if name not in os.environ:
        raise click.UsageError(f"{where} {name}: there is no such variable here; {where} {name}=VALUE sets one.")
    return {name: os.environ[name]}


def _of_file(path: str) -> Iterator[tuple[str, str]]:
    """Lines of NAME=VALUE, or a NAME of the caller's; # begins a comment line, quotes around a value are dropped."""
    try:
        content = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(
            f"--env-file {path} cannot be read: {getattr(error, 'strerror', None) or 'no text'}."
        ) from None
    for number, line in enumerate(content.splitlines(), 1):
        said = line.strip()
        if not said or said.startswith("#"):
            continue
        found = LINE.fullmatch(said)
        if found is None:
            raise click.UsageError(f"{path}:{number}: a line is NAME=VALUE, or the NAME of a variable to pass on.")
        if found["value"] is None:
            yield from _of_word(found["name"], f"{path}:{number}:").items()
        else:
            yield found["name"], _unquoted(found["value"].strip())


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value


_OPTIONS = (
    click.option(
        "--export",
        type=click.Choice(("all", "none")),
        help="Pass on the whole environment, or nothing of it.  [default: paths, HF_*, WANDB_*; no secrets]",
    ),
    click.option(
        "--env-file", "env_files", multiple=True, metavar="FILE", help="Variables from a file: lines of NAME=VALUE."
    ),
    click.option(
        "--env",
        "variables",
        multiple=True,
        metavar="NAME[=VALUE]",
        help="Set a variable, or pass one on; NAME may be a pattern.",
    ),
)


def options(function: Any) -> Any:
    """--env, --env-file and --export."""
    for option in _OPTIONS:
        function = option(function)
    return function
