"""Every job the yard knows, by key and number, and the rows they become in the store.

Used by `world` under its lock. It keeps and finds; what happens to a job is decided in `world`.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, replace
from typing import Any

from gpuyard import files
from gpuyard.model.answers.progress import Progress
from gpuyard.model.errors import NotFound, Refused
from gpuyard.model.job import MAIN, Job, Phase, Placement, TaskGroup, one_group
from gpuyard.model.ownership import Owner
from gpuyard.model.policy import Policy, kept_within
from gpuyard.model.queue import Queue
from gpuyard.model.resources import Request
from gpuyard.worlds.local.state.records import Attempt, Entry, Task, Template
from gpuyard.worlds.local.state.schema import KEY
from gpuyard.worlds.local.state.store import Batch, Store

KEEP_ENDED = 100
"""Ended jobs kept in memory for `yard jobs`; all others are asked from the store."""


class Book:
    """Jobs that are not over, and the newest that are."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.keys: dict[str, int] = {}
        self._reserved: dict[str, str] = {}
        """Names that are being written, and the queues their jobs are to stand in."""
        self.arrays: dict[str, Template] = {}
        self.gated: dict[int, dict[int, Entry]] = {}
        """Members of each array that wait for the others, by template."""
        self.ended: deque[Entry] = deque(maxlen=KEEP_ENDED)
        self.leaving: dict[str, Entry] = {}
        """Those that are over, by key, until that is on disk: the store knows them as they were before."""
        self.flawed: list[Entry] = []
        """Those that were not over, and whose rows cannot be read."""
        self.next_job = 1
        self.next_template = 1

    def make(self, owner: Owner, asked: files.Submission, text: str) -> list[Entry]:
        """The jobs of one submission, numbered; they are not in the book yet."""
        job = asked.job
        template = Template(
            self.next_template,
            job.name,
            text,
            job,
            owner,
            job.submitted,
            asked.after,
            len(asked.members),
            asked.at_once,
        )
        self.next_template += 1
        phase = Phase.HELD if job.on_hold else Phase.WAITING
        entries = []
        for name, member in zip(asked.names(), asked.members or (None,), strict=True):
            entries.append(Entry(self.next_job, name, template, member, phase, held=job.on_hold))
            self.next_job += 1
        return entries

    def add(self, entry: Entry) -> None:
        """One more job."""
        self.entries[entry.id] = entry
        self.keys[entry.key] = entry.id
        self._reserved.pop(entry.key, None)

    def find(self, key: str) -> Entry | None:
        """A job that is not over."""
        number = self.keys.get(key)
        return None if number is None else self.entries.get(number)

    def is_taken(self, key: str) -> bool:
        """Whether its owner has a job of that name that is not over, or about to be accepted."""
        return key in self.keys or key in self._reserved

    def reserve(self, entries: Iterable[Entry]) -> None:
        """Keep names until `add` or `unreserve`: their jobs are being written."""
        self._reserved.update({entry.key: entry.template.job.queue for entry in entries})

    def unreserve(self, entries: Iterable[Entry]) -> None:
        """They were not accepted after all."""
        for entry in entries:
            self._reserved.pop(entry.key, None)

    def standing(self) -> Iterator[tuple[str, str]]:
        """Who stands in which queue, or is about to."""
        yield from ((entry.key, entry.template.job.queue) for entry in self.active())
        yield from self._reserved.items()

    def get(self, key: str) -> Entry:
        """A job that is not over, or one sentence why there is none."""
        entry = self.find(key)
        if entry is None:
            raise NotFound(f"there is no active job {key}")
        return entry

    def members(self, key: str) -> list[Entry]:
        """The members of an array that are not over."""
        return [entry for entry in self.entries.values() if entry.array == key] if key in self.arrays else []

    def retire(self, entry: Entry) -> None:
        """A job has ended: only the newest stay in memory."""
        self.note_over(entry)
        del self.entries[entry.id]
        self.keys.pop(entry.key, None)

    def note_over(self, entry: Entry) -> None:
        """Tell of it as one that has ended."""
        self.leaving[entry.key] = entry
        self.ended.append(entry)

    def drop(self, entry: Entry) -> None:
        """A job turns out to be none that could be run."""
        del self.entries[entry.id]
        self.keys.pop(entry.key, None)
        self.flawed.append(entry)

    def revive(self, entry: Entry) -> None:
        """A job that had ended begins again."""
        self.ended = deque((other for other in self.ended if other.id != entry.id), maxlen=KEEP_ENDED)
        self.add(entry)

    def make_way(self, entries: Iterable[Entry]) -> None:
        """Ended jobs whose name is used again are known by name and number from now on."""
        keys = {entry.key for entry in entries}
        for old in self.ended:
            if old.key in keys:
                old.name = f"{old.name}@{old.id}"

    def keep_within(self, policy: Policy, queues: Sequence[Queue]) -> list[Entry]:
        """Bounds that came after jobs hold for them too; those that ask for less now."""
        changed: set[int] = set()
        for template in {entry.template.id: entry.template for entry in self.entries.values()}.values():
            kept = kept_within(template.job, policy, queues)
            if kept != template.job:
                template.job, template.document = kept, None
                changed.add(template.id)
        return [entry for entry in self.entries.values() if entry.template.id in changed]

    def active(self) -> Iterator[Entry]:
        """Jobs that are not over, oldest first."""
        return iter(self.entries.values())


UNREADABLE = (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError)
"""What goes wrong with rows that somebody else has written."""
NOBODY = Owner("")
OVER = "IN ('succeeded', 'failed', 'cancelled')"

# --- rows ----------------------------------------------------------------------------------------


def save_template(batch: Batch, template: Template) -> None:
    """What was submitted; written once."""
    owner = template.owner
    batch.add(
        "INSERT INTO templates(id, name, queue, text, user, uid, gid, submitted) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            template.id,
            template.name,
            template.job.queue,
            template.text,
            owner.user,
            owner.uid,
            owner.gid,
            template.submitted,
        ),
    )


def make_way(batch: Batch, entries: Iterable[Entry]) -> None:
    """Ended jobs whose name is used again are known by name and number from now on."""
    batch.add(f"UPDATE jobs SET name = name || '@' || id WHERE name = ? AND phase {OVER}", *((e.key,) for e in entries))


def insert_jobs(batch: Batch, entries: Iterable[Entry]) -> None:
    """New jobs."""
    batch.add(
        "INSERT INTO jobs(id, name, template, member, phase, told, held) VALUES (?, ?, ?, ?, ?, ?, ?)",
        *((e.id, e.key, e.template.id, e.member, e.phase.value, e.told, int(e.held)) for e in entries),
    )


def save_key(batch: Batch, key: tuple[str, str, str], numbers: Sequence[int], now: float) -> None:
    """By which a submission is known when it comes again: whose, the word, the digest of what was asked."""
    row = (*key, json.dumps(list(numbers)), now)
    batch.add("INSERT INTO keys(user, key, digest, names, at) VALUES (?, ?, ?, ?, ?)", row)


def save_job(batch: Batch, entry: Entry) -> None:
    """A job as it stands now."""
    batch.add(
        "UPDATE jobs SET phase=?, told=?, held=?, attempts=?, failures=?, losses=?, evictions=?, not_before=?, "
        "started=?, ended=?, exit=?, anew=?, waits=? WHERE id=?",
        (entry.phase.value, entry.told, int(entry.held), entry.attempts, entry.failures, entry.losses, entry.evictions,
         entry.not_before, entry.started, entry.ended, entry.exit, entry.anew, entry.waits,
         entry.id),
    )  # fmt: skip


def save_attempt(batch: Batch, entry: Entry, attempt: Attempt) -> None:
    """An attempt as it stands now, tasks aside."""
    batch.add(
        "INSERT INTO attempts(job, number, boot, state, why, created, started, ended, port, stopped, told, progress) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(job, number) DO UPDATE SET state=excluded.state, "
        "why=excluded.why, started=excluded.started, ended=excluded.ended, port=excluded.port, boot=excluded.boot, "
        "stopped=excluded.stopped, told=excluded.told, progress=excluded.progress",
        (entry.id, attempt.number, attempt.boot, attempt.state, attempt.why, attempt.created, attempt.started,
         attempt.ended, attempt.port, attempt.stopped, attempt.told, _progress_text(attempt.progress)),
    )  # fmt: skip


def _progress_text(progress: Progress | None) -> str:
    return "" if progress is None else json.dumps(astuple(progress))


def _progress_of(text: str) -> Progress | None:
    return Progress(*json.loads(text)) if text else None


def save_tasks(batch: Batch, entry: Entry, attempt: Attempt, tasks: Iterable[Task]) -> None:
    """Tasks as they stand now."""
    batch.add(
        "INSERT INTO tasks(job, attempt, serial, wave, rank, place, state, outcome, exit, pid, ended, told) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(job, attempt, serial) DO UPDATE SET "
        "place=excluded.place, state=excluded.state, outcome=excluded.outcome, exit=excluded.exit, pid=excluded.pid, "
        "ended=excluded.ended, told=excluded.told",
        *((entry.id, attempt.number, t.serial, t.wave, t.rank, _place_text(t), t.state, t.outcome, t.exit,
           t.pid, t.ended, t.told) for t in tasks),
    )  # fmt: skip


def _place_text(task: Task) -> str:
    place = task.placement
    words = [place.node, list(place.gpus), place.group, place.task, list(place.mig), list(task.slices)]
    return json.dumps(words, separators=(",", ":"))


def _place_of(text: str) -> tuple[Placement, tuple[int, ...]]:
    node, gpus, group, task, mig, *slices = json.loads(text)  # without slices, as it was first written
    return Placement(node, tuple(gpus), group, task, tuple(mig)), tuple(slices[0] if slices else ())


# --- reading back --------------------------------------------------------------------------------

JOB_COLUMNS = (
    "j.id, j.name, j.member, j.phase, j.told, j.held, j.attempts, j.failures, j.losses, j.evictions, j.not_before, "
    "j.started, j.ended, j.exit, j.template, j.anew, j.waits"
)
TEMPLATE_COLUMNS = "t.id, t.name, t.text, t.user, t.uid, t.gid, t.submitted"


def load(store: Store) -> Book:
    """Everything that is not over, and the newest that is."""
    book = Book()
    book.next_job = 1 + _largest(store, "jobs")
    book.next_template = 1 + _largest(store, "templates")
    templates = _templates(store, f"SELECT DISTINCT template FROM jobs WHERE phase NOT {OVER}")
    for entry in entries(store, f"j.phase NOT {OVER} ORDER BY j.id", (), templates):
        if entry.flaw:
            book.flawed.append(entry)
        else:
            book.add(entry)
    for template in templates.values():
        if template.members:
            book.arrays[template.key] = template
    _load_attempts(store, book)
    book.ended.extend(reversed(_newest_ended(store, templates)))
    return book


def _newest_ended(store: Store, templates: dict[int, Template]) -> list[Entry]:
    """The last to end, by their events: the clock may have been set between. Beyond what events tell, by their time."""
    told = store.rows(
        "SELECT number FROM events WHERE kind IN ('ended', 'cancelled', 'set-aside') AND number > 0 "
        f"ORDER BY id DESC LIMIT {KEEP_ENDED}"
    )
    last = list(dict.fromkeys(row[0] for row in told))
    which = ",".join(map(str, last)) or "0"
    found = {entry.id: entry for entry in entries(store, f"j.phase {OVER} AND j.id IN ({which})", (), templates)}
    newest = [found[number] for number in last if number in found]
    where = f"j.phase {OVER} AND j.id NOT IN ({which}) ORDER BY j.ended DESC LIMIT {KEEP_ENDED}"
    return [*newest, *entries(store, where, (), templates)][:KEEP_ENDED]


def _largest(store: Store, table: str) -> int:
    return int(store.rows(f"SELECT coalesce(max(id), 0) FROM {table}")[0][0])


def entries(store: Store, where: str, parameters: tuple[Any, ...], known: dict[int, Template]) -> list[Entry]:
    """Jobs from the store; `known` templates are shared, others are read."""
    rows = store.rows(f"SELECT {JOB_COLUMNS} FROM jobs j WHERE {where}", parameters)
    missing = sorted({row[14] for row in rows} - known.keys())
    for start in range(0, len(missing), 500):
        known.update(_templates(store, ",".join(map(str, missing[start : start + 500]))))
    return [
        _entry(row, known.get(row[14]) or stand_in(row[14], row[1], "", "what was submitted is gone")) for row in rows
    ]


def ended(store: Store, owner: Owner | None) -> list[Entry]:
    """All that ended, of one owner or of all."""
    own = "" if owner is None else " AND j.template IN (SELECT id FROM templates WHERE user = ? AND uid = ?)"
    whose = () if owner is None else (owner.user, owner.uid)
    return entries(store, f"j.phase {OVER}{own} ORDER BY j.id", whose, {})


def named(store: Store, key: str) -> Entry | None:
    """A job from the store by its key."""
    found = entries(store, "j.name = ?", (key,), {})
    return found[0] if found else None


def numbered(store: Store, numbers: Iterable[int]) -> list[Entry]:
    """Jobs from the store by their numbers."""
    which = ",".join(str(int(number)) for number in numbers)
    return entries(store, f"j.id IN ({which})", (), {}) if which else []


def known_key(store: Store, identity: str, word: str) -> tuple[str, list[int]] | None:
    """What was submitted with that key before: its digest and the numbers of its jobs. Raises one of UNREADABLE."""
    rows = store.rows("SELECT digest, names FROM keys WHERE user = ? AND key = ?", (identity, word))
    return (str(rows[0][0]), [int(number) for number in json.loads(rows[0][1])]) if rows else None


def array_owners(store: Store, key: str) -> list[Owner]:
    """Whose arrays of that key there are, also those that have ended."""
    asked = (
        f"SELECT DISTINCT t.user, t.uid FROM templates t WHERE {KEY} = ? "
        "AND EXISTS (SELECT 1 FROM jobs j WHERE j.template = t.id AND j.member IS NOT NULL)"
    )
    return [Owner(user, uid) for user, uid in store.rows(asked, (key,))]


def _templates(store: Store, which: str) -> dict[int, Template]:
    rows = store.rows(f"SELECT {TEMPLATE_COLUMNS} FROM templates t WHERE t.id IN ({which})")
    return {row[0]: template_of(*row) for row in rows}


def template_of(*row: Any) -> Template:
    """A template from its row: its document is read anew."""
    number, name, text, user, uid, gid, submitted = row
    try:
        asked = files.read_submission(json.loads(text), submitted, name)
    except (Refused, *UNREADABLE) as error:
        return stand_in(number, name, text, f"what was submitted cannot be read: {error}", Owner(user, uid, gid))
    return Template(
        number, name, text, asked.job, Owner(user, uid, gid), submitted, asked.after, len(asked.members), asked.at_once
    )


def stand_in(number: int, name: str, text: str, flaw: str, owner: Owner = NOBODY) -> Template:
    """For something that cannot be read: enough to tell its owner of it."""
    job = Job(name, one_group(TaskGroup(MAIN, 1, 1, Request())), user=owner.user)
    return Template(number, name, text, job, owner, 0.0, flaw=flaw)


def _entry(row: tuple[Any, ...], template: Template) -> Entry:
    entry = Entry(row[0], template.owner.name(row[1]), template, row[2], flaw=template.flaw)
    try:
        entry.phase = Phase(row[3])
    except ValueError:
        entry.phase, entry.flaw = Phase.FAILED, f"there is no phase {row[3]!r}"
    entry.told, entry.held, entry.attempts, entry.failures, entry.losses = row[4], bool(row[5]), row[6], row[7], row[8]
    entry.evictions, entry.not_before, entry.started, entry.ended, entry.exit = (
        row[9],
        row[10],
        row[11],
        row[12],
        row[13],
    )
    entry.anew, entry.waits = row[15], row[16]
    return entry


def _load_attempts(store: Store, book: Book) -> None:
    """Attempts that were not over (the later one of a job is what follows a move), and what earlier ones left."""
    for known in [entry for entry in book.entries.values() if entry.attempts > entry.anew]:
        for attempt in history(store, known.id):
            if attempt.number > known.anew and attempt.state == "ended":
                known.note(attempt)
    for job, number, *_ in store.rows("SELECT job, number FROM attempts WHERE state != 'ended' ORDER BY job, number"):
        entry = book.entries.get(job)
        if entry is None:
            continue
        try:
            attempt = attempts(store, job, number)[0]
        except UNREADABLE as error:
            entry.flaw = f"attempt {number} cannot be read: {type(error).__name__}: {error}"
            book.drop(entry)
            continue
        if entry.attempt is None:
            entry.attempt = attempt
        else:
            entry.following = attempt


def history(store: Store, job: int) -> list[Attempt]:
    """All attempts of a job, as far as they can be read."""
    try:
        return attempts(store, job)
    except UNREADABLE:
        return []


def attempts(store: Store, job: int, number: int | None = None) -> list[Attempt]:
    """Attempts of a job with their tasks: all of them, or one."""
    only = "" if number is None else " AND number=?"
    parameters = (job,) if number is None else (job, number)
    columns = "number, created, boot, state, why, started, ended, port, stopped, told, progress"
    found = {
        row[0]: replace(Attempt(*row[:10]), progress=_progress_of(row[10]))
        for row in store.rows(f"SELECT {columns} FROM attempts WHERE job=?{only} ORDER BY number", parameters)
    }
    only = only.replace("number", "attempt")
    columns = "attempt, serial, wave, rank, place, state, outcome, exit, pid, ended, told"
    for row in store.rows(f"SELECT {columns} FROM tasks WHERE job=?{only} ORDER BY attempt, serial", parameters):
        place, slices = _place_of(row[4])
        task = Task(row[1], row[2], row[3], place, row[5], row[6], row[7], row[8], row[9], row[10], slices)
        found[row[0]].tasks[task.serial] = task
    return list(found.values())
