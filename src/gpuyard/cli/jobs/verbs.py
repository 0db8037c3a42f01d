"""`yard cancel`, `hold`, `release`, `requeue`, `vouch`: one word to jobs. Called by `root`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from gpuyard.cli.console import choosing, hints, options, terminal, words
from gpuyard.cli.console.choosing import OVER, JobChoice
from gpuyard.cli.console.completing import names
from gpuyard.cli.jobs import on_cluster
from gpuyard.cli.jobs.each_told import EachTold
from gpuyard.client import Client
from gpuyard.model.errors import NotFound

Document = dict[str, Any]

CHOICE_FIELDS = ("name", "array", "user", "queue", "class", "phase", "held_gpus")


@dataclass(frozen=True)
class Addressed:
    """Whom a word is for: names as they were typed, patterns and filters, and whether anybody was asked already."""

    words: tuple[str, ...]
    choice: JobChoice
    sure: bool

    def names(self, client: Client, verb: str) -> list[str]:
        """The names; what patterns and filters choose of the active jobs is told, and agreed to, first."""
        plain = [word for word in self.words if not choosing.is_pattern(word)]
        if self.choice or len(plain) < len(self.words):
            return self._chosen(client, verb)
        if not plain:
            raise click.UsageError(f"Which jobs? Name them, or choose them by --user, --queue, --phase or '{verb} *'.")
        return plain

    def _chosen(self, client: Client, verb: str) -> list[str]:
        choice = replace(self.choice, patterns=self.words)
        found = [job for job in client.jobs(fields=CHOICE_FIELDS) if job["phase"] not in OVER and choice.takes(job)]
        if not found:
            raise NotFound("no active job is like that; `yard jobs` lists them")
        self._agree(found, verb)
        return [str(job["name"]) for job in found]

    def _agree(self, found: Sequence[Document], verb: str) -> None:
        held = sum(float(job.get("held_gpus", 0)) for job in found)
        jobs = words.some([str(job["name"]) for job in found])
        told = f"{verb} {words.counted(len(found), 'job')} ({jobs}), holding {words.gpu_count(held)}"
        if self.sure:
            return
        if not sys.stdin.isatty():
            raise click.UsageError(f"This would {told}. Add --yes to do it.")
        if not click.confirm(f"{told.capitalize()}?", default=False, err=True):
            raise click.Abort


def addressed(function: Any) -> Callable[..., Any]:
    """Names, patterns and filters; the command gets them as one `whom`."""

    @functools.wraps(function)
    def command(*args: Any, jobs: tuple[str, ...], choice: JobChoice, yes: bool, **kwargs: Any) -> Any:
        return function(*args, whom=Addressed(jobs, choice, yes), **kwargs)

    sure = click.option("--yes", is_flag=True, help="Do not ask before a pattern or filter is acted on.")
    named = click.argument("jobs", nargs=-1, metavar="[JOB|PATTERN]...", shell_complete=names("jobs"))
    decorated: Callable[..., Any] = named(choosing.filters(sure(command)))
    return decorated


Past = str | Callable[[Document], str]
"""What is said of a job that was told: words, or words made of the answer."""


def _tell(whom: Addressed, verb: str, act: Callable[[Client, str], Document], past: Past) -> None:
    """Every job is told."""
    told = EachTold()
    with Client() as client:
        for job in whom.names(client, verb):
            with told.one():
                answer = act(client, job)
                terminal.write(f"{job} {past if isinstance(past, str) else past(answer)}\n")
    told.end()


@options.command(
    "cancel",
    """
    yard cancel train
    yard cancel 'sweep*' --phase waiting
    yard cancel --user ann --queue research --yes
    yard cancel $(yard jobs --phase held -o name)
    """,
)
@addressed
@on_cluster.option("Of")
def cancel(whom: Addressed, kube: bool) -> None:
    """End jobs: those that run get their signal and their grace first."""
    if kube:
        on_cluster.tell(whom.words, lambda jobs, name: jobs.cancel(name))
        return
    _tell(whom, "cancel", Client.cancel, "is cancelled")


@options.command("hold", "yard hold train\nyard hold --requeue train\nyard hold --queue research --phase waiting")
@addressed
@click.option("--requeue", is_flag=True, help="Also stop what runs: it gets its signal and grace, and waits, held.")
@on_cluster.option("Of")
def hold(whom: Addressed, requeue: bool, kube: bool) -> None:
    """Keep jobs from starting until they are released. What runs goes on; it is held once it stops."""
    if kube:
        on_cluster.tell(whom.words, lambda jobs, name: jobs.hold(name, requeue))
        return
    _tell(whom, "hold", lambda client, job: client.hold(job, requeue), _held)


def _held(answer: Document) -> str:
    """What a hold did; work that goes on is said to."""
    running, jobs = int(answer.get("running", 0)), int(answer.get("jobs", 1))
    if not running:
        return "is being stopped, and is held" if answer.get("phase") == "stopping" else "is held"
    some = "" if jobs == running == 1 else f" with {words.counted(running, 'job')}"
    return f"runs on{some}, and is held once it stops; `{hints.yard()} hold --requeue {answer['name']}` stops it now"


@options.command("release", "yard release train\nyard release --phase held")
@addressed
@on_cluster.option("Of")
def release(whom: Addressed, kube: bool) -> None:
    """Let held jobs start again."""
    if kube:
        on_cluster.tell(whom.words, lambda jobs, name: jobs.release(name))
        return
    _tell(whom, "release", Client.release, "is released")


@options.command("requeue", "yard requeue train")
@addressed
def requeue(whom: Addressed) -> None:
    """Stop running jobs, or take ended ones, and put them back in their queue."""
    _tell(whom, "requeue", Client.requeue, "is queued again")


@options.command("vouch", "yard vouch train")
@addressed
def vouch(whom: Addressed) -> None:
    """Say that nothing is left of jobs whose GPUs are withheld (`yard status` names them): they are given on.

    Look at the processes that `yard status` names first: what still runs shares the GPU with whoever gets it next.
    """
    _tell(whom, "vouch for", Client.vouch, "is vouched for")
