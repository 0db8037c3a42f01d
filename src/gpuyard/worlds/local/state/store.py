"""The state of the embedded yard in one SQLite file: the only door to it.

Called by `world`, the journal and the embedded yard. What is accepted is on disk before anybody is told (WAL,
`synchronous=FULL`); writers that come together share one commit. It knows rows, not what they mean.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import os
import pathlib
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from gpuyard.model.errors import Refused
from gpuyard.worlds.local.ports import FaultPoint, no_fault
from gpuyard.worlds.local.state.schema import APPLICATION, MARKED, MIGRATIONS

Row = tuple[Any, ...]
FILE = "yard.db"
RESTORED = "restored"
"""The boot of attempts that a backup knows as running: none that any machine ever has."""
CACHE_KIB = 16 * 1024
NOBODY = ("", 0, "")
"""Whose an event is that is about no job."""
GO_ON = "put a backup in its place with `yard restore`, or move the file away to begin anew"
TABLES = frozenset(("templates", "jobs", "attempts", "tasks", "keys", "events", "turns", "ledger", "facts"))


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
        try:
            _make_private(path)
        except FileExistsError:
            raise StoreError(f"{path} exists already; a backup goes to a new file") from None
        except (OSError, ValueError) as error:
            raise StoreError(f"cannot write the backup {str(path)!r}: {error}; choose another place") from error
        try:
            with self._lock, contextlib.closing(sqlite3.connect(path)) as copy:
                self._connection.backup(copy)
            return path.stat().st_size
        except (sqlite3.Error, OSError) as error:
            path.unlink(missing_ok=True)
            raise StoreError(f"cannot write the backup {path}: {error}; choose another place") from error

    def close(self) -> None:
        """Write what is left and let go of the file."""
        with self._lock:
            self.flush()
            self._connection.close()


def restore(backup: pathlib.Path, path: pathlib.Path, now: float) -> None:
    """Put a backup in the place of a state that nobody holds (the caller holds it); what was there is kept."""
    fresh = path.with_name(f"{path.name}.restoring")
    try:
        with contextlib.closing(_open_backup(backup)) as source:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _remove(fresh)
            _make_private(fresh)
            with contextlib.closing(sqlite3.connect(fresh, isolation_level=None)) as target:
                source.backup(target)
                _prepare(target, fresh)
                # What ran when the backup was made is not what runs now: those attempts are over, whatever is there.
                target.execute("UPDATE attempts SET boot = ? WHERE state != 'ended'", (RESTORED,))
        _keep(path, now)
        os.replace(fresh, path)
    except (sqlite3.Error, OSError, ValueError) as error:
        raise StoreError(
            f"cannot restore {str(backup)!r}: {error}; what was there is untouched or beside it"
        ) from error


def _open_backup(backup: pathlib.Path) -> sqlite3.Connection:
    """A yard's backup, opened for reading; `StoreError` says what it is instead."""
    if not backup.is_file():
        raise StoreError(f"there is no backup {backup}; name the file that the backup was written to")
    if not backup.stat().st_size:
        raise StoreError(f"{backup} is empty; name the file that the backup was written to")
    beside = backup.with_name(f"{backup.name}-wal")
    if beside.exists() and beside.stat().st_size:
        raise StoreError(f"{backup} is the state of a yard and no backup of it; make one with `yard backup`")
    connection = sqlite3.connect(f"{backup.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        _check_is_ours(connection, backup)
        wrong = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if wrong != "ok":
            raise StoreError(f"the backup {backup} is damaged ({wrong}); use another one")
    except sqlite3.DatabaseError as error:
        connection.close()
        raise StoreError(f"{backup} is no backup of a yard ({error}); use another file") from error
    except StoreError:
        connection.close()
        raise
    return connection


def _check_is_ours(connection: sqlite3.Connection, path: pathlib.Path) -> None:
    mark, version = (
        int(connection.execute(f"PRAGMA {key}").fetchone()[0]) for key in ("application_id", "user_version")
    )
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if version < 1 or mark not in ((APPLICATION,) if version >= MARKED else (0, APPLICATION)) or not tables >= TABLES:
        raise StoreError(f"{path} is a database, but not a yard's; use another file")
    if version > len(MIGRATIONS):
        raise StoreError(_too_new(path, version))


def _keep(path: pathlib.Path, now: float) -> None:
    """What was there gets a name of its own, with the time; none that was kept before is lost."""
    stamp = datetime.datetime.fromtimestamp(now, datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    names = itertools.chain([stamp], (f"{stamp}-{number}" for number in itertools.count(2)))
    kept = next(each for each in names if not path.with_name(f"{path.name}.before-restore-{each}").exists())
    for suffix in ("", "-wal", "-shm"):
        old = path.with_name(path.name + suffix)
        if old.exists():
            os.replace(old, path.with_name(f"{path.name}.before-restore-{kept}{suffix}"))


def _make_private(path: pathlib.Path) -> None:
    """A new file that is nobody else's to read from its first byte on."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _remove(path: pathlib.Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _open(path: pathlib.Path) -> sqlite3.Connection:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            _create(path)
        elif path.is_file() and not path.stat().st_size:
            raise StoreError(_corrupt(path, "it is empty, as no yard leaves it"))
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10.0)
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


def _create(path: pathlib.Path) -> None:
    """A new database appears whole under its name: an empty one is always somebody's damage."""
    fresh = path.with_name(f"{path.name}.new")
    _remove(fresh)
    for suffix in ("-wal", "-shm"):  # of a file that was moved away: they would be taken for the new one's
        left = path.with_name(path.name + suffix)
        if left.exists():
            os.replace(left, path.with_name(f"{path.name}.left-over{suffix}"))
    _make_private(fresh)
    with contextlib.closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
        _prepare(connection, fresh)
    os.replace(fresh, path)


def _prepare(connection: sqlite3.Connection, path: pathlib.Path) -> None:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > len(MIGRATIONS):
        raise StoreError(_too_new(path, version))
    if version or connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        _check_is_ours(connection, path)
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


def _too_new(path: pathlib.Path, version: int) -> str:
    return (
        f"{path} was written by a newer GPUYard (its version {version}, ours {len(MIGRATIONS)}); "
        "install that one, or restore an older backup"
    )


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
    return StoreError(f"the state in {path} cannot be used: {text}; {GO_ON}")


def _corrupt(path: pathlib.Path, text: str) -> str:
    return f"{path} is damaged ({text}); {GO_ON}"
