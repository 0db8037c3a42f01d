"""What grows is cut, when a yard begins and ever after: old events, used keys, records of jobs that ended, the output
of those that ended long ago, and of all that ended whatever is too much.

`clear_away` is called once at the start, before anything is begun; a `Housekeeper` goes on in a thread of its own, in
bites so small that nobody waits for it. The ledger stays: it is small, and reports ask for it.
"""

from __future__ import annotations

import contextlib
import math
import os
import pathlib
import shutil
import threading
from collections import deque

from gpuyard.worlds.local.attempts.desk import Desk
from gpuyard.worlds.local.launching.launch import Supervisors, is_number
from gpuyard.worlds.local.ports import Stray
from gpuyard.worlds.local.state import cutting
from gpuyard.worlds.local.state.store import Batch, Store, StoreError

EVERY_S = 600.0
PAUSE_S = 0.05
BITE = 1_000
"""Events that are cut at once, and jobs that are asked about."""
GOING = "going"
"""The folder for output that is about to be removed: a crash in between leaves nothing half there."""
SEE_OFF_S = 10.0
"""How long a yard that comes up waits for what it ends; what takes longer keeps its GPUs, and nobody waits for it."""
EVENTS_KEPT = 100_000
RECORDS_KEPT = 100_000
"""Jobs that ended and are still known, each with its attempts: by number, so that no clock has a say in it."""
KEYS_S = 7 * 86400.0
"""An idempotency key is for retries, and nobody retries for longer."""
OUTPUT_S = 30 * 86400.0


def clear_away(store: Store, launcher: Supervisors, desk: Desk) -> list[Stray]:
    """Cut what is too long, and end what runs that the state does not know; returns what of that takes its time."""
    now = desk.now()
    shutil.rmtree(store.path.parent / GOING, ignore_errors=True)
    batch = Batch()
    batch.add("DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - ?", (EVENTS_KEPT,))
    batch.add("DELETE FROM keys WHERE at < ?", (now - KEYS_S,))
    store.defer(batch)
    live = {
        (entry.id, attempt.number)
        for entry in desk.book.active()
        for attempt in (entry.attempt, entry.following)
        if attempt is not None
    }
    old = {row[0] for row in store.rows("SELECT id FROM jobs WHERE ended < ?", (now - OUTPUT_S,))}
    for path in launcher.strays():
        desk.aside.move(path)
    strays = launcher.clear_away(live, old)
    launcher.see_off(SEE_OFF_S)
    return strays


class Housekeeper:
    """Cuts what grows while the yard runs."""

    def __init__(self, desk: Desk, every: float, output_bytes: int = 0) -> None:
        self._desk = desk
        self._output_bytes = output_bytes
        """So much output of ended jobs is kept; 0 is all of it, until it is old."""
        self._every = max(every, PAUSE_S)
        self._folder = desk.store.path.parent
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="housekeeper", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Leave off; what is left is cut another time."""
        self._over.set()
        self._thread.join(10.0)

    def _work(self) -> None:
        while not self._over.wait(self._every):
            with contextlib.suppress(StoreError, OSError):  # a disk that is full today may not be tomorrow
                self.go_round()

    def go_round(self) -> None:
        """All that is due, bite by bite."""
        while (self._cut_events() or self._cut_records()) and not self._over.wait(PAUSE_S):
            pass
        with self._desk.store.batch() as batch:
            batch.add("DELETE FROM keys WHERE at < ?", (self._desk.now() - KEYS_S,))
        for job in self._old():
            if self._over.wait(PAUSE_S):
                return
            self._remove(job, self._folder / "runs" / str(job))
        for job in self._beyond():
            if self._over.wait(PAUSE_S):
                return
            self._remove(job, self._folder / "runs" / str(job) / "log")  # what else it left is not output

    def _cut_events(self) -> bool:
        """Whether there is more to cut."""
        ((first, last),) = self._desk.store.rows("SELECT min(id), max(id) FROM events")
        if first is None or first > last - EVENTS_KEPT:
            return False
        with self._desk.store.batch() as batch:
            batch.add("DELETE FROM events WHERE id <= ?", (min(first + BITE, last - EVENTS_KEPT),))
        return True

    def _cut_records(self) -> bool:
        """Whether there is more to cut. Under the lock: a job that is begun again meanwhile is no ended one."""
        store, book = self._desk.store, self._desk.book
        with self._desk.lock:
            here = {entry.id for entry in book.ended} | book.entries.keys()
            gone = [job for job in cutting.beyond(store, RECORDS_KEPT, BITE) if job not in here]
            if not gone:
                return False
            with store.batch() as batch:
                cutting.cut(store, batch, gone)
        for job in gone:
            self._remove(job, self._folder / "runs" / str(job))
        return True

    def _old(self) -> list[int]:
        """Jobs that ended long ago and whose output is still there."""
        return [job for job, _ in self._ended("j.ended < ?", self._desk.now() - OUTPUT_S)]

    def _beyond(self) -> list[int]:
        """Jobs whose output is too much in all: of whoever has most the oldest first, so nobody's is another's loss."""
        if not self._output_bytes:
            return []
        kept: dict[str, deque[tuple[int, int]]] = {}
        for job, owner in self._ended("j.ended < ?", math.inf):
            size = _bytes_below(self._folder / "runs" / str(job) / "log")
            if size:
                kept.setdefault(owner, deque()).append((job, size))
        sums = {owner: sum(size for _, size in theirs) for owner, theirs in kept.items()}
        going: list[int] = []
        while sum(sums.values()) > self._output_bytes:
            most = max(sums, key=lambda owner: sums[owner])
            job, size = kept[most].popleft()
            sums[most] -= size
            going.append(job)
        return going

    def _ended(self, where: str, parameter: float) -> list[tuple[int, str]]:
        """Jobs that ended and have a folder, with whose they are, the oldest first."""
        there = [int(name) for name in os.listdir(self._folder / "runs") if is_number(name)]
        found: list[tuple[float, int, str]] = []
        for at in range(0, len(there), BITE):
            numbers = ",".join(map(str, there[at : at + BITE]))
            asked = (
                "SELECT j.ended, j.id, t.uid || ':' || t.user FROM jobs j JOIN templates t ON t.id = j.template "
                f"WHERE {where} AND j.id IN ({numbers})"
            )
            found += [(row[0], row[1], row[2]) for row in self._desk.store.rows(asked, (parameter,))]
        return [(job, owner) for _, job, owner in sorted(found)]

    def _remove(self, job: int, path: pathlib.Path) -> None:
        going = self._folder / GOING
        going.mkdir(mode=0o700, exist_ok=True)
        with self._desk.lock:
            if job in self._desk.book.entries:  # its owner has let it begin again
                return
            with contextlib.suppress(FileNotFoundError):
                os.rename(path, going / str(job))
        shutil.rmtree(going / str(job), ignore_errors=True)


def _bytes_below(folder: pathlib.Path) -> int:
    """What the files in there take, as far as they can be seen."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(path, name)).st_size
    return total
