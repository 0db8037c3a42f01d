"""`yard why` of a running yard: the API's answer as a person reads it. Called by `why`, which explains files too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuyard.cli import live, terminal, words
from gpuyard.cli.render_why import LEGEND, OTHERS_SHOWN
from gpuyard.cli.terminal import Column, Screen, text
from gpuyard.client import Client
from gpuyard.runtime.clock import SystemClock

Document = dict[str, Any]

_LADDER = (Column(""), Column("rung"), Column("nodes", right=True), Column("note", wraps=True))
_POINTS = (Column(""), Column("what", wraps=True))


def write(job: str, form: str) -> None:
    """Ask, and print the answer."""
    with Client() as client:
        answer = client.why(job)
    if form == "table":
        draw(Screen(), answer, SystemClock().now())
    else:
        terminal.write_document(answer, form)


def draw(screen: Screen, answer: Document, now: float) -> None:
    """The sentence, the ladder, what would help, who is in the way, when."""
    screen.show(text(sentence(answer), "bold"))
    if ladder := answer.get("ladder"):
        screen.show(text(""))
        screen.table(_LADDER, [_rung(rung, answer) for rung in ladder], headers=False)
        screen.show(text(f"  {LEGEND}", "dim"))
    if suggestions := (answer.get("reason") or {}).get("suggestions"):
        screen.show(text(""), text("Would start if you", "bold"))
        screen.table(_POINTS, [["  •", _suggested(each)] for each in suggestions], headers=False)
    if others := answer.get("in_the_way"):
        screen.show(text(""), text("In the way", "bold"))
        screen.table(_POINTS, _others(others), headers=False)
    if span := _span(answer.get("eta") or {}, now):
        screen.show(text(""), text(f"Likely starts in {span}.", "bold"))


def sentence(answer: Document) -> str:
    """Why, in one sentence."""
    name, phase = answer["job"], answer["phase"]
    reason = answer.get("reason") or {}
    told = str(answer.get("sentence") or reason.get("message") or "").removeprefix(f"{name} ")
    if answer.get("placements"):
        return f"{name} is {phase} on {live.where(answer)}."
    if not reason:
        return f"{name} is {phase}: {told}" if told and told != phase else f"{name} is {phase}."
    never = reason.get("outcome") == "never"
    verb = "can never run here" if never else "is held" if phase == "held" else "waits"
    return f"{name} {verb} ({reason['code']}): {told}"


def _rung(rung: Document, answer: Document) -> list[Any]:
    style, mark = ("green", "✓") if not rung["nodes"] else ("yellow", "·")
    if not rung["holds"]:
        style, mark = "red", "✗"
    nodes = words.counted(rung["nodes"], "node") if rung["nodes"] else ""
    note = rung.get("note", "")
    said = note == (answer.get("reason") or {}).get("message")
    return [text(f"  {mark}", style), text(rung["rung"], style if style == "red" else ""), nodes, "" if said else note]


def _suggested(suggestion: Document) -> str:
    effect = suggestion.get("effect")
    return f"{suggestion['change']} ({effect})" if effect else str(suggestion["change"])


def _others(others: Sequence[Any]) -> list[list[str]]:
    named = [str(other["job"] if isinstance(other, dict) else other) for other in others]
    rest = [f"and {len(named) - OTHERS_SHOWN} more"] if len(named) > OTHERS_SHOWN else []
    return [["  •", name] for name in [*named[:OTHERS_SHOWN], *rest]]


def _span(eta: Document, now: float) -> str:
    """A range, never a point; nothing where it says nothing."""
    soon, late = (words.duration((live.seconds(eta.get(key)) or now) - now) for key in ("earliest", "latest"))
    if late == words.duration(0):
        return ""
    return f"{soon} to {late}" if soon != late else f"about {late}"
