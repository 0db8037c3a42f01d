"""What people ask of the local world: jobs accepted, cancelled, held, released, queued again, vouched for.

Called by the runtime from any thread, for entries whose owner was asked already; whatever changes is on disk first.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gpuyard.files.reading.submissions import Submission
from gpuyard.model.errors import Conflict
from gpuyard.model.events import JobSeen
from gpuyard.model.job import Phase
from gpuyard.model.ownership import Owner
from gpuyard.worlds.local.attempts.lifecycle import Lifecycle
from gpuyard.worlds.local.launching.burials import withheld
from gpuyard.worlds.local.state import book as books
from gpuyard.worlds.local.state.records import Entry, Template
from gpuyard.worlds.local.state.store import StoreError


class Requests:
    """Every wish that concerns one job, or those of one submission."""

    def __init__(self, life: Lifecycle) -> None:
        self.desk = life.desk
        self.gates = life.gates
        self.life = life

    def take(self, owner: Owner, given: Sequence[tuple[Submission, dict[str, Any]]]) -> list[Entry]:
        """Jobs of submissions and the documents that they came as; their names are kept until `accept`."""
        entries: list[Entry] = []
        for asked, document in given:
            kept = {key: value for key, value in document.items() if key != "submitted"}
            if asked.job.time_limit is not None:  # it may be the queue's, and stays when that is changed
                kept["time_limit"] = asked.job.time_limit
            kept |= {"name": asked.job.name, "user": owner.user}
            entries += self.desk.book.make(owner, asked, json.dumps(kept, separators=(",", ":")))
        self.desk.numbers.secure(self.desk.book.next_job - 1, self.desk.book.next_template - 1)
        self.desk.book.reserve(entries)
        return entries

    def accept(self, entries: Sequence[Entry], key: tuple[str, str, str] | None = None) -> None:
        """Jobs are on disk before anybody is told; then the brain hears of them. Others who wait share the commit.

        `key` is whose, the word, and the digest of what was asked with it.
        """
        templates = list({entry.template.id: entry.template for entry in entries}.values())
        try:
            self._write_down(templates, entries, key)
        except StoreError:
            with self.desk.lock:
                self.desk.book.unreserve(entries)
            raise
        with self.desk.lock:
            self.desk.book.make_way(entries)
            self.desk.book.arrays.update({each.key: each for each in templates if each.members})
            for entry in entries:
                self.desk.book.add(entry)
            self.gates.consider_all(entries)
        self.desk.launcher.wake()

    def _write_down(
        self, templates: Sequence[Template], entries: Sequence[Entry], key: tuple[str, str, str] | None
    ) -> None:
        first = {entry.template.id: entry for entry in reversed(entries)}
        with self.desk.store.batch() as batch:
            for template in templates:
                books.save_template(batch, template)
                members = template.members or None
                self.desk.note(batch, "submitted", first[template.id], array=members)
            books.make_way(batch, entries)
            books.insert_jobs(batch, entries)
            if key is not None:
                books.save_key(batch, key, [entry.id for entry in entries], self.desk.now())

    def cancel(self, entry: Entry, told: str) -> None:
        """End a job for good; an ended one is left alone."""
        with self.desk.change():
            entry.told = told
            self.life.ending.unfollow(entry)
            if entry.over:
                raise Conflict(f"{entry.name} has ended already: {entry.phase.value}")
            if entry.attempt is None:
                self.life.ending.over(entry, Phase.CANCELLED, told, None)
            elif entry.attempt.why != "cancelled":
                self.life.stop(entry, "cancelled")
        self.desk.launcher.wake()

    def hold(self, entry: Entry, requeue: bool = False) -> None:
        """Keep a job from starting: what runs goes on, unless it is to be stopped too, and waits when it has stopped.

        A move under way is no start. What is only promised its places does not run yet.
        """
        with self.desk.change():
            entry.held = True
            attempt = entry.attempt
            if attempt is None:
                self.life.ending.wait_again(entry, "held")
            elif not attempt.why and (requeue or attempt.state == "promised"):
                self.desk.keep(entry)
                self.life.stop(entry, "held")
            else:
                self._keep_held(entry, stays=requeue or attempt.why != "moved")
        self.desk.launcher.wake()

    def _keep_held(self, entry: Entry, stays: bool) -> None:
        """For one that runs, or is stopping: noted, and the brain starts nothing more of it."""
        if stays:
            self.life.ending.unfollow(entry)
        self.desk.keep(entry)
        self.desk.say("held", entry, message="it runs on, and is held once it stops")
        if entry.shown:
            self.desk.events.append(JobSeen(entry.job()))

    def release(self, entry: Entry) -> None:
        """Let a held job go on."""
        if not entry.held:
            raise Conflict(f"{entry.name} is not held; it is {entry.phase.value}")
        with self.desk.change():
            entry.held = False
            self.desk.keep(entry)
            if entry.shown:
                self.desk.events.append(JobSeen(entry.job()))
            if entry.attempt is None:
                entry.phase, entry.told = Phase.WAITING, ""
                self.desk.keep(entry)
                self.desk.say("released", entry)
                self.gates.consider(entry)
        self.desk.launcher.wake()

    def requeue(self, entry: Entry) -> None:
        """Stop what runs and let it wait for a new start; one that has ended begins again."""
        with self.desk.change():
            entry.not_before = 0.0
            if entry.over:
                self._revive(entry)
            elif entry.attempt is None:
                self.gates.consider(entry)
            elif not entry.attempt.why:
                self.life.stop(entry, "requeued")
        self.desk.launcher.wake()

    def vouch(self, entry: Entry, user: str) -> None:
        """An operator says that nothing is left of its tasks that are in doubt."""
        attempt = entry.attempt
        doubts = self.desk.launcher.doubts()
        keys = [key for key in doubts if attempt and (key.job, key.attempt) == (entry.id, attempt.number)]
        if not keys:
            raise Conflict(f"nothing of {entry.name} is in doubt; `yard status` names what is")
        with self.desk.change():
            for key in keys:
                self.desk.say("vouched", entry, message=f"{user} vouched that nothing is left of it: {doubts[key]}")
                self.desk.launcher.vouch(key)

    def withheld(self) -> list[str]:
        """What nobody else gets because its last holder is not proven gone, and why."""
        told = []
        for key, doubt in self.desk.launcher.doubts().items():
            entry = self.desk.book.entries.get(key.job)
            attempt = entry.attempt if entry is not None else None
            if entry is None or attempt is None or attempt.number != key.attempt:
                told.append(f"a task that no job knows of may not be gone: {doubt}")
                continue
            place = attempt.tasks[key.serial].placement
            told.append(f"{entry.key}: {withheld(place, doubt)}; end it, or `yard vouch {entry.key}`")
        return told

    def _revive(self, entry: Entry) -> None:
        entry.phase = Phase.HELD if entry.held else Phase.WAITING  # held while it ran its last, it stays held
        entry.told, entry.failures, entry.losses = "", 0, 0
        entry.ended = entry.exit = entry.started = None
        entry.waits = self.desk.now()
        entry.begin_anew()
        self.desk.book.revive(entry)
        self.desk.keep(entry)
        self.desk.say("requeued", entry)
        self.gates.consider(entry)
