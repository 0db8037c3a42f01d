"""`yard doctor`: whether this machine is set up right for GPU jobs. Called by `root`; the checks are the agent's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gpuyard.cli.console import options, terminal, words
from gpuyard.cli.keeping import agent
from gpuyard.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuyard.agent.doctor.examining import Check

SIGNS = {"ok": "✓", "warn": "!", "fail": "✗", "cannot tell": "?"}
FAILED = 1


@options.command(
    "doctor",
    """
    yard doctor
    yard doctor -o json
    yard doctor --strict && start-the-node
    """,
)
@click.option("--strict", is_flag=True, help="Leave with 1 for warnings too.")
@click.option("--nvml-replay", default="", metavar="FILE", help="A recorded machine in NVML's place.")
@click.option("--deadline", default="45s", show_default=True, metavar="TIME", help="How long NVML may take.")
@options.output()
@click.pass_context
def doctor(ctx: click.Context, strict: bool, nvml_replay: str, deadline: str, form: str) -> None:
    """Whether this machine is set up right for GPU jobs: driver, devices, containers, kubelet.

    Each check is ok, a warning, a failure, or cannot be told from here, and says why and what to type next. Nothing is
    changed. Leaves with 1 if a check failed.
    """
    checks = _checks(nvml_replay, deadline)
    if form == "table":
        _draw(checks)
    else:
        terminal.write_document([_document(check) for check in checks], form)
    bad = ("fail", "warn") if strict else ("fail",)
    if any(check.verdict in bad for check in checks):
        ctx.exit(FAILED)


def _checks(replay: str, deadline: str) -> Sequence[Check]:
    from gpuyard.agent.doctor.examining import Patient
    from gpuyard.agent.doctor.rounds import examined
    from gpuyard.agent.nvml.caller import NvmlCaller
    from gpuyard.agent.watching import Watch

    clock = SystemClock()
    watch = Watch(NvmlCaller(agent.source_of(replay, "", options.seconds_of(deadline)), clock.monotonic), clock.now)
    try:
        return list(examined(Patient(watch.look(), now=clock.now())))
    finally:
        watch.close()


def _document(check: Check) -> dict[str, Any]:
    return {"name": check.name, "verdict": check.verdict, "why": check.why, "next": check.next}


def _draw(checks: Sequence[Check]) -> None:
    for check in checks:
        terminal.write(f"{SIGNS[check.verdict]} {check.name}: {check.verdict}. {check.why}.\n")
        if check.next and check.verdict != "ok":
            terminal.write(f"    next: {check.next}\n")
    counts = [sum(check.verdict == verdict for check in checks) for verdict in SIGNS]
    said = [f"{count} {verdict}" for count, verdict in zip(counts, SIGNS, strict=True) if count]
    terminal.write(f"{words.counted(len(checks), 'check')}: {', '.join(said)}\n")
