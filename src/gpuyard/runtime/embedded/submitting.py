"""Submissions and previews: read and thought about outside the world's lock, taken in under it.

Used by the embedded yard. What a document costs to read or to look ahead for is its author's time (`call_limits`);
the lock is taken for names, caps and the book alone.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuyard import files
from gpuyard.model.errors import Conflict, Never, NotFound, Refused
from gpuyard.model.job import Job
from gpuyard.model.outside import text
from gpuyard.model.reasons import Outcome
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.embedded.control_plane import ControlPlane
from gpuyard.runtime.service import Document
from gpuyard.runtime.serving import call_limits, forecast, intake
from gpuyard.runtime.serving.call_limits import Patience
from gpuyard.runtime.serving.viewing import Viewer
from gpuyard.worlds.local.state import book as books
from gpuyard.worlds.local.state.records import Entry, Template

FORECAST_JOBS_MAX = 200
"""With more jobs than this in the yard a submission is not told its forecast: acceptance must stay quick."""

KINDS_MAX = 10_000
"""Kinds of jobs that are remembered to be possible."""

Asked = Sequence[files.Submission]


class Submitting:
    """Takes jobs in for one control plane."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._intake = intake.Intake(plane.settings.shared, plane.settings.caps)
        self._possible: set[Job] = set()
        self._possible_on: object = None
        self._in_hand = _InHand()

    def begin(self) -> None:
        """The control plane is up: what it found on this machine is known now."""
        self._intake.engine = self._plane.desk.around.engine

    def submit(self, viewer: Viewer, jobs: Sequence[Document], key: str, queue_anyway: bool) -> list[Document]:
        """Accept jobs (all or none), durably, before returning."""
        call_limits.check_count(jobs, call_limits.DOCUMENTS_MAX, "submission")
        if not key:
            return self._submit(viewer, jobs, None, queue_anyway)
        digest = intake.digest(jobs)
        with self._in_hand.alone((viewer.owner.identity, key)):
            before = self._known_key(viewer, key, digest)
            return self._submit(viewer, jobs, (key, digest), queue_anyway) if before is None else before

    def _submit(
        self, viewer: Viewer, jobs: Sequence[Document], key: tuple[str, str] | None, queue_anyway: bool
    ) -> list[Document]:
        queues = self._plane.world.queues
        read = self._read(viewer, jobs)
        asked = self._checked(viewer, read)
        if not queue_anyway:
            self._refuse_never(asked)
        forecasts = self._forecasts(viewer, asked)
        desk = self._plane.desk
        with desk.lock:
            asked = self._checked(viewer, read)
            self._check_queues(viewer, asked, queues)
            templates, entries = self._make(viewer, jobs, asked)
            desk.book.reserve(entries)
        numbers = json.dumps([entry.id for entry in entries])
        row = (viewer.owner.identity, *key, numbers, desk.now()) if key is not None else None
        self._plane.world.requests.accept(templates, entries, row)
        return [_accepted(entry, forecasts) for entry in entries]

    def let_begin_again(self, viewer: Viewer, entry: Entry) -> None:
        """A job that has ended is asked for anew: by the rights, caps and bounds of now. The caller has the lock."""
        queues = self._plane.world.queues
        asked = files.Submission(entry.template.job)
        self._intake.check(viewer.caller, asked, queues)
        self._intake.check_caps(viewer.caller, entry.owner, [asked], self._plane.desk.book)
        entry.template.job = intake.kept_to(asked, self._plane.settings.fleet.policy, queues).job

    def preview(self, viewer: Viewer, jobs: Sequence[Document]) -> list[Document]:
        """What would happen, in one plan for all of them."""
        call_limits.check_count(jobs, call_limits.PREVIEWS_MAX, "preview")
        asked = self._checked(viewer, self._read(viewer, jobs))
        firsts = [_first(viewer, each) for each in asked]
        told = forecast.previews(self._moment(viewer), firsts, self._patience())
        return [document | {"name": intake.names_of(each)[0]} for document, each in zip(told, asked, strict=True)]

    def _known_key(self, viewer: Viewer, key: str, digest: str) -> list[Document] | None:
        """What was answered to the same submission of the same owner before."""
        if told := text.wrong_line(key):
            raise Refused(f"the key {told}")
        store = self._plane.store
        rows = store.rows("SELECT digest, names FROM keys WHERE user = ? AND key = ?", (viewer.owner.identity, key))
        if not rows:
            return None
        if rows[0][0] != digest:
            raise Conflict(f"the key {key} was used for another submission; use a new one")
        try:
            numbers = [int(number) for number in json.loads(rows[0][1])]
        except (ValueError, TypeError):
            raise Conflict(f"what was submitted with the key {key} cannot be read any more; use a new one") from None
        found = {entry.id: entry for entry in self._numbered(numbers)}
        return [_accepted(found[number], {}) for number in numbers if number in found]

    def _numbered(self, numbers: Sequence[int]) -> list[Entry]:
        active = self._plane.desk.book.entries
        here = [entry for number in numbers if (entry := active.get(number)) is not None]
        rest = ",".join(str(number) for number in numbers if number not in active)
        return here + (books.entries(self._plane.store, f"j.id IN ({rest})", (), {}) if rest else [])

    def _read(self, viewer: Viewer, jobs: Sequence[Document]) -> list[files.Submission]:
        """What the documents ask for; nothing is compared with the yard yet, so nobody waits for it."""
        now, members, asked = self._plane.desk.now(), 0, []
        for document in jobs:
            submission = self._intake.read(viewer.caller, document, now)
            self._intake.check(viewer.caller, submission, self._plane.world.queues)
            submission = intake.kept_to(submission, self._plane.settings.fleet.policy, self._plane.world.queues)
            members += len(submission.members) or 1
            call_limits.check_members(members)
            asked.append(submission)
        return asked

    def _checked(self, viewer: Viewer, read: Asked) -> list[files.Submission]:
        """The same with every name given, checked against the jobs there are."""
        desk, owner = self._plane.desk, viewer.owner
        with desk.lock:
            asked = [self._intake.named(each, desk.book.next_job + number) for number, each in enumerate(read)]
            self._intake.check_names(owner, asked, desk.book)
            self._intake.check_caps(viewer.caller, owner, asked, desk.book)
        self._check_followed(viewer, asked)
        return asked

    def _check_queues(self, viewer: Viewer, asked: Asked, seen: object) -> None:
        """Once more, if the queues were changed since they were looked at."""
        queues = self._plane.world.queues
        if queues is not seen:
            for submission in asked:
                self._intake.check(viewer.caller, submission, queues)

    def _check_followed(self, viewer: Viewer, asked: Asked) -> None:
        beside: set[str] = set()
        known: dict[str, bool] = {}
        for submission in asked:
            for after in submission.after:
                if after.job in beside:
                    continue
                if after.job not in known:
                    known[after.job] = bool(self._plane.world.gates.look(viewer.owner, after.job)[1])
                if not known[after.job]:
                    raise NotFound(f"job {submission.job.name} is to follow {after.job}, which nobody knows")
            beside.update((submission.job.name, *intake.names_of(submission)))

    def _refuse_never(self, asked: Asked) -> None:
        """Jobs of one kind are asked about once, until the fleet or the queues change."""
        patience, done = self._patience(), 0
        with self._plane.desk.lock:
            bare = self._plane.bare()
        fleet = (bare.queues, tuple(node.name for node in bare.nodes))
        if self._possible_on != fleet or len(self._possible) > KINDS_MAX:
            self._possible, self._possible_on = set(), fleet
        possible = self._possible
        for submission in asked:
            job = submission.job
            kind = forecast.kind_of(job)
            if kind in possible:
                continue
            patience.spend(done, len(asked))
            _refuse_hopeless(bare, job)
            possible.add(kind)
            done += 1

    def _make(self, viewer: Viewer, jobs: Sequence[Document], asked: Asked) -> tuple[list[Template], list[Entry]]:
        templates: list[Template] = []
        entries: list[Entry] = []
        for document, submission in zip(jobs, asked, strict=True):
            kept = {key: value for key, value in document.items() if key != "submitted"}
            if submission.job.time_limit is not None:  # it may be the queue's, and stays when that is changed
                kept["time_limit"] = submission.job.time_limit
            written = json.dumps(
                kept | {"name": submission.job.name, "user": viewer.caller.user}, separators=(",", ":")
            )
            template, made = self._intake.make(viewer.caller, submission, self._plane.desk.book, written)
            templates.append(template)
            entries += made
        desk = self._plane.desk
        desk.numbers.secure(desk.book.next_job - 1, desk.book.next_template - 1)
        return templates, entries

    def _forecasts(self, viewer: Viewer, asked: Asked) -> dict[str, Document]:
        """What is likely to become of them; not told where telling would take longer than accepting."""
        if len(self._plane.desk.book.entries) > FORECAST_JOBS_MAX or len(asked) > 1:
            return {}
        job = _first(viewer, asked[0])
        return {asked[0].job.name: forecast.expect_all(self._moment(viewer), [job], self._patience())[0]}

    def _moment(self, viewer: Viewer) -> Snapshot:
        with self._plane.desk.lock:
            return viewer.moment(self._plane.moment(), self._plane.desk.book.active())

    def _patience(self) -> Patience:
        return Patience.from_now(self._plane.clock.monotonic)


@dataclass
class _Turn:
    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0


class _InHand:
    """Keys of submissions that are being taken in: whoever asks again with one hears the answer of the first.

    Their names are reserved before they are on disk, so asking beside it would find "there is a job of that name".
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: dict[tuple[str, str], _Turn] = {}

    @contextlib.contextmanager
    def alone(self, key: tuple[str, str]) -> Iterator[None]:
        """Nobody else has this key in hand."""
        with self._lock:
            turn = self._turns.setdefault(key, _Turn())
            turn.users += 1
        try:
            with turn.lock:
                yield
        finally:
            with self._lock:
                turn.users -= 1
                if not turn.users:
                    del self._turns[key]


def _refuse_hopeless(bare: Snapshot, job: Job) -> None:
    explanation = forecast.never(bare, job)
    if explanation is not None and explanation.reason.outcome is Outcome.NEVER:
        told = str(explanation.reason).removeprefix(f"{job.name} ")
        raise Never(f"{job.name} could never run on this fleet: it {told}")


def _accepted(entry: Entry, forecasts: Mapping[str, Document]) -> Document:
    answer = {"name": entry.name, "phase": entry.phase.value, "id": entry.id}
    known = forecasts.get(entry.template.name)
    return answer | ({"forecast": known} if known is not None else {})


def _first(viewer: Viewer, asked: files.Submission) -> Job:
    """The job, or the first member of its array, as the moment calls it."""
    return replace(asked.job, name=viewer.asked_name(intake.names_of(asked)[0]))
