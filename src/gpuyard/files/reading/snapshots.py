"""Snapshot files to the model's `Snapshot`, strict and whole: everything that is wrong is told at once.

Called by the command line, the worlds and the tests. Reading goes in steps: text to data (`documents`), data to
entries key by key (`entries`), entries to values (`fleet`, `jobs`), and a second look across them (`crosscheck`).
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any, TypeVar

from gpuyard.files.format.entries import API_VERSION, BudgetEntry, JobEntry, PoolEntry, ReservationEntry, SnapshotEntry
from gpuyard.files.format.policies import policy_of
from gpuyard.files.format.tables import read_keys
from gpuyard.files.problems import Path, Problems, nearest, shown, unreadable
from gpuyard.files.reading import crosscheck, fleet
from gpuyard.files.reading.jobs import job_of
from gpuyard.files.reading.placements import placements_of
from gpuyard.files.text import documents
from gpuyard.model.job import Job
from gpuyard.model.node import Budget, Node, Pool
from gpuyard.model.outside.collector import collector_resting
from gpuyard.model.queue import ROOT, Queue
from gpuyard.model.snapshot import Reservation, Snapshot

E = TypeVar("E")
M = TypeVar("M")


def read_snapshot(path: pathlib.Path, now: float) -> Snapshot:
    """The moment a file describes; `now` is the present, for files that do not say."""
    return parse_snapshot(documents.read_text(path), str(path), now)


def parse_snapshot(text: str, name: str, now: float) -> Snapshot:
    """The moment a text describes; `name` is what to call the text when it is wrong."""
    with collector_resting():
        document = documents.parse(text, name)
        check_header(document, "Snapshot")
        return snapshot_of(document, now, Problems(name, document.data))


def snapshot_of(document: documents.Document, now: float, problems: Problems) -> Snapshot:
    """The moment that a document describes; it is refused with all that is wrong, noted before or here."""
    with documents.depth_refused(document.name):
        snapshot = _Reading(document.data, now, problems).snapshot()
    problems.refuse_if_any(document.line)
    return snapshot


def check_header(document: documents.Document, kind: str) -> None:
    """What is wrong with apiVersion or kind makes every other complaint pointless."""
    data = document.data
    if not isinstance(data, dict):
        raise unreadable(document.name, f"the file must be a mapping with apiVersion and kind, not {shown(data)}", 1)
    for key, wanted in (("apiVersion", API_VERSION), ("kind", kind)):
        if key not in data:
            near = nearest(key, (str(other) for other in data))
            hint = f"; did you mean it by {near}?" if near else ""
            raise unreadable(document.name, f"the file has no {key}; it must be {wanted}{hint}", 1)
        if data[key] != wanted:
            raise unreadable(document.name, f"{key} must be {wanted}, not {shown(data[key])}", document.line((key,)))


class _Reading:
    """One document on its way to a snapshot. Entries that are wrong are None and keep their place in the list."""

    def __init__(self, data: dict[Any, Any], now: float, problems: Problems) -> None:
        self.data = data
        self.problems = problems
        self.entry = SnapshotEntry(**read_keys(SnapshotEntry, data, (), problems))
        self.now = now if self.entry.now is None else self.entry.now
        self.levels = tuple(level for level in self.entry.topology if level)
        pools: tuple[PoolEntry | None, ...] = self.entry.pools
        self.pools = {pool.name: pool for pool in pools if pool is not None}

    def snapshot(self) -> Snapshot:
        """Values first, then the second look."""
        for section in ("pools", "nodes", "queues", "jobs", "budgets"):
            crosscheck.check_names(self._names(section), section, self.problems)
        fleet.check_levels(self.levels, self.problems)
        pools = self._each("pools", self.entry.pools, self._pool)
        nodes = self._each("nodes", self.entry.nodes, self._node)
        queues = self._queues()
        jobs = self._each("jobs", self.entry.jobs, self._job)
        known = self._known(nodes, queues, jobs)
        self._check_jobs(jobs, known)
        return Snapshot(
            now=self.now,
            topology=self.levels,
            policy=policy_of(self.entry.policy or {}),
            pools=self._all_pools(_whole(pools), _whole(nodes)),
            nodes=_whole(nodes),
            queues=_whole(queues),
            jobs=_whole(jobs),
            budgets=_whole(self._each("budgets", self.entry.budgets, lambda e, at: self._budget(e, at, known))),
            reservations=self._reservations(known),
            memory=self.entry.memory or {},
        )

    def _names(self, section: str) -> list[object]:
        entries = self.data.get(section)
        return [e.get("name") if isinstance(e, dict) else None for e in entries] if isinstance(entries, list) else []

    def _each(self, section: str, entries: tuple[E | None, ...], make: Callable[[E, Path], M]) -> list[M | None]:
        return [None if entry is None else make(entry, (section, place)) for place, entry in enumerate(entries)]

    # --- values ----------------------------------------------------------------------------------

    def _pool(self, entry: Any, at: Path) -> Pool:
        return fleet.pool_of(entry, at, self.levels, self.problems)

    def _node(self, entry: Any, at: Path) -> Node:
        return fleet.in_pool(fleet.node_of(entry, at, self.levels, self.problems), self.pools.get(entry.pool))

    def _job(self, entry: JobEntry, at: Path) -> Job:
        return job_of(entry, at, self.now, self.problems)

    def _queues(self) -> list[Queue | None]:
        if not self.entry.queues:
            return [fleet.ONLY_QUEUE]
        queues = self._each("queues", self.entry.queues, lambda e, at: fleet.queue_of(e, at, self.problems))
        parents = {queue.name: (queue.parent, ("queues", place)) for place, queue in enumerate(queues) if queue}
        faulty = {name for name in self._names("queues") if isinstance(name, str)} - parents.keys()
        fleet.check_tree({**parents, **dict.fromkeys(sorted(faulty), (ROOT, ()))}, self.problems)
        return queues

    def _budget(self, entry: BudgetEntry, at: Path, known: crosscheck.Known) -> Budget:
        bounds = (entry.min_available, entry.max_unavailable, entry.allowed)
        if sum(bound is not None for bound in bounds) != 1:
            self.problems.blame(at, "must have one of min_available, max_unavailable and allowed")
        for job in entry.jobs:
            if known.jobs and job not in known.jobs:  # a fleet file speaks of jobs to come
                self.problems.blame((*at, "jobs"), f"covers job {job}, which does not exist", job, known.jobs)
        covers = tuple((job, group) for job, groups in entry.covers for group in groups)
        return Budget(entry.name, entry.jobs, *bounds, covers)

    def _all_pools(self, pools: tuple[Pool, ...], nodes: tuple[Node, ...]) -> tuple[Pool, ...]:
        """Those in the file, then those that nodes name."""
        described = {pool.name for pool in pools}
        named = sorted({node.pool for node in nodes if node.pool} - described)
        return (*pools, *(Pool(name) for name in named))

    # --- the second look -------------------------------------------------------------------------

    def _known(self, nodes: list[Node | None], queues: list[Queue | None], jobs: list[Job | None]) -> crosscheck.Known:
        names = {section: self._names(section) for section in ("nodes", "queues", "jobs")}
        whole_queues = _whole(queues)
        return crosscheck.Known(
            levels=self.levels,
            nodes={name: None for name in names["nodes"] if isinstance(name, str)} | {n.name: n for n in _whole(nodes)},
            queues=frozenset(name for name in names["queues"] if isinstance(name, str))
            | frozenset(queue.name for queue in whole_queues),
            inner_queues=frozenset(queue.parent for queue in whole_queues if queue.parent),
            priorities=frozenset(policy_of(self.entry.policy or {}).named_priorities()),
            jobs={name: None for name in names["jobs"] if isinstance(name, str)} | {j.name: j for j in _whole(jobs)},
        )

    def _check_jobs(self, jobs: list[Job | None], known: crosscheck.Known) -> None:
        devices = crosscheck.Devices(known, self.problems)
        for place, job in enumerate(jobs):
            if job is not None:
                crosscheck.check_job(job, ("jobs", place), known, self.problems)
                devices.hold(job, ("jobs", place))

    def _reservations(self, known: crosscheck.Known) -> tuple[Reservation, ...]:
        devices, seen = crosscheck.Devices(known, self.problems), set[str]()
        made = []
        for place, entry in enumerate(self.entry.reservations):
            if entry is not None:
                at: Path = ("reservations", place)
                if entry.job in seen:
                    self.problems.add((*at, "job"), f"job {entry.job} has a reservation already")
                seen.add(entry.job)
                made.append(self._reservation(entry, at, devices))
        return tuple(made)

    def _reservation(self, entry: ReservationEntry, at: Path, devices: crosscheck.Devices) -> Reservation:
        jobs = devices.known.jobs
        if entry.job not in jobs:
            self.problems.blame((*at, "job"), f"is for job {entry.job}, which does not exist", entry.job, jobs)
        job = jobs.get(entry.job)
        if job is None:
            return Reservation(entry.job)
        groups = job.task_groups()
        placements = placements_of(entry.placements, groups, (*at, "placements"), self.problems)
        requests = {group.name: group.request for group in groups}
        for number, placement in enumerate(placements):
            devices.find(placement, requests[placement.group], (*at, "placements", number))
        return Reservation(entry.job, placements, entry.until)


def _whole(values: list[M | None]) -> tuple[M, ...]:
    return tuple(value for value in values if value is not None)
