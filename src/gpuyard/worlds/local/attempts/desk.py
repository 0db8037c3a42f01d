"""Where the parts of the local world meet: one lock, one book, one batch of changes at a time.

A change is made in memory, written, and only then carried out: what has an effect outside (a supervisor started, a task
told to stop) waits until its row is on disk. If the disk refuses, effects wait until it no longer does.
"""

from __future__ import annotations

import contextlib
import errno
import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from gpuyard.model.events import Event, JobProgressed, TasksAssigned, TasksRunning
from gpuyard.model.node import Node, Pool
from gpuyard.model.outside.ports import Clock
from gpuyard.worlds.local.launching.holdings import Holdings
from gpuyard.worlds.local.launching.orders import Surroundings
from gpuyard.worlds.local.ports import DeviceKeeper, Launcher, NoKeeper
from gpuyard.worlds.local.state.aside import Aside
from gpuyard.worlds.local.state.book import Book, named, save_attempt, save_job, save_tasks
from gpuyard.worlds.local.state.numbers import Numbers
from gpuyard.worlds.local.state.records import Attempt, Entry, Task
from gpuyard.worlds.local.state.reserve import DiskReserve
from gpuyard.worlds.local.state.store import NOBODY, Batch, Store, StoreError

RETRY_S = 1.0
"""How often a disk that refused is asked again."""
SCARCE = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EROFS))
"""What is short now may be there later."""


class Desk:
    """Shared by gates, life and world; `change` is the only way to alter anything."""

    def __init__(self, store: Store, launcher: Launcher, clock: Clock, around: Surroundings) -> None:
        self.store = store
        self.launcher = launcher
        self.around = around
        self.lock = threading.RLock()
        self.book = Book()
        self.nodes: dict[str, Node] = {}
        self.pools: dict[str, Pool] = {}
        self.holdings = Holdings()
        self.aside = Aside(store.path.parent)
        self.numbers = Numbers(store.path.parent)
        self.events: list[Event] = []
        """For the brain, in the order in which things happened."""
        self.trouble = ""
        """What the disk said when it refused last; empty when it is well."""
        self.keeper: DeviceKeeper = NoKeeper()
        self.reserve = DiskReserve(store.path.parent)
        self._clock = clock
        self._batch: Batch | None = None
        self._effects: list[Callable[[], None]] = []
        self._carrying = False

    def now(self) -> float:
        """The present, to the microsecond: what is written down reads back equal."""
        return round(self._clock.now(), 6)

    def monotonic(self) -> float:
        """For waiting and pacing, which nobody who sets the clock may disturb."""
        return self._clock.monotonic()

    @property
    def has_news(self) -> bool:
        """Whether the brain should hear soon: that what it planned has begun, and goes on, can wait."""
        return any(not isinstance(event, TasksAssigned | TasksRunning | JobProgressed) for event in self.events)

    @contextlib.contextmanager
    def change(self) -> Iterator[Batch]:
        """A set of changes that belong together; inside another one it joins that."""
        with self.lock:
            if self._batch is not None:
                yield self._batch
                return
            self._batch = Batch()
            try:
                yield self._batch
            finally:
                batch, self._batch = self._batch, None
                self._settle(batch)

    def _settle(self, batch: Batch) -> None:
        if self.trouble:  # what came before is not on disk yet, and nothing may overtake it
            self.store.defer(batch)
            return
        try:
            if batch.changes:
                self._commit(batch)
        except StoreError as error:
            self.trouble = str(error)
            self.store.defer(batch)
            return
        self._all_is_written()

    def _all_is_written(self) -> None:
        self.book.leaving.clear()
        self._carry_out()

    def _commit(self, batch: Batch) -> None:
        """What happened and what was stopped is written with the last room there is; new work never gets at that."""
        try:
            self.store.commit(batch)
        except StoreError:
            if not self.reserve.give_up():
                raise
            batch.error, batch.done = None, False
            self.store.commit(batch)

    def unwritten(self) -> str:
        """Why what was changed is not on disk yet; empty if it is."""
        return self.trouble if self.store.has_deferred else ""

    def retry(self) -> None:
        """Ask a disk that refused again."""
        with self.lock:
            try:
                self.store.flush()
            except StoreError as error:
                self.trouble = str(error)
                return
            self.trouble = ""
            self.reserve.put_by()
            self._all_is_written()

    def _carry_out(self) -> None:
        """All of them: what one cannot do for want of room keeps no other from being done, and is tried again.

        What an effect leads to comes after it and not inside it: a chain of ten thousand jobs, of which each ends the
        next, is as long as it likes.
        """
        if self._carrying:
            return
        self._carrying = True
        again: list[Callable[[], None]] = []
        try:
            while self._effects and not (again or self.trouble):
                effects, self._effects = deque(self._effects), []
                try:
                    while effects:
                        self._attempt(effects.popleft(), again)
                finally:
                    self._effects = [*effects, *self._effects]
        finally:
            self._carrying = False
            self._effects = again + self._effects

    def _attempt(self, effect: Callable[[], None], again: list[Callable[[], None]]) -> None:
        try:
            effect()
        except OSError as error:
            if error.errno not in SCARCE:
                raise
            self.trouble = f"what was decided cannot be carried out yet: {error}"
            again.append(effect)

    def then(self, effect: Callable[[], None]) -> None:
        """Do this once the change is on disk."""
        self._effects.append(effect)

    def known(self, key: str) -> Entry | None:
        """A job by its key: as it stands, also where the store does not know that yet. One that the store has and the
        book has not, and that is not over, is about to be accepted: nobody was told of it."""
        entry = self.book.find(key) or self.book.leaving.get(key)
        if entry is not None:
            return entry
        written = named(self.store, key)
        return written if written is not None and written.over else None

    # --- what is written -------------------------------------------------------------------------

    @property
    def batch(self) -> Batch:
        """The change being made."""
        assert self._batch is not None
        return self._batch

    def keep(self, entry: Entry) -> None:
        """Write a job as it stands."""
        save_job(self.batch, entry)

    def keep_attempt(self, entry: Entry, attempt: Attempt, *tasks: Task) -> None:
        """Write an attempt as it stands, and those of its tasks that changed."""
        save_attempt(self.batch, entry, attempt)
        if tasks:
            save_tasks(self.batch, entry, attempt, tasks)

    def say(self, kind: str, entry: Entry | None = None, **document: Any) -> None:
        """Tell those who follow the yard's events."""
        self.note(self.batch, kind, entry, **document)

    def note(self, batch: Batch, kind: str, entry: Entry | None = None, **document: Any) -> None:
        """The same in a batch of the caller's."""
        if entry is not None:
            document = {
                "phase": entry.phase.value,
                "queue": entry.template.job.queue,
                "user": entry.owner.user,
            } | document
        text = json.dumps({key: value for key, value in document.items() if value not in ("", None)})
        whose = (entry.key, entry.id, entry.owner.identity) if entry is not None else NOBODY
        batch.event(self.now(), kind, whose, text)
