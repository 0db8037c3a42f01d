"""A defragmentation proposal as a person reads it: the verdict, the moves with what each costs, and what is gained.

Called by `defrag`. It draws a DefragPlan; it weighs and decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuyard.cli.console import words
from gpuyard.cli.console.terminal import Column, Screen, text
from gpuyard.model.answers.bill import Bill, Toll
from gpuyard.model.answers.defrag import DefragPlan, Offer, ShapeGain
from gpuyard.model.job import Job
from gpuyard.model.resources import WHOLE, as_gpus, gpu_words
from gpuyard.model.snapshot import Snapshot

_MOVES = (
    Column(""), Column("JOB"), Column("SIZE"), Column("WHERE", wraps=True), Column("GPUS", right=True), Column("LOST"),
    Column("WHY", wraps=True),
)  # fmt: skip
_SHAPES = (Column("SHAPE"), Column("OF THE DEMAND", right=True), Column("FIT NOW → AFTER", right=True))


def draw(screen: Screen, snapshot: Snapshot, plan: DefragPlan) -> None:
    """The whole proposal."""
    screen.show(text(headline(plan), "bold"))
    if plan.after_changes:
        first = words.counted(plan.after_changes, "job")
        screen.show(text(f"The plan comes first and changes {first}: see yard plan.", "dim"))
    if plan.moves:
        _draw_moves(screen, plan.proposal, {job.name: job for job in snapshot.jobs})
        gained = gain_line(plan, snapshot.policy.defrag_horizon)
        screen.show(text(""), text(cost_line(plan.proposal.bill)), text(gained))
    if plan.shapes:
        screen.show(text(""))
        screen.table(_SHAPES, [_shape_row(shape) for shape in plan.shapes])
    screen.show(text(""), *(text(line) for line in _outcome_lines(plan)))


def headline(plan: DefragPlan) -> str:
    """Whether anything is worth moving, in one sentence."""
    if not plan.moves:
        return f"Defragmentation: nothing is moved; {plan.reason}."
    jobs = words.counted(len(plan.proposal.bill.tolls), "job")
    if not plan.proposal.bill.lost_gpu_s:
        return f"Defragmentation: {jobs} to move; no work is lost."
    return f"Defragmentation: {jobs} to move; it pays {plan.proposal.ratio:.1f} times ({plan.pays_at:g} is asked for)."


def cost_line(bill: Bill) -> str:
    """What it costs."""
    return f"Cost: {words.work(bill.lost_gpu_s)} of work on {gpu_words(bill.gpus)} must be done again."


def gain_line(plan: DefragPlan, horizon_s: float) -> str:
    """What it gains."""
    more = (plan.usable_after - plan.usable_before) / WHOLE
    usable = f"the demand seen could use {more:.3g} more of the free GPUs"
    return f"Gain: {words.work(plan.proposal.gain_gpu_s)}: {usable}, for up to {words.duration(horizon_s)}."


def _draw_moves(screen: Screen, offer: Offer, jobs: dict[str, Job]) -> None:
    tolls = {toll.job: toll for toll in offer.bill.tolls}
    rows = []
    for move in offer.moves:
        way = f"{words.places(move.source)} → {words.places(move.target)}"
        why = words.told(move.reason, move.job) + (f"; after {', '.join(move.after)}" if move.after else "")
        size = words.shape(jobs[move.job], move.target)
        rows.append([text("~ move", "yellow"), move.job, size, way, *_toll_cells(tolls[move.job]), why])
    screen.show(text(""))
    screen.table(_MOVES, rows)


def _toll_cells(toll: Toll) -> list[str]:
    return [words.gpus(toll.gpus), words.work(toll.lost_gpu_s)]


def _shape_row(shape: ShapeGain) -> list[Any]:
    change = f"{shape.before} → {shape.after}" if shape.after != shape.before else str(shape.before)
    style = "green" if shape.after > shape.before else "yellow" if shape.after < shape.before else ""
    return [shape_words(shape), words.percent(shape.weight), text(change, style)]


def shape_words(shape: ShapeGain) -> str:
    """A shape of the demand: `8 GPUs`, `4×8 in a rack`."""
    each = as_gpus(shape.gpus)
    if not shape.level:
        return words.counted(each, "GPU")
    return f"{shape.tasks}×{each} in {words.place(shape.level)}"


def _outcome_lines(plan: DefragPlan) -> Sequence[str]:
    """Stranded GPUs, the largest gang per level, and what budgets would still bear."""
    was, now = words.about(plan.before.stranded), words.about(plan.after.stranded)
    lines = [f"Stranded GPUs: {was}." if was == now else f"Stranded GPUs: {was} → {now}."]
    gangs = [
        f"{_change(before, after)} in {words.place(level)}"
        for (level, before), (_, after) in zip(plan.before.largest_gang, plan.after.largest_gang, strict=True)
    ]
    if gangs:
        lines.append(f"Largest gang that fits: {', '.join(gangs)}.")
    if plan.budgets:
        rooms = [f"{room.name} {_change(room.before, room.after)}" for room in plan.budgets]
        lines.append(f"Tasks that budgets still let go: {', '.join(rooms)}.")
    if plan.moves and plan.declined is not None:
        more, less = words.work(plan.declined.gain_gpu_s), words.work(plan.declined.bill.lost_gpu_s)
        lines.append(f"A further step was not worth it: {more} gained for {less} lost.")
    return lines


def _change(before: int, after: int) -> str:
    return str(before) if before == after else f"{before} → {after}"
