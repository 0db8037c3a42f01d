"""From the words of a command line to a job's document, as a job file would have it. Called by `run` and `slurm`."""

from __future__ import annotations

import re
from typing import Any

import click

Document = dict[str, Any]

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


def number_or_name(text: str) -> int | str:
    """`-5` and `200` are numbers, `high` is a name."""
    return int(text) if text.removeprefix("-").isdecimal() else text


def duration(text: str, option: str) -> str:
    """A time as files have it; a bare number could be anything, so it is asked what it means."""
    if text.isdecimal():
        raise click.UsageError(f"{option} {text} says no unit: {text}s, {text}m or {text}h?")
    return text


def size(text: str, option: str) -> str:
    """A size as files have it; a bare number would be bytes, which nobody means."""
    if text.replace(".", "", 1).isdecimal():
        raise click.UsageError(f"{option} {text} says no unit: {text}Gi or {text}Mi?")
    return text


def given(**values: Any) -> Document:
    """Those keys that say something."""
    return {key: value for key, value in values.items() if value not in (None, "", (), [], 0, False)}
