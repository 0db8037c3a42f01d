"""How the end of a program is said: its exit code, or by its name the signal that ended it (a code below zero)."""

from __future__ import annotations

import signal


def signal_name(code: int) -> str:
    """`SIGTERM` for -15; nothing where no signal ended it."""
    if code >= 0:
        return ""
    try:
        return signal.Signals(-code).name
    except ValueError:  # a real-time signal has no name of its own
        return f"signal {-code}"


def told(code: int | None) -> str:
    """`exit code 3`, `SIGKILL`, or that nobody knows."""
    if code is None:
        return "its end was not seen"
    return signal_name(code) or f"exit code {code}"


def with_code(code: int) -> str:
    """The same behind a verb: "failed with exit code 3", "failed by SIGKILL"."""
    return f"{'by' if code < 0 else 'with'} {told(code)}"
