"""`yard logs`, `yard wait`, and what `yard run` does once its job is in: stay with a job until its end.

Called by `root` and `run`.
"""

from __future__ import annotations

import codecs
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from gpuyard.cli.console import exits, options, terminal, words
from gpuyard.cli.console.choosing import OVER, PHASES
from gpuyard.cli.console.completing import names
from gpuyard.cli.jobs import on_cluster
from gpuyard.cli.rendering.listings import job_tables
from gpuyard.client import Client
from gpuyard.model.errors import NotFound
from gpuyard.model.outside.ports import Clock
from gpuyard.runtime.clock import SystemClock

Document = dict[str, Any]

GOALS = (*PHASES, "ended")
LONG_POLL_S = 20.0
SHORT_POLL_S = 0.2
STILL_WAITING = 5
SIGNALS_FROM = 128


@options.command(
    "logs",
    """
    yard logs train
    yard logs train -f
    yard logs train --task 3 --tail 20
    yard logs sweep --tail 1
    """,
)
@click.argument("job", shell_complete=names("jobs"))
@click.option("-f", "--follow", is_flag=True, help="Stay until the job ends.")
@click.option("--task", type=click.IntRange(min=0), help="One task's output.  [default: all, each line with its task]")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines of what is there.")
@on_cluster.option("Of a Job of")
@click.option("--raw", is_flag=True, help="Another's output as it is, also to a terminal, which obeys what is in it.")
def logs(job: str, follow: bool, task: int | None, tail: int | None, kube: bool, raw: bool) -> None:
    """What a job has written, to stdout and stderr; of an array what every member has.

    Your own output is shown as it is. Of another user's a terminal gets no escape sequences, unless with --raw.
    """
    if kube:
        on_cluster.logs(job, follow, task, tail)
        return
    with Client() as client:
        known = [client.job(name) for name in members(client, [job])]
        speakers = [speaker for each in known for speaker in speakers_of(each, task)]
        output = Output(client, speakers, escaped=sys.stdout.isatty() and not raw and not all(map(is_own, known)))
        output.read_all(tail)
        if follow:
            output.follow()


class Speaker(NamedTuple):
    """One task whose output is read, and how its lines are told from those of others."""

    job: str
    task: int
    title: str


def speakers_of(job: Document, task: int | None = None) -> list[Speaker]:
    """Every task of a job, or one that it has."""
    name, tasks = str(job["name"]), tasks_of(job)
    if task is not None and task not in tasks:
        raise NotFound(f"{name} has no task {task}; it has {len(tasks)}, counted from 0")
    above = [name] if job.get("array") else []
    return [
        Speaker(name, each, "/".join(above + [str(each)] * (len(tasks) > 1))) for each in tasks if task in (None, each)
    ]


def tasks_of(job: Document) -> list[int]:
    """The numbers of its tasks."""
    groups = job_tables.leaves(job) if job.get("groups") else [job]
    return list(range(sum(int(group.get("tasks", 1)) for group in groups)))


def is_own(job: Document) -> bool:
    """Whether the job is of the user who reads."""
    import pwd

    try:
        return bool(job.get("user") == pwd.getpwuid(os.geteuid()).pw_name)
    except KeyError:
        return bool(job.get("user") == str(os.geteuid()))


class Output:
    """The output of tasks, written to ours as it comes; of several tasks whole lines, each with its task.

    One that is `escaped` is another's on a terminal: nothing in it is obeyed.
    """

    def __init__(self, client: Client, speakers: Sequence[Speaker], escaped: bool = False) -> None:
        self._decoders = {speaker: codecs.getincrementaldecoder("utf-8")("backslashreplace") for speaker in speakers}
        self._escaped = escaped
        self._client = client
        self._offsets = dict.fromkeys(speakers, 0)
        self._partial = dict.fromkeys(speakers, b"")
        self._open = dict.fromkeys(speakers)

    def read_all(self, tail: int | None = None) -> None:
        """Everything there is now; with `tail` its last lines only."""
        for speaker in self._offsets:
            content = b""
            while True:
                more = self._read(speaker, 0.0)
                content += more
                if not more:
                    break
                if tail is None:
                    self._write(speaker, content)
                    content = b""
            if tail is not None and tail > 0:
                self._write(speaker, b"".join(content.splitlines(keepends=True)[-tail:]))
            self._flush(speaker)

    def follow(self) -> None:
        """Until every task has ended."""
        alone = len(self._offsets) == 1
        pause = threading.Event()
        while self._open:
            wrote = False
            for speaker in list(self._open):
                content = self._read(speaker, LONG_POLL_S if alone else 0.0)
                self._write(speaker, content)
                wrote = wrote or bool(content)
            if not wrote and not alone:
                pause.wait(SHORT_POLL_S)
        for speaker in self._offsets:
            self._flush(speaker)

    def _read(self, speaker: Speaker, wait_s: float) -> bytes:
        content, self._offsets[speaker], more = self._client.logs(
            speaker.job, speaker.task, self._offsets[speaker], wait_s
        )
        if not more and not content:
            self._open.pop(speaker, None)
        return content

    def _write(self, speaker: Speaker, content: bytes) -> None:
        if self._escaped:
            words = self._decoders[speaker].decode(content).replace("\r\n", "\n").replace("\r", "\n")
            content = terminal.safe(words).encode()
        if len(self._offsets) > 1:
            *lines, self._partial[speaker] = (self._partial[speaker] + content).split(b"\n")
            content = b"".join(b"%b: %b\n" % (speaker.title.encode(), line) for line in lines)
        _put(content)

    def _flush(self, speaker: Speaker) -> None:
        """The last line, if it does not end in one."""
        if self._partial[speaker]:
            _put(b"%b: %b\n" % (speaker.title.encode(), self._partial[speaker]))
            self._partial[speaker] = b""


def _put(content: bytes) -> None:
    """As it is: a job may write what is no text."""
    if not content:
        return
    raw = getattr(sys.stdout, "buffer", None)
    if raw is None:
        sys.stdout.write(content.decode(errors="replace"))
    else:
        sys.stdout.flush()
        raw.write(content)
    sys.stdout.flush()


# --- wait ----------------------------------------------------------------------------------------


@options.command(
    "wait",
    """
    yard wait train
    yard wait train --for running --timeout 10m
    """,
)
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=names("jobs"))
@click.option(
    "--for",
    "goal",
    type=click.Choice(GOALS),
    default="ended",
    show_default=True,
    metavar="PHASE",
    help="A phase such as running or succeeded, or ended.",
)
@click.option("--timeout", default="", metavar="TIME", help="Give up after this (90s, 10m, 2h), with exit code 5.")
@click.pass_context
def wait(ctx: click.Context, jobs: tuple[str, ...], goal: str, timeout: str) -> None:
    """Wait until jobs run, or have ended. Exit code 1 if that cannot happen any more, 5 if it has not yet."""
    clock = SystemClock()
    until = clock.monotonic() + options.seconds_of(timeout) if timeout else None
    with Client() as client:
        codes = [await_phase(client, job, goal, clock, until) for job in members(client, jobs)]
    ctx.exit(max(codes))


def members(client: Client, names: Sequence[str]) -> list[str]:
    """The jobs of that name; for an array all its jobs."""
    found: list[str] = []
    for name in names:
        try:
            client.job(name)
            found.append(name)
        except NotFound:
            every = client.jobs(all_ended=True, fields=("name", "array"))
            mine = [str(job["name"]) for job in every if job.get("array") == name]
            if not mine:
                raise
            found += mine
    return found


def await_phase(
    client: Client, name: str, goal: str, clock: Clock, until: float | None = None, quiet: bool = False
) -> int:
    """0 once the job is there, 1 if it never will be, 5 if the time is over."""
    while True:
        newest = latest_event(client)
        job = client.job(name)
        if (verdict := reached(job, goal)) is not None:
            if verdict and not quiet:
                terminal.say(f"{name} is {job['phase']}, so it will not be {goal} any more.")
            return verdict
        left = LONG_POLL_S if until is None else until - clock.monotonic()
        if left <= 0:
            why = (job.get("reason") or {}).get("message", "")
            terminal.say(f"{name} is still {job['phase']}. {why}".rstrip())
            return STILL_WAITING
        client.events(newest, 1, min(left, LONG_POLL_S))


def reached(job: Document, goal: str) -> int | None:
    """0 if the job is there, 1 if it never will be, None if it still may."""
    phase = job["phase"]
    if phase == goal or (goal == "ended" and phase in OVER) or (goal == "running" and phase == "succeeded"):
        return 0
    return 1 if phase in OVER else None


def latest_event(client: Client) -> int:
    """The number of the newest event."""
    events = client.events(-2, 1)
    return int(events[-1]["id"]) if events else 0


def exit_code_of(job: Document) -> int:
    """The exit code that stands for how a job ended: its own, 128 + n for a signal, 1 where it has none."""
    code = job.get("exit_code")
    if not code:  # a job that failed by its limit may have left with success
        return 0 if job["phase"] == "succeeded" else 1
    return SIGNALS_FROM - int(code) if int(code) < 0 else int(code)


def ending(job: Document) -> str:
    """How it ended, in a few words."""
    from gpuyard.cli.rendering.listings.live_tables import seconds

    begun, ended = seconds(job.get("started")), seconds(job.get("ended"))
    took = f" after {words.duration(ended - begun)}" if begun and ended else ""
    code = f" {exits.with_code(int(job['exit_code']))}" if job.get("exit_code") else ""
    why = f": {job['message']}" if job.get("message") else ""
    return f"{job['name']} {job['phase']}{took}{code}{why}"
