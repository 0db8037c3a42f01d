"""Which waiting jobs the brain gets to see: not those held, not before their dependencies, array turn or back-off,
nor those that would be too many at once.

Used by `lifecycle` and `world`. A gate is not a placement decision: a job behind one has nothing to be placed yet.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable

from gpuyard.model.events import JobGone, JobSeen
from gpuyard.model.job import Phase
from gpuyard.model.outside.phrases import are, counted
from gpuyard.model.ownership import NO_CAPS, Caps, Owner
from gpuyard.model.reasons import Code, Reason
from gpuyard.worlds.local.attempts.crowd import Crowd, tasks_of
from gpuyard.worlds.local.attempts.desk import Desk
from gpuyard.worlds.local.state.records import Entry, Template
from gpuyard.worlds.local.state.schema import KEY
from gpuyard.worlds.local.state.store import Batch

REST_MAX_S = 300.0
"""No back-off is longer."""
SAME_S = 0.5
"""Two moments so near are one: whoever is held and released while it rests does not rest anew."""


class Gates:
    """Opens and closes the view on waiting jobs."""

    def __init__(self, desk: Desk, caps: Caps = NO_CAPS) -> None:
        self.desk = desk
        self.crowd = Crowd(desk.holdings, caps)
        self._dependents: dict[str, dict[int, Entry]] = {}
        self._resting: list[tuple[float, int]] = []
        """(when by the monotonic clock, job): jobs in back-off."""
        self._rests_until: dict[int, float] = {}
        """Which of those is meant, where a job has rested more than once."""
        self._looked: dict[tuple[str, str], tuple[str, str]] | None = None
        """What names meant, while nothing else happens."""
        self.doomed: list[tuple[Entry, str]] = []
        """Jobs whose dependency can no longer be met, and why."""

    def consider(self, entry: Entry) -> None:
        """Show a waiting job to the brain if nothing stands before it; else say what does."""
        if entry.shown or entry.over:
            return
        entry.reason = self._closed(entry)
        if entry.reason is not None:
            entry.kept_back = True
        else:
            self._waits_from_now(entry)
            entry.shown = True
            entry.template.active += 1
            self.desk.events.append(JobSeen(entry.job()))

    def _waits_from_now(self, entry: Entry) -> None:
        """What it spent behind a gate was no wait; after a crash that is still known."""
        if entry.kept_back:
            entry.kept_back, entry.waits = False, self.desk.now()
            batch = Batch()
            batch.add("UPDATE jobs SET waits = ? WHERE id = ?", (entry.waits, entry.id))
            self.desk.store.defer(batch)

    def consider_all(self, entries: Iterable[Entry]) -> None:
        """Many at once, whom nothing else comes between: what they follow is looked for once."""
        self._looked = {}
        try:
            for entry in entries:
                self.consider(entry)
        finally:
            self._looked = None

    def hide(self, entry: Entry) -> None:
        """The brain has nothing more to do with it; the next member of its array may come, and who waits for room."""
        if entry.shown:
            entry.shown = False
            entry.template.active -= 1
            self.desk.events.append(JobGone(entry.key))
            self.room_again()
        self._next_member(entry.template)

    def _closed(self, entry: Entry) -> Reason | None:
        if entry.held:
            return Reason(Code.HELD, message=f"{entry.name} is held; `yard release {entry.name}` lets it go on")
        return self._dependency(entry) or self._rest(entry) or self._array(entry) or self._crowded(entry)

    def _array(self, entry: Entry) -> Reason | None:
        template = entry.template
        if not template.at_once or template.active < template.at_once:
            return None
        self.desk.book.gated.setdefault(template.id, {})[entry.id] = entry
        busy = f"{template.active} of {counted(template.at_once, 'member')} of {template.name}"
        told = f"{busy} {are(template.active)} at work; it follows when one ends"
        return Reason(Code.WAITS_ITS_TURN, where=template.name, message=told)

    def _next_member(self, template: Template) -> None:
        queue = self.desk.book.gated.get(template.id)
        while queue and template.active < template.at_once:
            self.consider(queue.pop(next(iter(queue))))

    # --- too many --------------------------------------------------------------------------------

    def _crowded(self, entry: Entry) -> Reason | None:
        reason = self.crowd.hindrance(entry, tasks_of(entry))
        if reason is not None:
            self.crowd.wait(entry)
        return reason

    def keep_out(self, entry: Entry, count: int) -> bool:
        """Whether so many tasks of a job are too many now; then it waits, unseen, until others end."""
        reason = self.crowd.hindrance(entry, count)
        if reason is None:
            return False
        self.hide(entry)
        entry.reason = reason
        self.crowd.wait(entry)
        return True

    def room_again(self) -> None:
        """A task has ended, or one that was to come does not: those who waited for its room may be tried."""
        for entry in self.crowd.next():
            if entry.phase is Phase.WAITING:
                self.consider(entry)

    # --- dependencies ----------------------------------------------------------------------------

    def _dependency(self, entry: Entry) -> Reason | None:
        for after in entry.template.after:
            key, state = self.look(entry.owner, after.job)
            if state == "pending":
                self._dependents.setdefault(key, {})[entry.id] = entry
                how = "has ended" if after.anyhow else "has succeeded"
                return Reason(
                    Code.WAITS_ITS_TURN, where=after.job, message=f"{entry.name} waits until {after.job} {how}"
                )
            if state != "ok" and not after.anyhow:
                told = f"{after.job} {state}, and {entry.name} was to follow its success"
                self.doomed.append((entry, told))
                return Reason(Code.WAITS_ITS_TURN, where=after.job, message=told)
        return None

    def look(self, owner: Owner, name: str) -> tuple[str, str]:
        """What an owner's `after` means, and how that stands (see `state_of`): others' jobs do not exist for them."""
        asked, looked = (owner.identity, name), self._looked
        if looked is not None and asked in looked:
            return looked[asked]
        found = [(key, self.state_of(key, owner)) for key in owner.meanings(name)]
        meant = next((each for each in found if each[1]), found[0])
        if looked is not None:
            looked[asked] = meant
        return meant

    def state_of(self, key: str, owner: Owner) -> str:
        """`pending`, `ok`, how it ended otherwise, or nothing if they have none; of an array: all its members."""
        entry = self.desk.book.find(key)
        if entry is not None and (owner.uid <= 0 or entry.owner.uid == owner.uid):
            return "pending"
        phases = self._phases("j.name = ?", key, owner) or self._phases(
            f"j.member IS NOT NULL AND t.id = (SELECT max(t.id) FROM templates t WHERE {KEY} = ?)", key, owner
        )
        if not phases:
            return ""
        if phases - {"succeeded", "failed", "cancelled"}:
            return "pending"
        return "ok" if phases == {"succeeded"} else " and ".join(sorted(phases - {"succeeded"}))

    def _phases(self, where: str, key: str, owner: Owner) -> set[str]:
        rows = self.desk.store.rows(
            "SELECT DISTINCT j.phase FROM templates t JOIN jobs j ON j.template = t.id "
            f"WHERE {where} AND (? <= 0 OR t.uid = ?)",
            (key, owner.uid, owner.uid),
        )
        return {row[0] for row in rows}

    def ended(self, entry: Entry) -> None:
        """A job is over and written down: those that waited for it look again."""
        for key in filter(None, (entry.key, entry.array)):
            if key in self._dependents and self.state_of(key, entry.owner) != "pending":
                for follower in self._dependents.pop(key).values():
                    if follower.phase is Phase.WAITING:
                        self.consider(follower)

    # --- back-off --------------------------------------------------------------------------------

    def _rest(self, entry: Entry) -> Reason | None:
        now = self.desk.now()
        if entry.not_before <= now:
            return None
        left = min(entry.not_before - now, REST_MAX_S)  # what was written before the clock was set is no promise
        due = self.desk.monotonic() + left
        if abs(self._rests_until.get(entry.id, math.inf) - due) > SAME_S:
            self._rests_until[entry.id] = due
            heapq.heappush(self._resting, (due, entry.id))
        message = f"{entry.name} is tried again in {left:.0f} s"
        return Reason(Code.WAITS_ITS_TURN, message=message)

    def rested(self, now: float) -> None:
        """Show those whose back-off is over by the monotonic clock."""
        while self._resting and self._resting[0][0] <= now:
            due, job = heapq.heappop(self._resting)
            if self._rests_until.get(job) != due:
                continue  # it has rested anew since
            del self._rests_until[job]
            entry = self.desk.book.entries.get(job)
            if entry is not None and entry.phase is Phase.WAITING:
                entry.not_before = 0.0
                self.consider(entry)

    def next_due(self) -> float | None:
        """When the next back-off is over."""
        return self._resting[0][0] if self._resting else None
