"""One job on one page: what it is, what it asks, where it stands, how it came there. Called by `yard show`.

Whoever is stopped for another, and for whom, stands in the words of its attempts and events as the yard wrote them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from gpuyard.cli.console import exits, words
from gpuyard.cli.console.choosing import OVER
from gpuyard.cli.rendering.listings import job_tables
from gpuyard.cli.rendering.listings.live_tables import seconds

Document = dict[str, Any]

INDENT = "  "
EVENTS_SHOWN = 15
"""The newest; `-o json` has more."""


def page(job: Document) -> str:
    """The whole page."""
    is_ = "" if job["phase"] in OVER else "is "
    lines = [f"{job['name']} {is_}{_standing(job)}"]
    facts = [(title, said) for title, said in _facts(job) if said]
    width = max(len(title) for title, _ in facts)
    lines += [f"{INDENT}{title:<{width}}  {said}" for title, said in facts]
    for title, rows in (("Attempts", _attempts(job)), ("What happened", _events(job))):
        if rows:
            lines += ["", title, *(f"{INDENT}{row}" for row in _in_columns(rows))]
    return "".join(line.rstrip() + "\n" for line in lines)


def _standing(job: Document) -> str:
    phase = str(job["phase"])
    told = job_tables.sentence(job)
    said = phase if told == "-" or phase == "running" else f"{phase}: {told}"
    code = job.get("exit_code")
    return said if not code or exits.told(int(code)) in said else f"{said} ({exits.told(int(code))})"


def _facts(job: Document) -> Iterator[tuple[str, str]]:
    """Title and words of each; what has none is left out."""
    run = job.get("run") or {}
    yield "who", ", ".join(filter(None, (job.get("user"), f"queue {job.get('queue', 'default')}", job.get("class"))))
    yield "priority", f"{job.get('priority', '-')}, {'may' if job.get('preemptible', True) else 'must not'} be stopped"
    yield "asks", _asks(job)
    yield "waits for", ", ".join(map(str, job.get("after", ())))
    yield "where", job_tables.where(job) if job.get("placements") else ""
    yield "submitted", _when(job.get("submitted"))
    yield "started", _spell(job)
    yield "progress", job_tables.progress(job) if job.get("progress") else ""
    yield "ended", _when(job.get("ended"))
    yield "limits", _limits(job)
    yield "counts", _counts(job)
    yield "array", f"member {job['index']} of {job['array']}" if job.get("array") else ""
    yield "command", shlex.join(map(str, run.get("command", ())))
    yield "runs in", " ".join(filter(None, (run.get("workdir"), run.get("image") and f"(image {run['image']})")))
    yield "output", f"{job['output']}; `yard logs {job['name']}`" if job.get("output") else ""


def _asks(job: Document) -> str:
    models = job.get("models") or job.get("model") or ()
    of = f" of {', '.join(models) if isinstance(models, list) else models}" if models else ""
    rest = [f"{job[key]} {noun}" for key, noun in (("cpu", "cores"), ("memory", "of memory")) if job.get(key)]
    return ", ".join([f"{job_tables.shape(job)}{of} ({words.gpu_count(float(job_tables.asked(job)))} in all)", *rest])


def _limits(job: Document) -> str:
    given = (("time limit", job.get("time_limit")), ("at least", job.get("min_runtime")))
    parts = [f"{title} {said}" for title, said in given if said]
    checkpoint = job.get("checkpoint") or {}
    parts += [f"checkpoint {key} {checkpoint[key]}" for key in ("every", "grace") if checkpoint.get(key)]
    return ", ".join(parts)


def _counts(job: Document) -> str:
    nouns = (("attempts", "attempt"), ("evictions", "eviction"), ("failures", "failure"), ("losses", "loss"))
    return ", ".join(words.counted(int(job[key]), noun) for key, noun in nouns if job.get(key))


def _spell(job: Document) -> str:
    begun = _when(job.get("started"))
    return f"{begun}, {'ran' if job.get('ended') else 'for'} {job_tables.run_time(job)}" if begun else ""


def _when(moment: Any) -> str:
    """A moment as this machine's clocks show it."""
    at = seconds(moment)
    return "" if at is None else datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _attempts(job: Document) -> list[tuple[str, ...]]:
    return [_attempt(attempt) for attempt in job.get("history", ())]


def _attempt(attempt: Document) -> tuple[str, ...]:
    begun, ended = seconds(attempt.get("started")), seconds(attempt.get("ended"))
    took = words.duration(ended - begun) if begun and ended else "-"
    tasks = attempt.get("tasks", [])
    why = attempt.get("why") or _ends(tasks)
    when = _when(attempt.get("started") or attempt.get("created"))
    return f"{attempt['number']}", attempt["state"], when, took, job_tables.where({"placements": tasks}), why


def _ends(tasks: Sequence[Document]) -> str:
    """How its tasks ended, each way once."""
    told = [task.get("message") or exits.told(task["exit_code"]) for task in tasks if task.get("exit_code")]
    return words.some(list(dict.fromkeys(told))) if told else ""


def _events(job: Document) -> list[tuple[str, ...]]:
    shown = list(job.get("events", ()))[-EVENTS_SHOWN:]
    return [(_when(event["at"]), str(event["kind"]), str(event.get("message", ""))) for event in shown]


def _in_columns(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
