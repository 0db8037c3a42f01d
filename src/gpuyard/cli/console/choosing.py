"""Which jobs are meant: patterns of names, and filters by user, queue, phase and class.

Called by the commands that list jobs and by those that act on several. It asks nobody.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any

import click

from gpuyard.cli.console.completing import CLASSES, names

OVER = ("succeeded", "failed", "cancelled")
PHASES = ("held", "waiting", "starting", "running", "stopping", *OVER)
WILD = frozenset("*?[")


@dataclass(frozen=True)
class JobChoice:
    """What a job must be to be meant; what is empty leaves everything open."""

    patterns: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether it leaves anybody out."""
        return any(getattr(self, field.name) for field in fields(self))

    def takes(self, job: Mapping[str, Any]) -> bool:
        """Whether this job is meant; an array's name means all its members."""
        return (
            (not self.patterns or any(self._named(job, pattern) for pattern in self.patterns))
            and (not self.users or job.get("user") in self.users)
            and (not self.queues or job.get("queue", "default") in self.queues)
            and (not self.phases or job.get("phase") in self.phases)
            and (not self.classes or job.get("class", "training") in self.classes)
        )

    @staticmethod
    def _named(job: Mapping[str, Any], pattern: str) -> bool:
        return any(fnmatchcase(str(name), pattern) for name in (job["name"], job.get("array")) if name)


OPTIONS = (
    click.option("--class", "by_class", multiple=True, type=click.Choice(CLASSES), help="Only of this class."),
    click.option(
        "--phase",
        "by_phase",
        multiple=True,
        type=click.Choice(PHASES),
        metavar="PHASE",
        help="Only these: running, waiting, held, failed ...",
    ),
    click.option(
        "--queue", "by_queue", multiple=True, metavar="NAME", help="Only of this queue.", shell_complete=names("queues")
    ),
    click.option("--user", "by_user", multiple=True, metavar="NAME", help="Only of this user."),
)


def is_pattern(word: str) -> bool:
    """Whether a word may mean more than one name."""
    return not WILD.isdisjoint(word)


def filters(function: Any) -> Callable[..., Any]:
    """The options of every command that takes several jobs; it gets them as one `choice`, patterns left out."""

    @functools.wraps(function)
    def command(*args: Any, by_user: Any, by_queue: Any, by_phase: Any, by_class: Any, **kwargs: Any) -> Any:
        choice = JobChoice((), by_user, by_queue, by_phase, by_class)
        return function(*args, choice=choice, **kwargs)

    for option in OPTIONS:
        command = option(command)
    return command
