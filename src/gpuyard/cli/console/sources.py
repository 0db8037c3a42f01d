"""Where a command's input comes from: the running yard, snapshot files, stdin, and the examples in the package.

Called by the commands. Reading and checking is `files`' work; this only opens the door and says who knocked.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gpuyard.cli.console import words
from gpuyard.cli.console.hints import nearest
from gpuyard.cli.console.options import KUBE
from gpuyard.client import places
from gpuyard.model.errors import NotFound, Refused
from gpuyard.model.job import Job
from gpuyard.model.outside.ports import Clock
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.clock import SystemClock

if TYPE_CHECKING:
    from gpuyard.kube.credentials import KubeAccess

STDIN = "-"


@dataclass(frozen=True)
class ReadSnapshot:
    """A snapshot that was read, and how long that took."""

    snapshot: Snapshot
    read_ms: float


class Unusable(Refused):
    """A file that cannot be read as a snapshot; `problems` has one sentence each."""

    def __init__(self, path: str, problems: tuple[str, ...]) -> None:
        super().__init__("\n       ".join(problems))
        self.path = path
        self.problems = problems


def read(path: str, clock: Clock | None = None) -> ReadSnapshot:
    """Read and check a snapshot, of the running yard where no file is named; `Unusable` says what is wrong with it."""
    from gpuyard import files

    clock = clock or SystemClock()
    begun = clock.monotonic()
    try:
        snapshot = _read(path, clock.now())
    except files.Unreadable as unreadable:
        raise Unusable(path, tuple(str(unreadable).splitlines())) from None
    return ReadSnapshot(snapshot, (clock.monotonic() - begun) * 1000)


def job_named(snapshot: Snapshot, name: str, path: str = "") -> Job:
    """The job of that name; `NotFound` with the nearest one otherwise. `path` is where the snapshot came from."""
    found = [job for job in snapshot.jobs if job.name == name]
    found = found or [job for job in snapshot.jobs if job.name.endswith(f"/{name}")]  # a cluster's, by its last name
    if len(found) == 1:
        return found[0]
    if found:
        named = ", ".join(job.name for job in found[:4])
        raise NotFound(f"There are {words.counted(len(found), 'job')} of the name '{name}': {named}.")
    hint = nearest(name, (job.name for job in snapshot.jobs))
    place, flag = ("on the cluster", " --kube") if path == KUBE else ("in the snapshot", "")
    raise NotFound(f"There is no job '{name}' {place}.{hint or f' `yard jobs{flag}` lists them.'}")


def examples() -> list[Path]:
    """The example snapshots: those in the package, else those of the clone that this runs from."""
    package = Path(__file__).resolve().parents[2]
    for folder in (package / "examples", package.parent.parent / "examples"):
        found = sorted(folder.glob("*.yaml"))
        if found:
            return found
    return []


def _read(path: str, now: float) -> Snapshot:
    from gpuyard import files

    if not path:
        return live_snapshot(now)
    if path == KUBE:
        return cluster_snapshot(now)
    if path == STDIN:
        return files.parse_snapshot(sys.stdin.read(), "stdin", now)
    return files.read_snapshot(Path(path), now)


def cluster_snapshot(now: float) -> Snapshot:
    """The cluster that kubectl would ask, read and left alone."""
    try:
        from gpuyard.runtime.clustered import scheduler
    except ModuleNotFoundError as missing:
        raise Refused(f"{missing.name} is not installed, which clusters need; `pip install 'gpuyard[kube]'`") from None
    from gpuyard import files
    from gpuyard.runtime.clock import SystemDice

    access = scheduler.found()
    if url := os.environ.get(places.URL, ""):
        return _told_by_yard(access, url, now)
    site = files.parse_snapshot('{"apiVersion": "gpuyard.dev/v1", "kind": "Snapshot"}', "the site", now)
    return scheduler.read_cluster(access, site, SystemClock(), SystemDice())


def _told_by_yard(access: KubeAccess, url: str, now: float) -> Snapshot:
    """The moment as far as the caller's own token lets them see it, by the yard's API on the cluster."""
    from gpuyard import files
    from gpuyard.client import Client
    from gpuyard.client.places import Address
    from gpuyard.kube import credentials

    parts = urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "::1", "localhost"):
        raise Refused(
            f"Your token of the cluster is not sent to {url}, where anybody on the way could read it: https://."
        )
    address = Address(
        url=url.rstrip("/"),
        token=credentials.token_of(access, SystemClock()),
        certificate=os.environ.get(places.CERTIFICATE, ""),
    )
    with Client(address) as client:
        return files.parse_snapshot(json.dumps(client.snapshot()), url, now)


def live_snapshot(now: float) -> Snapshot:
    """The running yard's moment, read as the file it would be."""
    from gpuyard import files
    from gpuyard.client import Client

    with Client() as client:
        return files.parse_snapshot(json.dumps(client.snapshot()), "the running yard", now)
