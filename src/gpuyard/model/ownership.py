"""Whose a job is, and how much may be there at once of one owner and in all."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose job it is; uid and gid are -1 where tasks run as the server does.

    Names belong to their owner: where many share a yard, two of them may each have a job `train`. Whatever has to know
    them apart (the book, the store, the brain) goes by the key, `owner/name`; people read and write their own names.
    """

    user: str
    uid: int = -1
    gid: int = -1

    @property
    def identity(self) -> str:
        """Who it really is: a name that is given to another user, or a number, is somebody else."""
        return f"{self.uid}:{self.user}"

    def key(self, name: str) -> str:
        """What a name of theirs means."""
        return name if self.uid < 0 else f"{self.user}/{name}"

    def name(self, key: str) -> str:
        """What they call it."""
        return key if self.uid < 0 else key.removeprefix(f"{self.user}/")

    def meanings(self, name: str) -> tuple[str, ...]:
        """The keys that a name may stand for, theirs first; only an operator reaches beyond them."""
        own = self.key(name)
        return (own,) if own == name or self.uid > 0 else (own, name)


@dataclass(frozen=True, slots=True)
class Caps:
    """What may be there at once; 0 is no cap. Root's own jobs count in all, and not against a user's."""

    jobs: int = 0
    """Jobs of one user that are not over; more are refused."""
    user_tasks: int = 0
    """Tasks of one user that run; more wait."""
    tasks: int = 0
    """Tasks in all that run; more wait."""
    output: int = 0
    """Bytes of output that are kept of jobs that ended; beyond that the oldest goes, of whoever has most."""


NO_CAPS = Caps()
