"""Whether a fleet still has what runs on it. Asked by the control plane as it comes up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuyard.model.errors import Refused
from gpuyard.model.node import Node
from gpuyard.runtime.serving.fitting import named_jobs
from gpuyard.worlds.local.attempts.recovery import is_there
from gpuyard.worlds.local.state.records import Entry, Task


def check_places(nodes: Mapping[str, Node], entries: Iterable[Entry], boot: str, remedy: str) -> None:
    """Whatever runs, runs on something the fleet has; else `Refused` with names, for it would end."""
    homeless: dict[str, list[str]] = {}
    for entry in entries:
        attempt = entry.attempt
        if attempt is not None and attempt.boot == boot and attempt.state != "promised":
            for place in sorted({_place(task) for task in attempt.live() if not is_there(nodes, task)}):
                homeless.setdefault(place, []).append(entry.key)
    if homeless:
        told = [
            f"there is no {place} any more, on which {named_jobs(names, 'run')}" for place, names in homeless.items()
        ]
        raise Refused(f"{'; '.join(told)}. {remedy}")


def _place(task: Task) -> str:
    gpus = ", ".join(map(str, task.placement.gpus))
    return f"{task.placement.node}[{gpus}]" if gpus else task.placement.node
