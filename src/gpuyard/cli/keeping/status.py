"""`yard status` and `yard page`: whether a yard is up, how well, and where its live page is.

Called by `root`; `up` asks the same of the yard that it starts.
"""

from __future__ import annotations

from typing import Any

from gpuyard.cli.console import options, terminal, words
from gpuyard.client import Client
from gpuyard.model.errors import GpuYardError
from gpuyard.runtime.clock import SystemClock

VITAL = ("loop", "turns", "store")
"""The checks without which nothing is planned."""


class Ailing(GpuYardError):
    """A yard that is up and does not do its work."""


def ailing(status: dict[str, Any]) -> str:
    """What keeps a yard from planning; nothing if it does."""
    checks = status.get("checks", {})
    return "; ".join(checks[name] for name in VITAL if checks.get(name, "ok") != "ok")


@options.command(
    "status",
    """
    yard status
    yard status -o json | jq .pid
    """,
)
@options.output()
def status(form: str) -> None:
    """Whether a yard is up, since when, where, and how well. Exit code 1 if it does not plan."""
    with Client() as client:
        told = client.status()
    if form != "table":
        terminal.write_document(told, form)
    else:
        _write_status(told)
    if trouble := ailing(told):
        raise Ailing(f"This yard plans nothing: {trouble}.")


def _write_status(told: dict[str, Any]) -> None:
    kind = "virtual" if told.get("virtual") else "real"
    up_for = words.duration(SystemClock().now() - float(told["since"]))
    unwell = [f"{name}: {check}" for name, check in told.get("checks", {}).items() if check != "ok"]
    rows = [
        ("up", f"for {up_for}, process {told['pid']}, version {told['version']}"),
        ("GPUs", f"{told['gpus']} {kind} on {words.counted(told['nodes'], 'node')}: {told['gpus_held']} held, "
                 f"{told['gpus_sick']} sick"),
        ("jobs", f"{told['running']} running, {told['waiting']} waiting"),
        ("alerts", _alerts(told.get("alerts", {}))),
        *([("notices", told["notices"])] if "notices" in told else []),
        ("at", ", ".join(told.get("addresses", ()))),
        ("state", told["state"]),
        ("health", "; ".join(unwell) or "ok"),
        *([("events", left_out)] if (left_out := told.get("left_out")) else []),
    ]  # fmt: skip
    terminal.write("".join(f"{name:<8}{words_told}\n" for name, words_told in rows))


def _alerts(counts: dict[str, int]) -> str:
    told = [f"{count} {severity}" for severity, count in counts.items() if count]
    return f"{', '.join(told)}; `yard alerts` tells them" if told else "none"


@options.command(
    "page",
    """
    yard page
    xdg-open "$(yard page)"
    """,
)
def page() -> None:
    """A fresh address of the live page; it opens once, within ten minutes."""
    with Client() as client:
        terminal.write(f"{client.login()['url']}\n")
