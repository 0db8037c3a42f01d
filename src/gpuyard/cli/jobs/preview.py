"""What a submission would do, told before it is done: one line a job on stderr. Called by `run` and `submit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuyard.cli.console import terminal, words
from gpuyard.cli.rendering.listings import live_tables
from gpuyard.runtime.clock import SystemClock

Document = dict[str, Any]

TOLD_MAX = 10
DISTURBED_MAX = 5
STYLES = {"starts": "green", "waits": "yellow", "never": "red"}


def check(document: Document) -> None:
    """Tell what is wrong with a job before anybody is asked; the yard checks again."""
    from gpuyard import files

    files.read_submission({"name": "job", **document}, 0.0, "job")


def show(forecasts: Sequence[Document], document: Document | None = None, hopeless: bool = False) -> None:
    """The plan: starts now, or when and why not; quota after, price per hour.

    A job that never could run is told only if `hopeless` ones are kept: else it is refused next, with the same words.
    """
    forecasts = [forecast for forecast in forecasts if hopeless or forecast.get("verdict") != "never"]
    for forecast in forecasts[:TOLD_MAX]:
        verdict = str(forecast.get("verdict", ""))
        terminal.say(line(forecast, document or {}), f" {_verb(verdict)}", STYLES.get(verdict, ""))
    for advice in dict.fromkeys(forecast["sizing"]["message"] for forecast in forecasts if forecast.get("sizing")):
        terminal.say(f"Size: {advice}.")
    if len(forecasts) > TOLD_MAX:
        terminal.say(f"... and {len(forecasts) - TOLD_MAX} more")


def line(forecast: Document, document: Document) -> str:
    """One job's prospects in one line."""
    name = str(forecast.get("name") or document.get("name") or "The job")
    sentence = str(forecast.get("message") or forecast.get("sentence") or "")
    verdict = str(forecast.get("verdict", ""))
    told = sentence.removeprefix(f"{name} ").removeprefix(str(forecast.get("verdict", ""))).lstrip(" :")
    pause = "" if forecast.get("verdict") == "starts" else ":"
    return (
        f"{name} {_verb(verdict)}{pause} {told}".rstrip(" .:") + "".join(f"; {more}" for more in _more(forecast)) + "."
    )


def _verb(verdict: str) -> str:
    return "can never run here" if verdict == "never" else verdict


def _more(forecast: Document) -> list[str]:
    """What is known besides: whom it disturbs, when, the queue after, the price."""
    disturbed = forecast.get("disturbs", ())
    told = [str(each["message"]) for each in disturbed[:DISTURBED_MAX]]
    if len(disturbed) > DISTURBED_MAX:
        told.append(f"and {len(disturbed) - DISTURBED_MAX} more would be stopped or moved")
    if eta := forecast.get("eta"):
        now = SystemClock().now()
        soonest, latest = (live_tables.seconds(eta.get(key)) for key in ("earliest", "latest"))
        span = [words.duration(moment - now) for moment in (soonest, latest) if moment is not None]
        if span and span[-1] != words.duration(0):
            told.append(f"in about {' to '.join(dict.fromkeys(span))}")
    if isinstance(queue := forecast.get("queue"), dict):
        used, quota = live_tables.amount(queue.get("used")), live_tables.amount(queue.get("quota"))
        amount = words.counted(used, "GPU") if quota == "-" else f"{used} of {words.counted(quota, 'GPU')}"
        told.append(f"{queue.get('name')} then uses {amount}")
    if note := forecast.get("note"):
        told.append(str(note))
    if price := forecast.get("price_per_hour"):
        told.append(f"${price:,.2f} an hour")
    return told


def names(answers: Sequence[Document]) -> None:
    """The names of what was accepted, one a line, for scripts."""
    terminal.write("".join(f"{answer['name']}\n" for answer in answers))
