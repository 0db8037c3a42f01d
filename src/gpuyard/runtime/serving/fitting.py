"""Whether a queue tree has what the jobs that are there need.

Asked before it takes effect: by the control plane as it comes up, and when a queue is set. What is accepted here can be
planned, written as a snapshot and read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuyard.model.errors import Refused
from gpuyard.model.outside.phrases import listed
from gpuyard.model.queue import Queue

NAMED = 5
"""So many jobs are named; of more only the number is told."""


def check_queues(queues: Sequence[Queue], jobs: Iterable[tuple[str, str]], remedy: str) -> None:
    """Every job (name, queue) stands in a leaf of the tree; else `Refused` with names, the reason and what to do."""
    known, parents = {queue.name for queue in queues}, {queue.parent: queue.name for queue in queues}
    standing: dict[str, list[str]] = {}
    for name, queue in jobs:
        if queue not in known or queue in parents:
            standing.setdefault(queue, []).append(name)
    told = []
    for queue, names in sorted(standing.items()):
        if queue in parents:
            told.append(
                f"{parents[queue]} cannot stand below {queue}, where {named_jobs(names)}: jobs stand in leaf queues"
            )
        else:
            told.append(f"there is no queue {queue} any more, where {named_jobs(names)}")
    if told:
        raise Refused(f"{'; '.join(told)}. {remedy}")


def named_jobs(names: Sequence[str], verb: str = "stand") -> str:
    """`train stands`, `a, b stand`, `a, b, c, d, e and 7 more stand`."""
    return f"{listed(names, NAMED)} {verb}{'s' if len(names) == 1 else ''}"
