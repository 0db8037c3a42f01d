"""The tables of the embedded yard's database, version by version. `store` brings an older file up to the newest.

A version is never changed once it was released: a new one is added below it.
"""

from __future__ import annotations

_FIRST = """
CREATE TABLE templates (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, queue TEXT NOT NULL, text TEXT NOT NULL, user TEXT NOT NULL,
  uid INTEGER NOT NULL, gid INTEGER NOT NULL, submitted REAL NOT NULL
) STRICT;

CREATE TABLE jobs (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, template INTEGER NOT NULL REFERENCES templates(id),
  member INTEGER, phase TEXT NOT NULL, told TEXT NOT NULL DEFAULT '', held INTEGER NOT NULL DEFAULT 0,
  attempts INTEGER NOT NULL DEFAULT 0, failures INTEGER NOT NULL DEFAULT 0, losses INTEGER NOT NULL DEFAULT 0,
  evictions INTEGER NOT NULL DEFAULT 0, not_before REAL NOT NULL DEFAULT 0, started REAL, ended REAL, exit INTEGER
) STRICT;
CREATE INDEX jobs_ended ON jobs(ended);

CREATE TABLE attempts (
  job INTEGER NOT NULL REFERENCES jobs(id), number INTEGER NOT NULL, boot TEXT NOT NULL, state TEXT NOT NULL,
  why TEXT NOT NULL DEFAULT '', created REAL NOT NULL, started REAL, ended REAL, port INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (job, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE tasks (
  job INTEGER NOT NULL, attempt INTEGER NOT NULL, serial INTEGER NOT NULL, wave INTEGER NOT NULL, rank INTEGER NOT NULL,
  place TEXT NOT NULL, state TEXT NOT NULL, outcome TEXT NOT NULL DEFAULT '', exit INTEGER,
  pid INTEGER NOT NULL DEFAULT 0, ended REAL, told TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (job, attempt, serial)
) STRICT, WITHOUT ROWID;

CREATE TABLE keys (
  user TEXT NOT NULL, key TEXT NOT NULL, digest TEXT NOT NULL, names TEXT NOT NULL, at REAL NOT NULL,
  PRIMARY KEY (user, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, kind TEXT NOT NULL, job TEXT NOT NULL DEFAULT '',
  document TEXT NOT NULL DEFAULT '{}'
) STRICT;

CREATE TABLE turns (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, kind TEXT NOT NULL, content BLOB NOT NULL
) STRICT;

CREATE TABLE ledger (
  day INTEGER NOT NULL, queue TEXT NOT NULL, user TEXT NOT NULL, tasks INTEGER NOT NULL, gpu_seconds REAL NOT NULL,
  money REAL NOT NULL,
  PRIMARY KEY (day, queue, user)
) STRICT, WITHOUT ROWID;

CREATE TABLE facts (
  name TEXT PRIMARY KEY, document TEXT NOT NULL
) STRICT, WITHOUT ROWID;
"""

_LOST = "ALTER TABLE ledger ADD COLUMN lost REAL NOT NULL DEFAULT 0;"
"""GPU-seconds whose work has to be done again."""

KEY = "iif(t.uid >= 0, t.user || '/' || t.name, t.name)"
"""A template's key: what its name means, where names belong to their owners (`records.Owner.key`)."""

_OWNERS = f"""
ALTER TABLE events ADD COLUMN number INTEGER NOT NULL DEFAULT 0;
ALTER TABLE events ADD COLUMN owner TEXT NOT NULL DEFAULT '';
CREATE INDEX jobs_template ON jobs(template);
CREATE INDEX templates_key ON templates({KEY.replace("t.", "")});
DELETE FROM keys WHERE NOT json_valid(names);
UPDATE keys SET names = (
  SELECT json_group_array(j.id) FROM json_each(keys.names) name JOIN jobs j ON j.name = name.value
);
DELETE FROM keys WHERE user IN (SELECT user FROM templates WHERE uid >= 0) OR names = '[]';
UPDATE keys SET user = '-1:' || user;
UPDATE jobs SET name = (SELECT t.user FROM templates t WHERE t.id = jobs.template) || '/' || name
  WHERE template IN (SELECT id FROM templates WHERE uid >= 0);
"""
"""Names, keys and events belong to one owner. `jobs.name` is the job's key; `keys.user` is an owner's identity and
`keys.names` are job numbers; an event has its job's number and its owner's identity (those from before have none, and
are for operators alone)."""

APPLICATION = 0x47505559
"""`GPUY`: what SQLite's `application_id` says of a yard's file."""

_MARKED = f"""
PRAGMA application_id = {APPLICATION};
ALTER TABLE jobs ADD COLUMN anew INTEGER NOT NULL DEFAULT 0;
"""
"""A file says whose it is; and `anew`, the last attempt before its owner let an ended job begin again."""
MARKED = 4
"""The version from which on every file is marked."""

_WHOSE = """
CREATE TABLE used (
  day INTEGER NOT NULL, queue TEXT NOT NULL, user TEXT NOT NULL, owner TEXT NOT NULL, tasks INTEGER NOT NULL,
  gpu_seconds REAL NOT NULL, money REAL NOT NULL, lost REAL NOT NULL,
  PRIMARY KEY (day, queue, user, owner)
) STRICT, WITHOUT ROWID;
INSERT INTO used(day, queue, user, owner, tasks, gpu_seconds, money, lost) SELECT day, queue, user, coalesce(
  (SELECT CASE WHEN count(DISTINCT t.uid) = 1 THEN max(t.uid) || ':' || l.user END
   FROM templates t WHERE t.user = l.user), ''
), tasks, gpu_seconds, money, lost FROM ledger l;
DROP TABLE ledger;
ALTER TABLE used RENAME TO ledger;
"""
"""What was used is an owner's identity's; where it is not known whose it was, it is for operators alone."""

_WAITS = "ALTER TABLE jobs ADD COLUMN waits REAL;"
"""Since when a job waits, if not since it was submitted."""

_STOPPED = """
ALTER TABLE attempts ADD COLUMN stopped REAL;
ALTER TABLE attempts ADD COLUMN told TEXT NOT NULL DEFAULT '';
"""
"""When an attempt was told to stop, and for whom and what its job lost by it, in words that its owner may read."""

_PROGRESS = "ALTER TABLE attempts ADD COLUMN progress TEXT NOT NULL DEFAULT '';"
"""What an attempt told of its own progress, as a list of numbers."""

_MEASURED = """
ALTER TABLE ledger ADD COLUMN measured REAL NOT NULL DEFAULT 0;
ALTER TABLE ledger ADD COLUMN busy REAL NOT NULL DEFAULT 0;
"""
"""GPU-seconds in which somebody looked how busy the GPUs were, and what of them they were at work."""

MIGRATIONS: tuple[str, ...] = (_FIRST, _LOST, _OWNERS, _MARKED, _WHOSE, _WAITS, _STOPPED, _PROGRESS, _MEASURED)
"""What to run to come from version n to n + 1."""
