"""What to type next: the nearest name for one that was mistyped, and `yard` as it works from where the reader stands.

Called by the commands and by `terminal`; it raises nothing itself.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import click

SCANNED_MAX = 2_000
"""Comparing with every name of a large yard takes seconds; beyond this only names that begin alike are looked at."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The words " Did you mean 'x'?" for a name that is nearly a known one, else nothing."""
    import difflib

    names = sorted(known)
    if len(names) > SCANNED_MAX:
        names = [other for other in names if other[:2].lower() == name[:2].lower()][:SCANNED_MAX]
    by_lower = {other.lower(): other for other in names}
    close = difflib.get_close_matches(name.lower(), list(by_lower), n=1)
    return f" Did you mean '{by_lower[close[0]]}'?" if close else ""


# --- how the yard is called ----------------------------------------------------------------------

REACH = "gpuyard.reach"
"""Of a command's context: the state folder that was named on the command line, which the next command must name too."""


NEAR = Path(".venv/bin/yard")
"""As deep as this a program's path is told from here; deeper, or elsewhere, it is told whole."""


def yard() -> str:
    """The words before a command's name, such that it runs from here and reaches the yard that was meant."""
    context = click.get_current_context(silent=True)
    state = str(context.meta.get(REACH, "")) if context is not None else ""
    return f"{_program()} --state {shlex.quote(state)}" if state else _program()


def spoken(words: str) -> str:
    """A sentence whose commands, between backticks, can be typed as they stand."""
    return words.replace("`yard ", f"`{yard()} ") if "`yard " in words else words


def _program() -> str:
    """`yard` where the shell finds this very program by that name; else its path, short if it lies below here."""
    own = _script()
    if own is None:
        return "yard"
    found = shutil.which("yard")
    if found is not None and os.path.realpath(found) == os.path.realpath(own):
        return "yard"
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it was removed under us
        return shlex.quote(str(own))
    near = own.is_relative_to(here) and len(own.parts) - len(here.parts) == len(NEAR.parts)
    return shlex.quote(str(own.relative_to(here) if near else own))


def _script() -> Path | None:
    """The script that starts this program, beside its interpreter; None where there is none."""
    own = Path(sys.executable).parent / "yard"
    return own if own.is_file() else None
