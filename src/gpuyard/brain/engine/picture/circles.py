"""Moves that wait for each other: each goes to where the next one was, so none can go first (rule 26)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.picture.job_rows import JobRow


def circle(rows: Iterable[JobRow], origin: Callable[[JobRow], Sequence[Held]]) -> list[JobRow]:
    """Jobs of these that move in a circle from what they held before; none if there is no circle."""
    moving = [(row, origin(row)) for row in rows]
    left = {
        (held.node, g): row
        for row, before in moving
        for held in before
        if not held.terminating and held not in row.held
        for g in held.gpus
    }
    waits = {
        row.name: [left[spot] for held in row.held if held not in before
                   for spot in ((held.node, g) for g in held.gpus) if spot in left and left[spot] is not row]
        for row, before in moving
    }  # fmt: skip
    return next((found for row, _ in moving if (found := _round(row, waits))), [])


def _round(first: JobRow, waits: dict[str, list[JobRow]]) -> list[JobRow]:
    """The circle that this job comes into by way of whom it waits for; none if that ends somewhere."""
    path: list[JobRow] = []
    done: set[str] = set()

    def follow(row: JobRow) -> list[JobRow]:
        if row in path:
            return path[path.index(row) :]
        if row.name in done:
            return []
        done.add(row.name)
        path.append(row)
        found = next((found for other in waits[row.name] if (found := follow(other))), [])
        path.pop()
        return found

    return follow(first)
