"""The shape grammar of `yard free`: `8`, `H100:8`, `8x4`, `H100:8x4` (model : GPUs a task × tasks).

Called by `free` and `free_text`. It reads text into a TaskGroup and holds the answers; whether a shape fits is the
brain's question.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuyard.model.errors import Refused
from gpuyard.model.job import TaskGroup
from gpuyard.model.resources import Request
from gpuyard.model.topology import TopologyAsk

_SHAPE = re.compile(r"(?:(?P<model>[A-Za-z][\w.\-]*):)?(?P<gpus>\d{1,6})(?:[xX×*](?P<tasks>\d{1,6}))?")


@dataclass(frozen=True)
class GpuShape:
    """So many tasks of so many GPUs each, of a model if one is named."""

    gpus: int
    tasks: int = 1
    model: str = ""

    def __str__(self) -> str:
        return f"{self.model + ':' if self.model else ''}{self.gpus}{f'x{self.tasks}' if self.tasks > 1 else ''}"

    def group(self, level: str = "") -> TaskGroup:
        """The gang to ask for, inside one domain of a level if one is given."""
        return TaskGroup(
            tasks=self.tasks,
            min=self.tasks,
            request=Request(gpus=self.gpus),
            topology=TopologyAsk(required=level),
        )


@dataclass(frozen=True)
class Fit:
    """How many gangs of a shape fit now inside one domain of a level, and how many of them a queue may have."""

    shape: GpuShape
    level: str
    now: int
    for_queue: int | None = None


@dataclass(frozen=True)
class ModelLine:
    """What there is of one model."""

    model: str
    total: int
    free: int
    fits: tuple[Fit, ...]


def parse(text: str) -> GpuShape:
    """Read a shape; a wrong one is refused with the grammar."""
    found = _SHAPE.fullmatch(text.strip())
    shape = found and GpuShape(int(found["gpus"]), int(found["tasks"] or 1), found["model"] or "")
    if not shape or not shape.gpus or not shape.tasks:
        raise Refused(f"'{text}' is no shape: write MODEL:GPUSxTASKS, such as 8, H100:8, 8x4 or H100:8x4.")
    return shape
