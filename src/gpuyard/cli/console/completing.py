"""What the shell may complete: names of jobs, queues and nodes, asked of the yard that is up.

Called by the commands at import, which name a kind; the yard is asked when somebody presses TAB. A yard that is not
there, or slow, completes nothing: whoever types is not told about it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

CLASSES = ("training", "inference", "interactive", "batch")
PATIENCE_S = 1.0
"""Longer than this nobody waits for a TAB."""

Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def names(kind: str) -> Completer:
    """Completes names of `jobs` (arrays too), `queues` or `nodes`; what stands in the line already is left out."""

    def complete(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
        given = ctx.params.get(parameter.name or "") or ()
        taken = set(given) if isinstance(given, tuple | list) else set()
        try:
            return [name for name in _known(kind) if name.startswith(begun) and name not in taken]
        except Exception:  # noqa: BLE001 -- no answer is an answer here
            return []

    return complete


def classes(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """The classes of jobs that begin so."""
    return [name for name in CLASSES if name.startswith(begun)]


def _known(kind: str) -> Sequence[str]:
    from gpuyard.client import Client

    with Client(timeout_s=PATIENCE_S) as client:
        if kind == "jobs":
            return _with_arrays(client.jobs(fields=("name", "array")))
        found = client.queues() if kind == "queues" else client.nodes()
        return [str(each["name"]) for each in found]


def _with_arrays(jobs: Sequence[dict[str, Any]]) -> list[str]:
    """Arrays before their members, each once."""
    arrays = dict.fromkeys(str(job["array"]) for job in jobs if job.get("array"))
    return [*arrays, *(str(job["name"]) for job in jobs)]
