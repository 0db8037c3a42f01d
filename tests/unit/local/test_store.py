"""The state file: what is accepted stays, and what is wrong with it is told in one sentence."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from pathlib import Path

import pytest

from gpuyard.worlds.local.state import store as stores
from gpuyard.worlds.local.state.schema import MIGRATIONS
from gpuyard.worlds.local.state.store import Batch, Store, StoreError

NOW, STAMP = 1_700_000_000.0, "20231114T221320Z"


def put(store: Store, name: str) -> None:
    with store.batch() as batch:
        batch.add("INSERT INTO facts(name, document) VALUES (?, '{}')", (name,))


def names(store: Store) -> list[str]:
    return [row[0] for row in store.rows("SELECT name FROM facts ORDER BY name")]


def test_a_committed_change_is_there_after_opening_again(tmp_path: Path):
    store = Store(tmp_path / "yard.db")
    put(store, "a")
    again = Store(tmp_path / "yard.db")  # the first one was never closed, as after a crash
    assert names(again) == ["a"]
    assert again.rows("PRAGMA journal_mode") == [("wal",)]
    assert again.rows("PRAGMA synchronous") == [(2,)]
    again.close()
    store.close()


def test_a_deferred_change_goes_with_the_next_commit(tmp_path: Path):
    store = Store(tmp_path / "yard.db")
    later = Batch()
    later.add("INSERT INTO facts(name, document) VALUES ('later', '{}')", ())
    store.defer(later)
    assert names(store) == []
    put(store, "now")
    assert names(store) == ["later", "now"]
    store.close()


def test_one_writers_mistake_is_not_the_others(tmp_path: Path):
    store = Store(tmp_path / "yard.db")
    put(store, "a")
    good = Batch()
    good.add("INSERT INTO facts(name, document) VALUES ('b', '{}')", ())
    store.defer(good)
    with pytest.raises(StoreError, match="contradicts what is kept"):
        put(store, "a")
    assert names(store) == ["a", "b"]
    store.close()


def test_writers_that_come_together_share_commits(tmp_path: Path):
    commits: list[str] = []
    store = Store(tmp_path / "yard.db", commits.append)
    threads = [threading.Thread(target=put, args=(store, f"n{n:03}")) for n in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(names(store)) == 100
    assert commits.count("after-commit") <= 100
    store.close()


def test_events_wake_those_who_wait_for_them(tmp_path: Path):
    store = Store(tmp_path / "yard.db")
    assert not store.wait_news(0, 0.01)
    with store.batch() as batch:
        batch.event(1.0, "submitted", ("a", 1, "-1:me"), "{}")
    assert store.wait_news(0, 5.0)
    assert store.last_event == 1
    store.close()


def test_a_damaged_file_is_said_to_be_damaged(tmp_path: Path):
    path = tmp_path / "yard.db"
    Store(path).close()
    content = bytearray(path.read_bytes())
    content[100:3000] = b"\xff" * 2900
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"is damaged \(.*\); put a backup in its place"):
        Store(path)


def test_a_file_that_is_something_else_is_said_to_be_damaged(tmp_path: Path):
    path = tmp_path / "yard.db"
    path.write_text("not a database, " * 100)
    with pytest.raises(StoreError, match="is damaged"):
        Store(path)


def test_a_file_of_a_newer_yard_is_left_alone(tmp_path: Path):
    path = tmp_path / "yard.db"
    Store(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(StoreError, match=r"written by a newer GPUYard \(its version 99, ours \d+\)"):
        Store(path)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be"):
        Store(tmp_path / "file" / "yard.db")


def test_a_full_disk_refuses_and_keeps_what_it_has(tmp_path: Path):
    store = Store(tmp_path / "yard.db")
    put(store, "a")
    pages = store.rows("PRAGMA page_count")[0][0]
    store.rows(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StoreError, match="is full: nothing new can be accepted"), store.batch() as batch:
        batch.add("INSERT INTO facts(name, document) VALUES ('b', ?)", ("x" * 100_000,))
    store.rows("PRAGMA max_page_count=1000000")
    put(store, "c")
    assert names(store) == ["a", "c"]
    store.close()


def test_a_backup_can_be_restored(tmp_path: Path):
    store = Store(tmp_path / "yard.db")
    put(store, "a")
    assert store.backup(tmp_path / "copy.db") > 0
    put(store, "b")
    store.close()
    with pytest.raises(StoreError, match="exists already"):
        store.backup(tmp_path / "copy.db")
    stores.restore(tmp_path / "copy.db", tmp_path / "yard.db", NOW)
    again = Store(tmp_path / "yard.db")
    assert names(again) == ["a"]
    again.close()
    assert (tmp_path / f"yard.db.before-restore-{STAMP}").exists()
    with pytest.raises(StoreError, match="there is no backup"):
        stores.restore(tmp_path / "nothing.db", tmp_path / "yard.db", NOW)


def test_a_file_of_an_older_yard_is_brought_up_to_date(tmp_path: Path):
    path = tmp_path / "yard.db"
    connection = sqlite3.connect(path)
    connection.executescript(f"{MIGRATIONS[0]} PRAGMA user_version=1;")
    connection.execute("INSERT INTO ledger VALUES (1, 'q', 'u', 1, 2.0, 3.0)")
    connection.commit()
    connection.close()
    store = Store(path)
    assert store.rows("SELECT gpu_seconds, lost FROM ledger") == [(2.0, 0.0)]
    assert store.rows("PRAGMA user_version") == [(len(MIGRATIONS),)]
    store.close()


def test_a_state_from_before_names_had_owners_is_brought_over(tmp_path: Path):
    path = tmp_path / "yard.db"
    with contextlib.closing(sqlite3.connect(path)) as old:
        for script in MIGRATIONS[:2]:
            old.executescript(script)
        for number, user, uid in ((1, "me", -1), (2, "alice", 1000)):
            old.execute(
                "INSERT INTO templates VALUES (?, ?, 'default', '{}', ?, ?, -1, 0)", (number, f"j{number}", user, uid)
            )
            old.execute(
                "INSERT INTO jobs(id, name, template, phase) VALUES (?, ?, ?, 'succeeded')",
                (number, f"j{number}", number),
            )
            old.execute("INSERT INTO keys VALUES (?, 'k', 'd', ?, 0)", (user, f'["j{number}"]'))
            old.execute("INSERT INTO events(at, kind, job) VALUES (0, 'ended', ?)", (f"j{number}",))
        old.execute("PRAGMA user_version=2")
        old.commit()
    store = Store(path)
    assert store.rows("SELECT name FROM jobs ORDER BY id") == [("j1",), ("alice/j2",)]
    assert store.rows("SELECT user, names FROM keys") == [("-1:me", "[1]")]
    assert store.rows("SELECT job, number, owner FROM events") == [("j1", 0, ""), ("j2", 0, "")]
    store.close()


def test_what_was_used_before_identities_counted_is_whose_it_must_have_been(tmp_path: Path):
    """A name that two users had is nobody's in particular: operators alone see what was used under it."""
    path = tmp_path / "yard.db"
    with contextlib.closing(sqlite3.connect(path)) as old:
        for script in MIGRATIONS[:4]:
            old.executescript(script)
        for number, user, uid in ((1, "me", -1), (2, "ann", 1000), (3, "bob", 1001), (4, "bob", 1002)):
            old.execute("INSERT INTO templates VALUES (?, 'j', 'q', '{}', ?, ?, -1, 0)", (number, user, uid))
        for user in ("me", "ann", "bob", "gone"):
            old.execute("INSERT INTO ledger VALUES (1, 'q', ?, 1, 2.0, 3.0, 0.5)", (user,))
        old.execute("PRAGMA user_version=4")
        old.commit()
    store = Store(path)
    assert store.rows("SELECT user, owner, gpu_seconds, lost FROM ledger ORDER BY user") == [
        ("ann", "1000:ann", 2.0, 0.5), ("bob", "", 2.0, 0.5), ("gone", "", 2.0, 0.5), ("me", "-1:me", 2.0, 0.5),
    ]  # fmt: skip
    store.close()


def test_every_original_is_kept(tmp_path: Path):
    Store(tmp_path / "yard.db").close()
    store = Store(tmp_path / "yard.db")
    store.backup(tmp_path / "copy.db")
    store.close()
    for _ in range(3):
        stores.restore(tmp_path / "copy.db", tmp_path / "yard.db", NOW)
    kept = sorted(path.name for path in tmp_path.glob("yard.db.before-restore-*"))
    assert kept == [f"yard.db.before-restore-{STAMP}{more}" for more in ("", "-2", "-3")]


def foreign(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE bookmarks (url TEXT); PRAGMA user_version=2;")
    connection.close()


def halved(path: Path) -> None:
    store = Store(path.with_name("whole.db"))
    store.backup(path)
    store.close()
    path.write_bytes(path.read_bytes()[:-8192])


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.write_text("not a database, " * 100), "is no backup of a yard"),
        (foreign, "is a database, but not a yard's"),
        (halved, "damaged|no backup"),
        (lambda path: path.mkdir(), "there is no backup"),
    ],
    ids=["empty", "text", "foreign", "halved", "folder"],
)
def test_only_a_yards_backup_replaces_anything(tmp_path: Path, make, told: str):
    store = Store(tmp_path / "yard.db")
    put(store, "a")
    store.close()
    make(tmp_path / "copy.db")
    with pytest.raises(StoreError, match=told):
        stores.restore(tmp_path / "copy.db", tmp_path / "yard.db", NOW)
    again = Store(tmp_path / "yard.db")
    assert names(again) == ["a"]
    again.close()
    assert not list(tmp_path.glob("yard.db.before-restore*"))


def test_a_backup_is_read_and_not_changed(tmp_path: Path):
    connection = sqlite3.connect(tmp_path / "old.db")
    connection.executescript(f"{MIGRATIONS[0]} PRAGMA user_version=1;")
    connection.close()
    before = (tmp_path / "old.db").read_bytes()
    stores.restore(tmp_path / "old.db", tmp_path / "yard.db", NOW)
    assert (tmp_path / "old.db").read_bytes() == before
    Store(tmp_path / "yard.db").close()


def test_a_backup_is_private_from_its_first_byte(tmp_path: Path):
    seen: list[int] = []
    store = Store(tmp_path / "yard.db")
    with store.batch() as batch:
        batch.add("INSERT INTO facts(name, document) VALUES ('big', ?)", ("x" * 1_000_000,))
    threads = threading.Thread(target=watch, args=(tmp_path / "copy.db", seen))
    threads.start()
    store.backup(tmp_path / "copy.db")
    threads.join()
    store.close()
    assert set(seen) == {0o600}


def watch(path: Path, seen: list[int]) -> None:
    while not path.exists():
        pass
    seen.extend(path.stat().st_mode & 0o777 for _ in range(200))


def test_a_place_that_no_file_can_have_is_told(tmp_path: Path):
    store = Store(tmp_path / "yard.db")
    with pytest.raises(StoreError, match="cannot write the backup"):
        store.backup(Path(f"{tmp_path}/a\0b"))
    store.close()


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_an_empty_state_file_is_damage_and_never_a_new_beginning(tmp_path: Path, suffix: str):
    path = tmp_path / "yard.db"
    Store(path).close()
    path.write_bytes(b"")
    with pytest.raises(StoreError, match=r"yard\.db is damaged \(it is empty.*restore.*or move the file away"):
        Store(path)
    path.rename(tmp_path / "moved")
    (tmp_path / f"yard.db{suffix}-wal").write_bytes(b"left over")
    Store(path).close()  # and so it goes on without it


def test_columns_that_are_missing_are_told_with_the_file(tmp_path: Path):
    path = tmp_path / "yard.db"
    Store(path).close()
    connection = sqlite3.connect(path)
    connection.execute("ALTER TABLE jobs DROP COLUMN losses")
    connection.commit()
    connection.close()
    store = Store(path)
    with pytest.raises(StoreError, match=r"yard\.db cannot be used: no such column.*or move the file away"):
        store.rows("SELECT losses FROM jobs")
    store.close()
