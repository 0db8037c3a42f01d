"""An explanation as a person reads it: the sentence, the ladder, what would help, who is in the way.

Called by `why` and `tour`. It draws what the brain found; it looks for nothing itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuyard.cli import words
from gpuyard.cli.terminal import Column, Screen, text
from gpuyard.model.job import Job, Phase
from gpuyard.model.reasons import Explanation, Obstacle, Outcome, RungCount, Suggestion

_LADDER = (Column(""), Column("rung"), Column("nodes", right=True), Column("note", wraps=True))
_OTHERS = (Column(""), Column("job"), Column("must"), Column("cost", wraps=True))
_POINTS = (Column(""), Column("what", wraps=True))
OTHERS_SHOWN = 8
"""More jobs in the way than this are counted, not listed."""

LEGEND = "✓ holds   ✗ stands in the way   · rules these nodes out, enough others remain"


def draw(screen: Screen, jobs: Mapping[str, Job], phase: Phase, explanation: Explanation) -> None:
    """The whole explanation."""
    screen.show(text(sentence(jobs[explanation.job], phase, explanation), "bold"))
    if explanation.ladder:
        screen.show(text(""))
        screen.table(_LADDER, [_rung_row(rung, explanation) for rung in explanation.ladder], headers=False)
        screen.show(text(f"  {LEGEND}", "dim"))
    if explanation.suggestions:
        screen.show(text(""), text("Would start if you", "bold"))
        screen.table(_POINTS, [["  •", _suggested(each)] for each in explanation.suggestions], headers=False)
    if explanation.in_the_way:
        screen.show(text(""), text("In the way", "bold"))
        screen.table(_OTHERS, _other_rows(explanation.in_the_way), headers=False)
    if explanation.eta is not None:
        screen.show(text(""), text(f"Likely starts in {when(explanation.eta)}.", "bold"))


def when(eta: tuple[float, float]) -> str:
    """A range of time, never a point."""
    soon, late = (words.duration(seconds) for seconds in eta)
    return f"{soon} to {late}" if soon != late else f"about {late} (by time limits)"


def sentence(job: Job, phase: Phase, explanation: Explanation) -> str:
    """Why, in one sentence."""
    verb = "waits"
    if explanation.reason.outcome is Outcome.NEVER:
        verb = "can never run here"
    elif phase is Phase.HELD:
        verb = "is held"
    elif phase in (Phase.RUNNING, Phase.STARTING):
        verb = f"is {phase.value}, but has to give way"
    reason = explanation.reason
    return f"{job.name} ({words.shape(job)}) {verb} ({reason.code.value}): {words.told(reason, job.name)}"


def _rung_row(rung: RungCount, explanation: Explanation) -> list[Any]:
    mark, style = _mark(rung)
    nodes = words.counted(rung.nodes, "node") if rung.nodes else ""
    note = "" if rung.note == str(explanation.reason) else rung.note  # said once, at the top
    return [text(f"  {mark}", style), text(rung.rung.title, style if style == "red" else ""), nodes, note]


def _mark(rung: RungCount) -> tuple[str, str]:
    if not rung.holds:
        return "✗", "red"
    return ("·", "yellow") if rung.nodes else ("✓", "green")


def _other_rows(others: Sequence[Obstacle]) -> list[list[str]]:
    rows = []
    for other in others[:OTHERS_SHOWN]:
        firm = "" if other.preemptible else ", not preemptible"
        lost = f", {words.duration(other.lost)} of work lost" if other.lost else ""
        told = f"{words.gpus(other.gpus)} GPU, {other.queue or 'no queue'}, priority {other.priority}{firm}{lost}"
        rows.append(["  •", other.job, f"would have to {other.must}", told])
    rest = len(others) - OTHERS_SHOWN
    return rows + ([["  •", f"and {rest} more", "", ""]] if rest > 0 else [])


def _suggested(suggestion: Suggestion) -> str:
    return f"{suggestion.change} ({suggestion.effect})" if suggestion.effect else suggestion.change
