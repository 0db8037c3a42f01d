"""The state of the embedded yard in one SQLite file: the only door to it.

Called by `world`, the journal and the embedded yard. What is accepted is on disk before anybody is told (WAL,
`synchronous=FULL`); writers that come together share one commit. It knows rows, not what they mean.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from gpuyard.model.errors import Refused
from gpuyard.worlds.local.ports import FaultPoint, no_fault
from gpuyard.worlds.local.schema import MIGRATIONS

Row = tuple[Any, ...]
FILE = "yard.db"
RESTORED = "restored"
"""The boot of attempts that a backup knows as running: none that any machine ever has."""
CACHE_KIB = 16 * 1024
NOBODY = ("", 0, "")
"""Whose an event is that is about no job."""


class StoreError(Refused):
    """The state cannot be read or written; the message says what, why and what next."""


class Batch:
    """Changes that are written together or not at all."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, list[Row]]] = []
        self.events = 0
        self.done = False
        self.error: sqlite3.Error | None = None

    def add(self, sql: str, *rows: Row) -> None:
        """One statement for one row or many; the same statement repeated becomes one call."""
        if self.changes and self.changes[-1][0] == sql:
            self.changes[-1][1].extend(rows)
        else:
            self.changes.append((sql, list(rows)))

    def event(self, at: float, kind: str, whose: tuple[str, int, str], document: str) -> None:
        """Something people may want to follow; it gets the next number. `whose` is its job's key and number, and the
        identity of their owner: a name that is used again does not inherit what happened under it."""
        self.events += 1
        self.add(
            "INSERT INTO events(at, kind, job, number, owner, document) VALUES (?, ?, ?, ?, ?, ?)",
            (at, kind, *whose, document),
        )


class Store:
    """One connection, one writer. Every method may be called from any thread."""

    def __init__(self, path: pathlib.Path, fault: FaultPoint = no_fault) -> None:
        self.path = path
        self._fault = fault
        self._lock = threading.RLock()
        self._queue_lock = threading.Lock()
        self._queue: list[Batch] = []
        self._deferred: list[Batch] = []
        self._news = threading.Condition()
        self._connection = _open(path)
        self.last_event = int(self.rows("SELECT coalesce(max(id), 0) FROM events")[0][0])

    # --- writing ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def batch(self) -> Iterator[Batch]:
        """Collect changes; they are on disk when the block ends without an error."""
        batch = Batch()
        yield batch
        if batch.changes:
            self.commit(batch)

    def commit(self, batch: Batch) -> None:
        """Write a batch, and with it whatever else waits to be written: one sync for all who wait."""
        with self._queue_lock:
            self._queue.append(batch)
        with self._lock:
            if not batch.done:
                self._commit_waiting()
        if batch.error is not None:
            raise _told(batch.error, self.path) from batch.error

    def defer(self, batch: Batch) -> None:
        """Write with the next commit: for what a crash may forget, because the world would tell it again."""
        with self._queue_lock:
            self._deferred.append(batch)

    @property
    def has_deferred(self) -> bool:
        """Whether anything waits for the next commit."""
        return bool(self._deferred)

    def flush(self) -> None:
        """Write what was deferred."""
        if self._deferred:
            self.commit(Batch())

    def _commit_waiting(self) -> None:
        with self._queue_lock:
            deferred, batches = self._deferred, [*self._deferred, *self._queue]
            self._deferred, self._queue = [], []
        self._fault("before-commit")
        try:
            self._write(batches)
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            with self._queue_lock:
                self._deferred = deferred + self._deferred
            for batch in batches:
                batch.error = error
        self._fault("after-commit")
        for batch in batches:
            batch.done = True
        self._announce(sum(batch.events for batch in batches if batch.error is None))

    def _write(self, batches: Sequence[Batch]) -> None:
        cursor = self._connection.cursor()
        cursor.execute("BEGIN IMMEDIATE")
        for batch in batches:
            cursor.execute("SAVEPOINT batch")
            try:
                for sql, rows in batch.changes:
                    cursor.executemany(sql, rows)
            except sqlite3.IntegrityError as error:
                # One writer's mistake is not the others'.
                cursor.execute("ROLLBACK TO batch")
                batch.error = error
            cursor.execute("RELEASE batch")
        cursor.execute("COMMIT")

    def _announce(self, events: int) -> None:
        if events:
            newest = int(self._connection.execute("SELECT max(id) FROM events").fetchone()[0])
            with self._news:
                self.last_event = newest
                self._news.notify_all()

    # --- reading ---------------------------------------------------------------------------------

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """What a query finds."""
        with self._lock:
            try:
                return self._connection.execute(sql, parameters).fetchall()
            except sqlite3.Error as error:
                raise _told(error, self.path) from error

    def wait_news(self, after: int, timeout: float) -> bool:
        """Block until there is an event newer than `after`; False on time-out."""
        with self._news:
            return self._news.wait_for(lambda: self.last_event > after, timeout)

    def wake_waiting(self) -> None:
        """Let those who wait for news look again, as when the yard closes."""
        with self._news:
            self._news.notify_all()

    # --- the file --------------------------------------------------------------------------------

    def backup(self, path: pathlib.Path) -> int:
        """A consistent copy in a new file; its size."""
        if path.exists():
            raise StoreError(f"{path} exists already; a backup goes to a new file")
        try:
            with self._lock, contextlib.closing(sqlite3.connect(path)) as copy:
                self._connection.backup(copy)
            path.chmod(0o600)
            return path.stat().st_size
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"cannot write the backup {path}: {error}; choose another place") from error

    def close(self) -> None:
        """Write what is left and let go of the file."""
        with self._lock:
            self.flush()
            self._connection.close()


def restore(backup: pathlib.Path, path: pathlib.Path) -> None:
    """Put a backup in the place of a state that nobody holds; what was there is kept beside it."""
    if not backup.is_file():
        raise StoreError(f"there is no backup {backup}; name the file that the backup was written to")
    with contextlib.closing(_open(backup)):
        pass  # opening checks it: a broken backup must not replace anything
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for suffix in ("", "-wal", "-shm"):
        old = path.with_name(path.name + suffix)
        if old.exists():
            os.replace(old, path.with_name(f"{path.name}.before-restore{suffix}"))
    with contextlib.closing(sqlite3.connect(backup)) as source, contextlib.closing(sqlite3.connect(path)) as target:
        source.backup(target)
        # What ran when the backup was made is not what runs now: those attempts are over, whatever their files say.
        target.execute("UPDATE attempts SET boot = ? WHERE state != 'ended'", (RESTORED,))
        target.commit()
    path.chmod(0o600)


def _open(path: pathlib.Path) -> sqlite3.Connection:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = not path.exists()
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10.0)
        if made:
            path.chmod(0o600)
    except (sqlite3.Error, OSError) as error:
        raise _told(error, path) from error
    try:
        _prepare(connection, path)
    except sqlite3.Error as error:
        connection.close()
        raise _told(error, path) from error
    except StoreError:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: pathlib.Path) -> None:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{path} was written by a newer GPUYard (its version {version}, ours {len(MIGRATIONS)}); "
            "install that one, or restore an older backup"
        )
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
    wrong = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if wrong != "ok":
        raise StoreError(_corrupt(path, str(wrong)))
    for number in range(version, len(MIGRATIONS)):
        script = f"BEGIN IMMEDIATE; {MIGRATIONS[number]} PRAGMA user_version={number + 1}; COMMIT;"
        connection.executescript(script)


def _told(error: Exception, path: pathlib.Path) -> StoreError:
    """What went wrong, in words that lead somewhere."""
    text = str(error)
    if isinstance(error, sqlite3.IntegrityError):
        return StoreError(f"the change contradicts what is kept: {text}")
    if "readonly" in text or isinstance(error, PermissionError) or getattr(error, "errno", None) == 30:
        return StoreError(
            f"the state folder {path.parent} cannot be written: {text}; give rights to it, or name another"
        )
    if "full" in text or getattr(error, "errno", None) == 28:
        return StoreError(f"the disk of {path.parent} is full: nothing new can be accepted; free some space on it")
    if "malformed" in text or "not a database" in text:
        return StoreError(_corrupt(path, text))
    if "unable to open" in text:
        return StoreError(f"{path} cannot be opened: {text}; check that the folder exists and is yours")
    return StoreError(f"the state in {path} cannot be used: {text}")


def _corrupt(path: pathlib.Path, text: str) -> str:
    return f"{path} is damaged ({text}); put a backup in its place with `yard restore`, or move the file away"
