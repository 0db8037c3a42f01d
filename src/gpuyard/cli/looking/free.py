"""`yard free`: what is free per model, and how many requests of which shape fit now, also within my queue.

Called by `root`. The inventory counts devices, the brain says what fits; this asks the right questions and prints.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from gpuyard.cli.console import options, shapes, sources, terminal
from gpuyard.cli.console.hints import nearest
from gpuyard.cli.console.shapes import Fit, GpuShape, ModelLine
from gpuyard.cli.console.words import FLEET
from gpuyard.cli.rendering import inventory
from gpuyard.cli.rendering.documents import Document
from gpuyard.model.errors import NotFound
from gpuyard.model.node import Node
from gpuyard.model.queue import DEFAULT, model_matches
from gpuyard.model.snapshot import Snapshot
from gpuyard.model.topology import NODE, NVLINK

LARGEST_ASKED = 1024
"""Sizes are asked up to this many GPUs; a larger gang is asked for by its shape."""


@options.command(
    "free",
    """
    yard free --snapshot fleet.yaml
    yard free H100:8x4 --snapshot fleet.yaml --queue research
    yard free 2 --snapshot fleet.yaml -o json
    """,
)
@click.argument("shape", required=False, metavar="[SHAPE]")
@click.option("--queue", "queue", default="", metavar="QUEUE", help="Count this queue's quota and limit too.")
@options.snapshot()
@options.output()
def free(shape: str | None, queue: str, path: str, form: str) -> None:
    """What is free, for which shape, for me.

    SHAPE is MODEL:GPUSxTASKS, or less of it: 8, H100:8, 8x4, H100:8x4. Without one, the usual sizes are asked.
    """
    from gpuyard.cli.rendering import free_text

    wanted = shapes.parse(shape) if shape else None
    snapshot = sources.read(path).snapshot
    _check_queue(snapshot, queue)
    lines = look(snapshot, wanted, queue)
    if form == "table":
        free_text.draw(terminal.Screen(), lines, wanted, queue)
    else:
        terminal.write_document([_document(line) for line in lines], form)


def look(snapshot: Snapshot, wanted: GpuShape | None, queue: str = "") -> list[ModelLine]:
    """Every model that the shape could use, with what fits."""
    counts = inventory.take(snapshot)
    by_model = _nodes_by_model(snapshot, wanted.model if wanted else "")
    return [
        ModelLine(
            model,
            total=sum(len(node.gpus) for node in nodes),
            free=sum(counts.free(node) for node in nodes),
            fits=tuple(_fits(snapshot, nodes, wanted, queue)),
        )
        for model, nodes in sorted(by_model.items())
    ]


def _fits(snapshot: Snapshot, nodes: list[Node], wanted: GpuShape | None, queue: str) -> Iterator[Fit]:
    from gpuyard.brain import foresee

    models = (nodes[0].model,)
    for shape, level in _questions(snapshot, nodes, wanted):
        group = shape.group("" if level == FLEET else level)
        now = foresee.fits(snapshot, group, models=models)
        mine = foresee.fits(snapshot, group, queue=queue, models=models) if queue and now else now
        yield Fit(shape, level, now, mine if queue else None)


def _questions(snapshot: Snapshot, nodes: list[Node], wanted: GpuShape | None) -> Iterator[tuple[GpuShape, str]]:
    """Which shapes to ask about, and inside what: islands and nodes for one task, racks and up for several."""
    widest = max(len(node.gpus) for node in nodes)
    outer = (*reversed(snapshot.topology), FLEET)
    for shape in [wanted] if wanted else _usual_sizes(widest, sum(len(node.gpus) for node in nodes)):
        if shape.gpus * shape.tasks <= widest:
            yield shape, NVLINK
            yield shape, NODE
        if shape.tasks > 1:
            yield from ((shape, level) for level in outer)


def _usual_sizes(widest: int, total: int) -> Iterator[GpuShape]:
    """1, 2, 4, 8, ...: up to a node as one task, beyond it as tasks that fill whole nodes."""
    size = 1
    while size <= widest:
        yield GpuShape(size)
        size *= 2
    tasks = 2
    while widest * tasks <= min(total, LARGEST_ASKED):
        yield GpuShape(widest, tasks)
        tasks *= 2


def _nodes_by_model(snapshot: Snapshot, wanted: str) -> dict[str, list[Node]]:
    by_model: dict[str, list[Node]] = {}
    for node in snapshot.nodes:
        if node.gpus:
            by_model.setdefault(node.model, []).append(node)
    chosen = {model: nodes for model, nodes in by_model.items() if not wanted or model_matches(wanted, model)}
    if wanted and not chosen:
        known = {*by_model, *(model.split("-")[0] for model in by_model)}
        raise NotFound(f"No node has GPUs of model '{wanted}'.{nearest(wanted, known)}")
    return chosen


def _check_queue(snapshot: Snapshot, queue: str) -> None:
    known = {each.name for each in snapshot.queues} or {DEFAULT}
    if queue and queue not in known:
        raise NotFound(f"There is no queue '{queue}' in the snapshot.{nearest(queue, known)}")


def _document(line: ModelLine) -> Document:
    return {
        "model": line.model,
        "total": line.total,
        "free": line.free,
        "fits": [_fit_document(fit) for fit in line.fits],
    }


def _fit_document(fit: Fit) -> Document:
    document = {"gpus": fit.shape.gpus, "tasks": fit.shape.tasks, "level": fit.level, "now": fit.now}
    return document if fit.for_queue is None else document | {"for_queue": fit.for_queue}
