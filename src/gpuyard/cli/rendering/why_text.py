"""An answer to "why" as a person reads it: the sentence, the ladder, what would help, who is in the way, when.

Called by `why` for files, by `live_why` for a running yard and by `demo`. All of them bring the same document, the one
that `-o json` prints, so that both answers read alike. It draws what the brain found; it looks for nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuyard.cli.console import words
from gpuyard.cli.console.terminal import Column, Screen, text
from gpuyard.cli.rendering.listings import job_tables, live_tables
from gpuyard.model.outside import phrases
from gpuyard.model.reasons import READING

Document = dict[str, Any]

_LADDER = (Column("part"), Column(""), Column("rung"), Column("nodes", right=True), Column("note", wraps=True))
_OTHERS = (Column(""), Column("job"), Column("must"), Column("cost", wraps=True))
_POINTS = (Column(""), Column("what", wraps=True))
OTHERS_SHOWN = 8
"""More jobs in the way than this are counted, not listed."""

LEGEND = "✓ holds   ✗ stands in the way   · rules these nodes out, enough others remain"


def draw(screen: Screen, answer: Document, now: float) -> None:
    """The whole answer."""
    screen.show(text(sentence(answer, now), "bold"))
    if disturbed := answer.get("disturbed"):
        screen.show(text(_disturbed(disturbed, now)))
    if ladder := answer.get("ladder"):
        screen.show(text(""))
        screen.table(_LADDER, _ladder_rows(ladder, answer), headers=False)
        screen.show(text(f"  {LEGEND}", "dim"))
    if suggestions := (answer.get("reason") or {}).get("suggestions"):
        screen.show(text(""), text("Would start if you", "bold"))
        screen.table(_POINTS, [["  •", _suggested(each)] for each in suggestions], headers=False)
    if others := answer.get("in_the_way"):
        screen.show(text(""), text("In the way", "bold"))
        screen.table(_OTHERS, _other_rows(others), headers=False)
    if span := answer.get("eta_seconds"):
        screen.show(text(""), text(f"Likely starts in {when(span)}.", "bold"))


def when(eta: Sequence[float]) -> str:
    """A range of time, never a point."""
    soon, late = (words.duration(seconds) for seconds in eta)
    return f"{soon} to {late}" if soon != late else f"about {late} (by time limits)"


def sentence(answer: Document, now: float) -> str:
    """Why, or where, in one sentence."""
    if answer.get("reason"):
        return _why(answer)
    return _where(answer, now) if answer.get("placements") else _how(answer)


def _why(answer: Document) -> str:
    name, phase, reason = answer["job"], answer["phase"], answer["reason"]
    verb = "waits"
    if reason.get("outcome") == "never":
        verb = "can never run here"
    elif phase == "held":
        verb = "is held"
    elif phase in ("running", "starting"):
        verb = f"is {phase}, but has to give way"
    shape = f" ({job_tables.shape(answer)})" if "tasks" in answer or "groups" in answer else ""
    return f"{name}{shape} {verb} ({reason['code']}): {str(reason['message']).removeprefix(f'{name} ')}"


def _where(answer: Document, now: float) -> str:
    name, phase, places = answer["job"], answer["phase"], job_tables.where(answer)
    if answer.get("starts"):
        return f"{name} is next: it starts in the coming plan, on {places}."
    if (told := answer.get("message")) and told != phase:
        return f"{name} is {phase} on {places}: {told}."
    begun = live_tables.seconds(answer.get("started"))
    since = "" if begun is None else f", since {words.duration(now - begun)}"
    far = f": {job_tables.progress(answer)}" if answer.get("progress") else ""
    return f"{name} is {phase} on {places}{since}; nothing stands in its way{far}."


def _how(answer: Document) -> str:
    name, phase, told = answer["job"], answer["phase"], str(answer.get("message") or "")
    return f"{name} is {phase}: {told}" if told and told != phase else f"{name} is {phase}."


def _disturbed(told: Document, now: float) -> str:
    """`At 14:02 it was stopped for peek, 3m of work lost.`"""
    at, message = live_tables.seconds(told.get("at")), str(told["message"])
    moment = f"At {words.clock(at, now)} it" if at is not None else "It"
    return f"{moment} {'' if message.startswith('gave') else 'was '}{message}."


def _ladder_rows(ladder: Sequence[Document], answer: Document) -> list[list[Any]]:
    """Every rung once, in the order in which a person looks for the cause."""
    rungs = {rung["rung"]: rung for rung in ladder}
    rows = []
    for part, titles in READING.items():
        there = [rungs[rung.title] for rung in titles if rung.title in rungs]
        rows += [[text(f"  {'' if n else part}", "dim"), *_rung_row(rung, answer)] for n, rung in enumerate(there)]
    return rows


def _rung_row(rung: Document, answer: Document) -> list[Any]:
    style, mark = ("green", "✓") if not rung["nodes"] else ("yellow", "·")
    if not rung["holds"]:
        style, mark = "red", "✗"
    nodes = words.counted(rung["nodes"], "node") if rung["nodes"] else ""
    said = rung.get("note") == answer["reason"]["message"]  # once, at the top
    note = str(rung.get("note", "")).removeprefix(f"{answer['job']} ")
    return [text(mark, style), text(rung["rung"], style if style == "red" else ""), nodes, "" if said else note]


def _other_rows(others: Sequence[Document]) -> list[list[str]]:
    rows = []
    for other in others[:OTHERS_SHOWN]:
        firm = "" if other["preemptible"] else ", not preemptible"
        lost = f", {phrases.work_again(other['lost_seconds'], saves=False)}" if other["lost_seconds"] else ""
        told = f"{words.gpu_count(other['gpus'])}, {other['queue'] or 'no queue'}, priority {other['priority']}"
        budget = f", kept by budget {other['budget']}" if other.get("budget") else ""
        rows.append(["  •", other["job"], f"would have to {other['must']}", f"{told}{firm}{budget}{lost}"])
    rest = len(others) - OTHERS_SHOWN
    return rows + ([["  •", f"and {rest} more", "", ""]] if rest > 0 else [])


def _suggested(suggestion: Document) -> str:
    effect = suggestion.get("effect")
    return f"{suggestion['change']} ({effect})" if effect else str(suggestion["change"])
