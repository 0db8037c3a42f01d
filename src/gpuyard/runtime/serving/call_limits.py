"""How much one call may ask of the yard: sizes that are told before anything is worked out, and time to think.

Called by `intake` and `submitting`. What is too much is refused in one sentence with the number; nobody's request may
keep the others waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpuyard.model.errors import TooMuch
from gpuyard.model.outside.phrases import counted

DOCUMENTS_MAX = 10_000
"""Jobs of one submission; an array counts once."""
MEMBERS_MAX = 100_000
"""Jobs of one submission, every member of an array counted."""
PREVIEWS_MAX = 100
"""Jobs of one preview."""
PARTS_MAX = 20_000
"""Keys and values of one job's document."""
TEXT_MAX = 1 << 20
"""Characters of one job's document: the kernel starts nothing with twice that, and what is submitted is kept."""
THINK_S = 10.0
"""How long one call may have the yard think about what would become of its jobs."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Time to think, which runs out."""

    monotonic: Callable[[], float]
    until: float

    @classmethod
    def from_now(cls, monotonic: Callable[[], float], seconds: float = THINK_S) -> Patience:
        """So many seconds from this moment on."""
        return cls(monotonic, monotonic() + seconds)

    def spend(self, done: int, wanted: int) -> None:
        """`TooMuch` once the time is over; so many of the wanted have been thought about."""
        if self.monotonic() > self.until:
            raise TooMuch(
                f"{counted(wanted, 'different job')} at once take too long to look at (after {THINK_S:g} s it "
                f"had been done for {done}); ask for fewer at a time, or submit them with --queue-anyway"
            )


def check_count(jobs: Sequence[Any], most: int, what: str) -> None:
    """`TooMuch` for more documents than one call may bring."""
    if len(jobs) > most:
        raise TooMuch(f"one {what} has at most {most:,} jobs, not {len(jobs):,}; send it in parts, or as an array")


def check_parts(document: Any, name: str) -> None:
    """`TooMuch` for a document that is larger than any job's."""
    left, waiting = PARTS_MAX, [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            left -= len(value)
            if left < 0:
                raise TooMuch(f"{name} has more than {PARTS_MAX:,} keys and values; describe it with fewer")
            waiting += value.values() if isinstance(value, dict) else value


def check_text(document: Any, name: str) -> None:
    """`TooMuch` for a document with more words than a program can be started with."""
    left, waiting = TEXT_MAX, [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            left -= len(value)
        elif isinstance(value, dict):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, list):
            waiting += value
        if left < 0:
            raise TooMuch(f"{name} has more than {TEXT_MAX:,} characters; put what is long into a file")


def check_members(members: int) -> None:
    """`TooMuch` for more jobs than one submission may make."""
    if members > MEMBERS_MAX:
        raise TooMuch(f"one submission makes at most {MEMBERS_MAX:,} jobs, members of arrays counted; send it in parts")
