"""`--kube` of `run`, `submit`, `logs`, `cancel`, `hold` and `release`: the same words to a cluster's Jobs.

Called by those commands. What they may do is what the caller's own rights on the cluster say.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from gpuyard.cli.console import exits, options, terminal
from gpuyard.model.errors import Refused

if TYPE_CHECKING:
    from gpuyard.runtime.clustered.job_calls import ClusterJobs

Document = dict[str, Any]
INTERRUPTED = 130


def option(what: str) -> options.Decorator:
    """How a command is told that a cluster is meant."""
    return click.option("--kube", is_flag=True, help=f"{what} the Kubernetes cluster that kubectl would ask.")


def with_jobs(act: Callable[[ClusterJobs], Awaitable[Any]]) -> Any:
    """Do it over one session with the cluster."""
    try:
        from gpuyard.kube import credentials
        from gpuyard.kube.client import KubeClient
        from gpuyard.runtime.clustered.job_calls import ClusterJobs
    except ModuleNotFoundError as missing:
        raise Refused(f"{missing.name} is not installed, which clusters need; `pip install 'gpuyard[kube]'`") from None
    from gpuyard.runtime.clock import SystemClock

    async def session() -> Any:
        clock = SystemClock()
        client = await KubeClient(credentials.find(), clock).open()
        try:
            return await act(ClusterJobs(client, clock))
        finally:
            await client.close()

    return asyncio.run(session())


def manifests(document: Document, namespace: str) -> list[Document]:
    """What a job file's content is on a cluster."""
    from gpuyard.files import read_submission
    from gpuyard.runtime.clock import SystemClock
    from gpuyard.runtime.clustered.submitting import manifests_of

    return manifests_of(read_submission(document, SystemClock().now(), str(document["name"])), namespace)


def named(document: Document) -> Document:
    """With a name that is nobody's: after its program, and a few letters of chance."""
    from gpuyard.runtime.clock import SystemDice

    if document.get("name"):
        return document
    program = str(document["run"]["command"][0]).rpartition("/")[2].lower()
    plain = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in program).strip("-")[:40]
    return document | {"name": f"{plain or 'job'}-{int(SystemDice().random() * 36**5):05x}"}


def submit(documents: Sequence[Document], dry_run: bool, form: str) -> None:
    """Make a Job of each; a dry run only writes what would be made."""

    async def make(jobs: ClusterJobs) -> None:
        namespace, _ = jobs.key("")
        made = [manifests(named(document), namespace) for document in documents]
        if dry_run:
            terminal.write_document([each for one in made for each in one], "yaml" if form == "table" else form)
            return
        for one in made:
            terminal.write(f"{await jobs.submit(one)}\n")

    with_jobs(make)


def run(document: Document, detach: bool, on_interrupt: str) -> int:
    """Make it, and stay: its output, its exit code."""
    name = ""

    async def stay(jobs: ClusterJobs) -> int:
        nonlocal name
        made = manifests(named(document), jobs.key("")[0])
        name = await jobs.submit(made)
        if detach:
            terminal.write(f"{name}\n")
            return 0
        await follow(jobs, name, int(made[0]["spec"]["completions"]))
        ended = await jobs.end(name)
        if ended.phase != "succeeded":
            told = exits.with_code(ended.code)
            terminal.say(f"{name} {ended.phase} {told}{f': {ended.message}' if ended.message else ''}.")
        return ended.code

    try:
        return int(with_jobs(stay))
    except KeyboardInterrupt:
        terminal.say()
        if on_interrupt == "cancel" and name:
            with_jobs(lambda jobs: jobs.cancel(name))
            terminal.say(f"{name} is cancelled.")
        elif name:
            terminal.say(
                f"{name} goes on. `yard logs --kube {name} -f` shows its output, `yard cancel --kube {name}` ends it."
            )
        return INTERRUPTED


async def follow(jobs: ClusterJobs, name: str, tasks: int) -> None:
    """All tasks at once, each line with its task where there are several."""
    told = asyncio.create_task(_say_why(jobs, name))
    try:
        await asyncio.gather(*(_follow(jobs, name, index, tasks > 1, told) for index in range(tasks)))
    finally:
        told.cancel()


async def _say_why(jobs: ClusterJobs, name: str) -> None:
    """While it waits, why; once per change."""
    said = ""
    while True:
        why = await jobs.why(name)
        if why and why != said:
            terminal.say(f"{name} waits: {why}.")
            said = why
        await asyncio.sleep(1.0)


async def _follow(jobs: ClusterJobs, name: str, index: int, titled: bool, told: asyncio.Task[None]) -> None:
    pod = await jobs.started(name, index)
    told.cancel()
    if pod is not None:
        async for part in jobs.output(pod, follow=True):
            _put(part, index if titled else None)


def logs(name: str, follow_it: bool, task: int | None, tail: int | None) -> None:
    """What its tasks have written."""

    async def read(jobs: ClusterJobs) -> None:
        pods = await jobs.pods(name)
        if not pods:
            await jobs.job(name)
            raise Refused(f"{name} has no pods, so nothing was written; `yard why --kube {name}` says why it waits.")
        if task is not None and task >= len(pods):
            raise Refused(f"{name} has no task {task}; it has {len(pods)}, counted from 0.")
        chosen = [(index, pod) for index, pod in enumerate(pods) if task in (None, index)]
        await asyncio.gather(
            *(_read(jobs, pod, index if len(chosen) > 1 else None, follow_it, tail) for index, pod in chosen)
        )

    with_jobs(read)


async def _read(jobs: ClusterJobs, pod: Document, index: int | None, follow_it: bool, tail: int | None) -> None:
    async for part in jobs.output(pod, follow_it, tail):
        _put(part, index)


def _put(content: bytes, index: int | None) -> None:
    """As it is; to a terminal nothing in it that a terminal would obey, for others may have written it."""
    if index is not None:
        content = b"".join(b"%d: %b" % (index, line) for line in content.splitlines(keepends=True))
    if sys.stdout.isatty():
        terminal.write(terminal.safe(content.decode(errors="backslashreplace")))
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def tell(names: Sequence[str], act: Callable[[ClusterJobs, str], Awaitable[str]]) -> None:
    """One word to each; the first that cannot be told is what the command ends with."""

    async def all_of_them(jobs: ClusterJobs) -> None:
        refused: Refused | None = None
        for name in names:
            try:
                terminal.write(f"{name} {await act(jobs, name)}\n")
            except Refused as error:
                if refused is not None:
                    terminal.say(f"error: {refused}")
                refused = error
        if refused is not None:
            raise refused

    if not names:
        raise click.UsageError("Which jobs? On a cluster they are named: NAMESPACE/NAME, or NAME in your own.")
    with_jobs(all_of_them)
