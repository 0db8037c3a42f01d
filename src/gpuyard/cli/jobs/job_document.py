"""From the words of a command line to a job's document, as a job file would have it. Called by `run` and `slurm`."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import click

Document = dict[str, Any]

PASSED_ON = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "LANG", "TERM")
"""Of the caller's environment; more with --env NAME. Secrets do not end up in a yard's books unasked."""

GPUS = re.compile(r"(?:(?P<model>[A-Za-z][\w.+-]*):)?(?P<amount>\d+|0?\.\d+|\d+\.\d+|[1-7]g\.\d+gb|\d+[KMGT]i?)")


def gpus(text: str) -> Document:
    """`2`, `H100:2`, `0.5`, `20Gi`, `1g.10gb`, each perhaps behind a model."""
    found = GPUS.fullmatch(text)
    if found is None:
        raise click.UsageError(f"--gpus takes 2, H100:2, 0.5, 20Gi or 1g.10gb, not '{text}'.")
    amount = found["amount"]
    models = {"models": [found["model"]]} if found["model"] else {}
    if amount.isdecimal():
        return {"gpus": int(amount)} | models
    if amount[-1].isdecimal():
        if not 0 < float(amount) < 1:
            raise click.UsageError(f"--gpus takes a part of one GPU (0.5) or whole ones (2), not {amount}.")
        return {"fraction": float(amount)} | models
    return ({"mig": amount} if amount.endswith("gb") else {"gpu_memory": amount}) | models


def environment(given: Sequence[str]) -> dict[str, str]:
    """What the task gets: a few of the caller's variables, and those named."""
    chosen = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    for word in given:
        name, equals, value = word.partition("=")
        if not equals and name not in os.environ:
            raise click.UsageError(f"--env {name}: there is no such variable here; --env {name}=VALUE sets one.")
        chosen[name] = value if equals else os.environ[name]
    return chosen


def duration(text: str) -> str:
    """A time limit as files have it; `2:00:00` and plain minutes, which Slurm people type, are said to be wrong."""
    return f"{text}s" if text.isdecimal() else text


def given(**values: Any) -> Document:
    """Those keys that say something."""
    return {key: value for key, value in values.items() if value not in (None, "", (), [], 0, False)}
