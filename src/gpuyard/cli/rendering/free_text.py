"""What is free, as a person reads it: per model one line, and below it how often each size fits, and where.

Called by `free` and `demo`. It draws numbers that `free` has gathered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuyard.cli.console import words
from gpuyard.cli.console.shapes import Fit, GpuShape, ModelLine
from gpuyard.cli.console.terminal import Column, Screen, text


def draw(screen: Screen, lines: Sequence[ModelLine], wanted: GpuShape | None, queue: str) -> None:
    """One block a model."""
    if not lines:
        screen.show(text("The snapshot has no GPUs."))
    for position, line in enumerate(lines):
        if position:
            screen.show(text(""))
        screen.show(
            text(f"{line.model or 'unknown model'}: {line.free} of {words.counted(line.total, 'GPU')} free", "bold")
        )
        if wanted:
            _draw_wanted(screen, line, queue)
        else:
            _draw_sizes(screen, line, queue)


def _draw_sizes(screen: Screen, line: ModelLine, queue: str) -> None:
    """Levels down, sizes across: `8` is one task of eight GPUs, `8x2` two of them."""
    sizes = list(dict.fromkeys(str(fit.shape) for fit in line.fits))
    levels = sorted({fit.level for fit in line.fits}, key=[fit.level for fit in line.fits].index)
    found = {(fit.level, str(fit.shape)): fit for fit in line.fits}
    rows = [[f"  in {words.place(level)}", *(_count(found.get((level, size))) for size in sizes)] for level in levels]
    if queue:
        rows.append([f"  for queue {queue}", *(_mine(line.fits, size) for size in sizes)])
    columns = [Column("  GPUS x TASKS"), *(Column(size, right=True) for size in sizes)]
    screen.table(columns, rows)


def _draw_wanted(screen: Screen, line: ModelLine, queue: str) -> None:
    columns = [Column(""), Column("FIT NOW", right=True)] + [Column(f"FOR {queue}", right=True)] * bool(queue)
    rows = [
        [f"  {fit.shape} in {words.place(fit.level)}", _count(fit), *([_amount(fit.for_queue or 0)] * bool(queue))]
        for fit in line.fits
    ]
    screen.table(columns, rows)


def _mine(fits: Sequence[Fit], size: str) -> Any:
    """The most a queue may have of a size, at whichever level allows most."""
    return _amount(max((fit.for_queue or 0 for fit in fits if str(fit.shape) == size), default=0))


def _count(fit: Fit | None) -> Any:
    return text("·", "dim") if fit is None else _amount(fit.now)


def _amount(number: int) -> Any:
    return text(str(number), "green" if number else "dim")
