"""Fragmentation as a person reads it: two sentences, then which shapes fit now and if what runs were packed.

Called by `frag` and `demo`. It draws rule 25's numbers; the brain made them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuyard.cli.console import words
from gpuyard.cli.console.terminal import Column, Screen, text
from gpuyard.model.answers.defrag import DefragPlan
from gpuyard.model.answers.outlook import Fragmentation, PoolFragmentation, PoolStranding, ShapeFit
from gpuyard.model.outside.phrases import agreeing
from gpuyard.model.resources import WHOLE, as_gpus, gpu_words

_DAY = ("POOL", "SHAPE", "ASKED", "FITS", "STRANDED", "OF FREE")
TREND_SHOWN = 8
_POOLS = ("POOL", "GPUS", "FREE", "STRANDED")


def draw(screen: Screen, fragmentation: Fragmentation) -> None:
    """The fleet's fragmentation, then each pool's where there are several."""
    if any(pool.shapes and pool.free for pool in fragmentation.day):
        screen.show(text(day_line(fragmentation.day), "bold"))
        _draw_day(screen, fragmentation.day)
        screen.show(text(""))
    screen.show(text(headline(fragmentation), "bold"), text(stranded_line(fragmentation)))
    if fragmentation.shapes:
        screen.show(text(""), text("How many fit now (→ if what runs were packed):", "bold"))
        _draw_shapes(screen, fragmentation.shapes)
    if fragmentation.largest_gang:
        screen.show(text(""), text(f"Largest gang that fits now: {gangs(fragmentation.largest_gang)}."))
    if len(fragmentation.pools) > 1:
        screen.show(text(""), text("Per pool, with its largest gang at each level:", "bold"))
        _draw_pools(screen, fragmentation.pools)


def day_line(pools: Sequence[PoolStranding]) -> str:
    """What the demand of the last day could not use, and how that was before."""
    free, stranded = sum(pool.free for pool in pools), sum(pool.stranded for pool in pools)
    share = words.percent(stranded / free)
    useless = agreeing(words.about(stranded), "is of no use where it lies", "are of no use where they lie")
    line = f"Stranded {share}: of {words.counted(as_gpus(free), 'free GPU')}, {words.about(stranded)} {useless} to"
    before = [pool.trend for pool in pools if pool.trend]
    trend = f" ({', '.join(_trend(each) for each in before)})" if len(before) == 1 else ""
    return f"{line} what was asked for in the last day{trend}."


def _trend(trend: Sequence[tuple[float, float]]) -> str:
    shares = [share for _, share in trend]
    return f"hour by hour: {' '.join(words.percent(share) for share in shares[-TREND_SHOWN:])}"


def _draw_day(screen: Screen, pools: Sequence[PoolStranding]) -> None:
    columns = tuple(Column(title, right=title not in ("POOL", "SHAPE")) for title in _DAY)
    rows = [
        [pool.name, each.shape, words.about(each.asked), str(each.fits), words.about(each.stranded),
         words.percent(each.stranded / pool.free)]
        for pool in pools
        if pool.free
        for each in pool.shapes
    ]  # fmt: skip
    screen.table(columns, rows)


def offer_line(plan: DefragPlan) -> str:
    """What tidying up would do about it, with its bill."""
    if not plan.moves:
        return f"Tidying up moves nothing now: {plan.reason}."
    bill, gained = plan.proposal.bill, (plan.usable_after - plan.usable_before) / WHOLE
    return (
        f"Tidying up would move {words.counted(len(bill.tolls), 'job')} ({words.work(bill.lost_gpu_s)} of work again) "
        f"and make {gained:.3g} more GPUs usable: `yard defrag --dry-run` shows it, policy `defragment` does it."
    )


def headline(fragmentation: Fragmentation) -> str:
    """The ratio, in words that need no glossary."""
    if not fragmentation.ratio:
        return "Fragmentation 0%: nobody waits for GPUs that are free but scattered."
    share = words.percent(fragmentation.ratio)
    return f"Fragmentation {share}: of the free GPUs that waiting jobs could have by count, {share} lie too scattered."


def stranded_line(fragmentation: Fragmentation) -> str:
    """How much is free, and how much of it is of no use where it lies."""
    total = sum(pool.gpus for pool in fragmentation.pools)
    line = (
        f"{as_gpus(fragmentation.free)} of {gpu_words(total)} free"
        if total
        else f"{gpu_words(fragmentation.free)} free"
    )
    if not fragmentation.stranded:
        return f"{line}, none of them stranded."
    return f"{line}, {words.about(fragmentation.stranded)} of them stranded: no job seen can use them there."


def gangs(largest: Sequence[tuple[str, int]]) -> str:
    """The largest gang per level, one after the other."""
    return ", ".join(f"{words.counted(gpus, 'GPU')} in {words.place(level)}" for level, gpus in largest)


def _draw_shapes(screen: Screen, shapes: Sequence[ShapeFit]) -> None:
    levels = list(dict.fromkeys(shape.level for shape in shapes))
    found = {(shape.gpus, shape.level): shape for shape in shapes}
    rows = [
        [words.counted(gpus, "GPU"), *(_cell(found.get((gpus, level))) for level in levels)]
        for gpus in sorted({shape.gpus for shape in shapes})
    ]
    titles = (Column(words.level_title(level), right=True) for level in levels)
    screen.table((Column("SHAPE", right=True), *titles), rows)


def _cell(shape: ShapeFit | None) -> Any:
    if shape is None:
        return text("·", "dim")
    if shape.packed > shape.now:
        return text(f"{shape.now} → {shape.packed}", "yellow")
    return text(str(shape.now), "" if shape.now else "dim")


def _draw_pools(screen: Screen, pools: Sequence[PoolFragmentation]) -> None:
    levels = list(dict.fromkeys(level for pool in pools for level, _ in pool.largest_gang))
    columns = [Column(title, right=title != "POOL") for title in _POOLS]
    columns += [Column(words.level_title(level), right=True) for level in levels]
    screen.table(columns, [_pool_row(pool, levels) for pool in pools])


def _pool_row(pool: PoolFragmentation, levels: Sequence[str]) -> list[str]:
    largest = dict(pool.largest_gang)
    amounts = [words.gpus(pool.gpus), words.gpus(pool.free), words.about(pool.stranded)]
    return [pool.name or "-", *amounts, *(str(largest.get(level, "·")) for level in levels)]
