"""An outlook as text that a person reads when a scenario fails."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuyard.model.actions import Action, Cordon, Drain, Evict, Move, Reserve, Scale, Start, Terminate, Warn
from gpuyard.model.answers.outlook import Outlook
from gpuyard.model.job import Placement
from gpuyard.model.reasons import Explanation, Reason
from gpuyard.model.resources import as_gpus


def told(outlook: Outlook) -> str:
    """The whole outlook, one fact a line."""
    return "\n".join(lines(outlook))


def lines(outlook: Outlook) -> Iterator[str]:
    """The outlook's parts in the order of the plan's JSON."""
    yield "actions:"
    yield from (f"  {action_line(action)}" for action in outlook.actions)
    yield "waiting:"
    for line in outlook.waiting:
        yield from waiting_lines(line)
    yield "running in the end:"
    yield from (f"  {line.job}: {where(line.placements)}" for line in outlook.running)
    yield "queues:"
    for queue in outlook.queues:
        yield (
            f"  {queue.name}: quota {as_gpus(queue.quota)}, limit {as_gpus(queue.limit)}, "
            f"used {as_gpus(queue.used)}, fair share {as_gpus(queue.fair_share)}"
        )
    yield from fragmentation_lines(outlook)
    yield from (f"deadlock: {d.message} ({', '.join(d.jobs)}; {d.victim} gives way)" for d in outlook.deadlocks)
    yield f"cycles: {outlook.cycles}"


def action_line(action: Action) -> str:
    """One action and its reason."""
    match action:
        case Start():
            after = f" after {', '.join(action.after)}" if action.after else ""
            text = f"start {action.job} on {where(action.placements)}{after}"
        case Evict():
            part = f" from {where(action.placements)}" if action.placements else ""
            text = f"evict {action.job}{part} for {action.beneficiary or 'nobody'}"
        case Move():
            text = f"move {action.job} from {where(action.source)} to {where(action.target)} for {action.beneficiary}"
        case Reserve():
            text = f"reserve {where(action.placements)} for {action.job} until {action.until}"
        case Terminate():
            text = f"terminate {action.job}"
        case Warn():
            text = f"warn {action.job}"
        case Cordon() | Drain():
            text = f"{type(action).__name__.lower()} {action.node}:{action.gpu}"
        case Scale():
            text = f"scale {action.pool} to {action.nodes}"
    return f"{text}  [{reason_text(action.reason)}]"


def waiting_lines(line: Explanation) -> Iterator[str]:
    """One waiting job: reason, ladder, suggestions."""
    yield f"  {line.job}: {reason_text(line.reason)}"
    ladder = ", ".join(f"{step.rung.title} {step.nodes}{'' if step.holds else '!'}" for step in line.ladder)
    yield f"    ladder: {ladder}"
    if line.in_the_way:
        yield "    in the way: " + ", ".join(f"{o.job} must {o.must}" for o in line.in_the_way)
    yield from (f"    would start if ({s.kind}): {s.change} {s.effect}" for s in line.suggestions)


def fragmentation_lines(outlook: Outlook) -> Iterator[str]:
    """Rule 25's numbers."""
    frag = outlook.fragmentation
    gangs = ", ".join(f"{level} {size}" for level, size in frag.largest_gang)
    yield (
        f"fragmentation: ratio {frag.ratio:.3f}, free {as_gpus(frag.free)}, "
        f"stranded {as_gpus(frag.stranded)}; largest gang: {gangs}"
    )
    yield "  shapes: " + ", ".join(f"{s.gpus} in {s.level} {s.now}/{s.packed}" for s in frag.shapes)


def reason_text(reason: Reason) -> str:
    """A reason with its numbers."""
    numbers = ", ".join(
        f"{name} {as_gpus(value)}"
        for name, value in (("needed", reason.needed), ("free", reason.free), ("largest_fit", reason.largest_fit))
        if value is not None
    )
    return f"{reason.code.value} {reason.outcome.value} ({numbers}) where={reason.where!r} {reason.message!r}"


def where(placements: Iterable[Placement]) -> str:
    """`n0:0,1 n1:2`, the group before it where the job has several."""
    return " ".join(place(p) for p in placements) or "nothing"


def place(placement: Placement) -> str:
    """One placement."""
    group = "" if placement.group == "main" else f"{placement.group}="
    gpus = ",".join(map(str, placement.gpus))
    return f"{group}{placement.node}:{gpus}{' (going)' if placement.terminating else ''}"
