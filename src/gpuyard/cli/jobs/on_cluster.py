"""`--kube` of `run`, `submit`, `logs`, `attach`, `cancel`, `hold` and `release`: the same words to a cluster's Jobs.

Called by those commands. What they may do is what the caller's own rights on the cluster say.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from gpuyard.cli.console import exits, options, terminal
from gpuyard.cli.jobs.each_told import EachTold
from gpuyard.model.errors import Conflict, NotFound, Refused

if TYPE_CHECKING:
    from gpuyard.runtime.clustered.job_calls import ClusterJobs

Document = dict[str, Any]
INTERRUPTED = 130
SHOWN = 10
"""So many lines of what was written before are shown to whoever comes later."""


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


async def manifests(jobs: ClusterJobs, document: Document) -> list[Document]:
    """What a job file's content is on a cluster."""
    from gpuyard.files import read_submission
    from gpuyard.runtime.clock import SystemClock
    from gpuyard.runtime.clustered.submitting import manifests_of

    asked = read_submission(document, SystemClock().now(), str(document["name"]))
    classes = await jobs.priority_classes() if isinstance(asked.job.priority, int) else {}
    return manifests_of(asked, jobs.key("")[0], classes=classes)


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
        made = [await manifests(jobs, named(document)) for document in documents]
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
        made = await manifests(jobs, named(document))
        name = await jobs.submit(made)
        if detach:
            terminal.write(f"{name}\n")
            return 0
        return await follow(jobs, name, range(int(made[0]["spec"]["completions"])))

    try:
        return int(with_jobs(stay))
    except KeyboardInterrupt:
        terminal.say()
        if on_interrupt == "cancel" and name:
            with_jobs(lambda jobs: jobs.cancel(name))
            terminal.say(f"{name} is cancelled.")
        elif name:
            _say_it_goes_on(name)
        return INTERRUPTED


def attach(name: str, task: int | None) -> int:
    """With a Job that is there: what its tasks write from now on, and how it ends."""
    from gpuyard.runtime.clustered.job_calls import is_over

    async def stay(jobs: ClusterJobs) -> int:
        job = await jobs.job(name)
        if is_over(job):
            raise Conflict(f"{name} has ended; `yard logs --kube {name}` shows what it wrote.")
        tasks = int(job["spec"].get("completions") or job["spec"].get("parallelism") or 1)
        if task is not None and task >= tasks:
            raise NotFound(f"{name} has no task {task}; it has {tasks}, counted from 0.")
        terminal.say(f"Following {name}; Ctrl-C leaves it running.")
        return await follow(jobs, name, range(tasks) if task is None else (task,), SHOWN)

    try:
        return int(with_jobs(stay))
    except KeyboardInterrupt:
        terminal.say()
        _say_it_goes_on(name)
        return INTERRUPTED


def _say_it_goes_on(name: str) -> None:
    terminal.say(f"{name} goes on. `yard logs --kube {name} -f` shows its output, `yard cancel --kube {name}` ends it.")


async def follow(jobs: ClusterJobs, name: str, tasks: Sequence[int], tail: int | None = None) -> int:
    """These tasks at once, each line with its task where there are several; then how the Job ended: its code."""
    told = asyncio.create_task(_say_why(jobs, name))
    try:
        await asyncio.gather(*(_follow(jobs, name, index, len(tasks) > 1, told, tail) for index in tasks))
    finally:
        told.cancel()
    ended = await jobs.end(name)
    if ended.phase != "succeeded":
        code = exits.with_code(ended.code)
        terminal.say(f"{name} {ended.phase} {code}{f': {ended.message}' if ended.message else ''}.")
    return ended.code


async def _say_why(jobs: ClusterJobs, name: str) -> None:
    """While it waits, why; once per change."""
    said = ""
    while True:
        why = await jobs.why(name)
        if why and why != said:
            terminal.say(f"{name} waits: {why}.")
            said = why
        await asyncio.sleep(1.0)


async def _follow(
    jobs: ClusterJobs, name: str, index: int, titled: bool, told: asyncio.Task[None], tail: int | None
) -> None:
    """Also of the pod that comes in its stead, after it gave way or failed; until the Job has ended."""
    seen: set[str] = set()
    while (pod := await jobs.started(name, index, seen)) is not None:
        told.cancel()
        async for part in jobs.output(pod, follow=True, tail=None if seen else tail):
            _put(part, index if titled else None)
        seen.add(pod["metadata"]["uid"])


def logs(name: str, follow_it: bool, task: int | None, tail: int | None) -> None:
    """What its tasks have written."""

    async def read(jobs: ClusterJobs) -> None:
        pods = await jobs.numbered(name)
        if not pods:
            await jobs.job(name)
            raise Refused(f"{name} has no pods, so nothing was written; `yard why --kube {name}` says why it waits.")
        chosen = [(index, pod) for index, pod in pods.items() if task in (None, index)]
        if not chosen:
            raise Refused(f"{name} has no pod for a task {task}, so nothing was written; tasks are counted from 0.")
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
    """One word to each."""

    async def all_of_them(jobs: ClusterJobs) -> None:
        told = EachTold()
        for name in names:
            with told.one():
                terminal.write(f"{name} {await act(jobs, name)}\n")
        told.end()

    if not names:
        raise click.UsageError("Which jobs? On a cluster they are named: NAMESPACE/NAME, or NAME in your own.")
    with_jobs(all_of_them)
