"""A plan as a person reads it: the changes, who waits and why, the queues, one line of fragmentation.

Called by `plan` and `demo`. It draws an Outlook; it changes and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from gpuyard.cli.console import words
from gpuyard.cli.console.terminal import Column, Screen, text
from gpuyard.cli.rendering import inventory
from gpuyard.cli.rendering.documents import Document
from gpuyard.model.actions import Action, Cordon, Drain, Evict, Move, QueueLine, Reserve, Scale, Start
from gpuyard.model.answers.bill import Bill
from gpuyard.model.answers.outlook import Fragmentation, Outlook
from gpuyard.model.job import Job
from gpuyard.model.reasons import Code, Explanation, Outcome
from gpuyard.model.resources import WHOLE, gpu_words
from gpuyard.model.snapshot import Snapshot

T = TypeVar("T")

ROWS_SHOWN = 100
"""Nobody reads more of a table; the rest is counted."""

_STYLES = {
    Start: ("+ start", "green"),
    Evict: ("- evict", "red"),
    Move: ("~ move", "yellow"),
    Reserve: ("= reserve", "cyan"),
}
_ACTIONS = (Column(""), Column("JOB"), Column("SIZE"), Column("WHERE", wraps=True), Column("WHY", wraps=True))
_WAITING = (Column(""), Column("JOB"), Column("SIZE"), Column("WHY", wraps=True))
_QUEUES = tuple(
    Column(title, right=title != "QUEUE") for title in ("QUEUE", "QUOTA", "LIMIT", "FAIR SHARE", "USED", "WAITING")
)


def draw(screen: Screen, snapshot: Snapshot, outlook: Outlook, timing: Document) -> None:
    """The whole plan."""
    jobs = {job.name: job for job in snapshot.jobs}
    screen.show(text(headline(outlook, timing), "bold"))
    if outlook.actions:
        _listed(screen, _ACTIONS, outlook.actions, lambda action: _action_row(action, jobs))
    if outlook.waiting:
        _listed(screen, _WAITING, outlook.waiting, lambda waiting: _waiting_row(waiting, jobs))
    for deadlock in outlook.deadlocks:
        way_out = f"; {deadlock.way_out}" if deadlock.way_out else ""
        screen.show(text(""), text(f"Deadlock: {deadlock.message}{way_out}", "red"))
    for alert in outlook.alerts:
        screen.show(text(""), text(f"Alert ({alert.severity.value}): {alert.sentence}", "yellow"))
    if outlook.bill.tolls:
        screen.show(text(""), text(bill_line(outlook.bill)))
    if outlook.queues:
        _section(screen, _QUEUES, _queue_rows(snapshot, outlook.queues))
    screen.show(text(""), text(fragmentation_line(outlook.fragmentation)))


def headline(outlook: Outlook, timing: Document) -> str:
    """What the plan comes to, in one line."""
    names = {Start: "start", Move: "move", Evict: "evict"}
    counts = [f"{number} {name}" for kind, name in names.items() if (number := _number(outlook.actions, kind))] or [
        "nothing to change"
    ]
    counts.append(f"{len(outlook.waiting)} wait")
    counts.append(f"{len(outlook.running)} run")
    took = f"{words.counted(timing['cycles'], 'cycle')}, {timing['decide_ms']:.1f} ms"
    return f"Plan: {', '.join(counts)}  ({took})"


def bill_line(bill: Bill) -> str:
    """What the moves and evictions cost, in one sentence."""
    jobs = words.counted(len(bill.tolls), "job")
    return f"Disturbs {jobs} on {gpu_words(bill.gpus)}; {words.work(bill.lost_gpu_s)} of work must be done again."


def fragmentation_line(fragmentation: Fragmentation) -> str:
    """Fragmentation in one sentence."""
    head = f"Fragmentation {words.percent(fragmentation.ratio)}"
    if not fragmentation.free:
        return f"{head}: no GPU stays free."
    noun = "GPU stays" if fragmentation.free <= WHOLE else "GPUs stay"
    line = f"{head}: {words.gpus(fragmentation.free)} {noun} free, {words.about(fragmentation.stranded)} stranded"
    gangs = ", ".join(f"{gpus} in {words.place(level)}" for level, gpus in fragmentation.largest_gang)
    return f"{line}; the largest gang that still fits has {gangs}." if gangs else f"{line}."


def _section(screen: Screen, columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> None:
    screen.show(text(""))
    screen.table(columns, rows)


def _listed(screen: Screen, columns: Sequence[Column], things: Sequence[T], row: Callable[[T], list[Any]]) -> None:
    """A section that may be long: its beginning, and how much there is besides."""
    _section(screen, columns, [row(thing) for thing in things[:ROWS_SHOWN]])
    if len(things) > ROWS_SHOWN:
        screen.show(text(f"... and {len(things) - ROWS_SHOWN} more (-o json has them all)", "dim"))


def _number(actions: Iterable[Action], kind: type[Any]) -> int:
    return sum(isinstance(action, kind) for action in actions)


def _action_row(action: Action, jobs: dict[str, Job]) -> list[Any]:
    name, style = _STYLES.get(type(action), (f"! {type(action).__name__.lower()}", "magenta"))
    subject, size, where = _subject(action, jobs)
    return [text(name, style), subject, size, where, _why(action)]


def _subject(action: Action, jobs: dict[str, Job]) -> tuple[str, str, str]:
    """Whom an action is about, how much of it, and where."""
    match action:
        case Start() | Reserve():
            return action.job, words.shape(jobs[action.job], action.placements), words.places(action.placements)
        case Evict():
            gone = action.placements or jobs[action.job].placements
            return action.job, words.shape(jobs[action.job], gone), f"{words.places(gone)} freed"
        case Move():
            way = f"{words.places(action.source)} → {words.places(action.target)}"
            return action.job, words.shape(jobs[action.job], action.target), way
        case Cordon() | Drain():
            return action.node, "", "" if action.gpu is None else f"GPU {action.gpu}"
        case Scale():
            return action.pool, "", words.counted(action.nodes, "node")
        case _:
            return action.job, words.shape(jobs[action.job]), words.places(jobs[action.job].placements)


def _why(action: Action) -> str:
    """The reason, unless it is the plain one, and for whom or after whom."""
    parts = []
    if isinstance(action, Evict | Move) and action.beneficiary:
        parts.append(f"for {action.beneficiary}")
    if action.reason.code is not Code.FITS or action.reason.message:
        parts.append(words.told(action.reason, getattr(action, "job", "")))
    if isinstance(action, Start | Move) and action.after:
        parts.append(f"after {', '.join(action.after)}")
    return "; ".join(parts)


def _waiting_row(waiting: Explanation, jobs: dict[str, Job]) -> list[Any]:
    never = waiting.reason.outcome is Outcome.NEVER
    mark = text("✗ never", "red") if never else text("· waits", "yellow")
    return [mark, waiting.job, words.shape(jobs[waiting.job]), words.told(waiting.reason, waiting.job)]


def _queue_rows(snapshot: Snapshot, lines: Sequence[QueueLine]) -> list[list[str]]:
    """The lines as a tree."""
    depths = {queue.name: depth for queue, depth in inventory.in_tree_order(snapshot.queues)}
    order = {name: position for position, name in enumerate(depths)}
    ordered = sorted(lines, key=lambda line: order.get(line.name, -1))
    return [_queue_row(line, depths.get(line.name, 0)) for line in ordered]


def _queue_row(line: QueueLine, depth: int) -> list[str]:
    amounts = (line.quota, line.limit, line.fair_share, line.used)
    return ["  " * depth + line.name, *(words.gpus(amount) for amount in amounts), str(line.waiting)]
