"""Numbers of jobs that nobody has had before, whatever becomes of the database.

Output lies in folders named by a job's number, so a number that came twice would show one user what another's job has
written. The highest one given out is kept beside the database: a restored backup, which knows fewer jobs than there
were, goes on above it. Used by `recovery` and the embedded yard.
"""

from __future__ import annotations

import os
import pathlib

from gpuyard.worlds.local.state.store import StoreError
from gpuyard.worlds.local.supervising.notes import read_pairs, write_pairs

FILE = "numbers"
BLOCK = 100
"""So many numbers are noted ahead of their use; a crash skips no more than that."""


class Numbers:
    """The highest numbers that may be in use: of a job, and of a template."""

    def __init__(self, state: pathlib.Path) -> None:
        self._state = state
        self._noted = (0, 0)

    def highest(self) -> tuple[int, int]:
        """By the note, and by the folders of output that are there; whichever is more."""
        try:
            said = dict(read_pairs(str(self._state / FILE)))
            self._noted = int(said["job"]), int(said["template"])
        except (OSError, KeyError, ValueError):
            self._noted = (0, 0)  # none yet, or damaged: the folders and the database have the say
        return max([self._noted[0], *self._folders()]), self._noted[1]

    def _folders(self) -> list[int]:
        try:
            names = os.listdir(self._state / "runs")
        except OSError:
            return []
        return [int(name) for name in names if name.isascii() and name.isdecimal() and len(name) < 18]

    def secure(self, job: int, template: int) -> None:
        """Note that these are about to be used, before anybody is told that they are."""
        if job > self._noted[0] or template > self._noted[1]:
            self.settle(job + BLOCK, template + BLOCK)

    def settle(self, job: int, template: int) -> None:
        """Exactly these are used and none above."""
        try:
            write_pairs(str(self._state / FILE), [("job", str(job)), ("template", str(template))])
        except OSError as error:
            told = f"the numbers of jobs cannot be kept in {self._state}: {error.strerror}; nothing new can be accepted"
            raise StoreError(told) from error
        self._noted = job, template
