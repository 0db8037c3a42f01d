"""Submissions and previews: read and thought about outside the world's lock, taken in under it.

What a document costs to read or to look ahead for is its author's time (`call_limits`);
all stands `still` for names, caps and taking in alone.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Generic

from gpuyard import files
from gpuyard.model.errors import Conflict, Never, NotFound, Refused
from gpuyard.model.job import Job
from gpuyard.model.outside import text
from gpuyard.model.reasons import Code, Outcome
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.service import Document
from gpuyard.runtime.serving import call_limits
from gpuyard.runtime.serving.call_limits import Patience
from gpuyard.runtime.serving.port import Given, JobRecord, R, ServedWorld, SubmissionKey
from gpuyard.runtime.serving.prospects import forecast
from gpuyard.runtime.serving.submissions import intake
from gpuyard.runtime.serving.viewing import Viewer

FORECAST_JOBS_MAX = 200
"""With more jobs than this in the yard a submission is not told its forecast: acceptance must stay quick."""

KINDS_MAX = 10_000
"""Kinds of jobs that are remembered to be possible."""

MEMBERS_FORESEEN = 64
"""So many members of an array are looked ahead for: whom more of them would disturb is not told."""

Asked = Sequence[files.Submission]


class Submitting(Generic[R]):
    """Takes jobs in for one world."""

    def __init__(self, world: ServedWorld[R]) -> None:
        self._world = world
        self._intake = intake.Intake(world)
        self._possible: set[Job] = set()
        self._possible_on: object = None
        self._in_hand = _InHand()

    def submit(self, viewer: Viewer, jobs: Sequence[Document], key: str, queue_anyway: bool) -> list[Document]:
        """Accept jobs (all or none), durably, before returning."""
        call_limits.check_count(jobs, call_limits.DOCUMENTS_MAX, "submission")
        if not key:
            return self._submit(viewer, jobs, None, queue_anyway)
        digest = intake.digest(jobs)
        with self._in_hand.alone((viewer.owner.identity, key)):
            before = self._known_key(viewer, key, digest)
            return self._submit(viewer, jobs, SubmissionKey(key, digest), queue_anyway) if before is None else before

    def _submit(
        self, viewer: Viewer, jobs: Sequence[Document], key: SubmissionKey | None, queue_anyway: bool
    ) -> list[Document]:
        queues = self._world.site.queues
        read = self._read(viewer, jobs)
        asked = self._checked(viewer, read)
        if not queue_anyway:
            self._refuse_never(asked)
        forecasts = self._forecasts(viewer, asked)
        with self._world.jobs.still():
            asked = self._checked(viewer, read)
            self._check_queues(viewer, asked, queues)
            given = [Given(each, document) for each, document in zip(asked, jobs, strict=True)]
            taken = self._world.acceptance.take(viewer.owner, given)
        self._world.acceptance.accept(viewer.owner, taken, key)
        return [_accepted(job, forecasts) for job in taken]

    def let_begin_again(self, viewer: Viewer, job: R) -> None:
        """A job that has ended is asked for anew: by the rights, caps and bounds of now. All is still."""
        site = self._world.site
        asked = files.Submission(job.template.job)
        self._intake.check(viewer.caller, asked, site.queues)
        self._intake.check_caps(viewer.caller, job.owner, [asked])
        self._world.acceptance.renew(job, intake.kept_to(asked, site.policy, site.queues).job)

    def preview(self, viewer: Viewer, jobs: Sequence[Document]) -> list[Document]:
        """What would happen, in one plan for all of them."""
        call_limits.check_count(jobs, call_limits.PREVIEWS_MAX, "preview")
        asked = self._checked(viewer, self._read(viewer, jobs))
        gates = [self._gate(viewer, each, asked) for each in asked]
        firsts = [_first(viewer, each, bool(gate)) for each, gate in zip(asked, gates, strict=True)]
        others = [job for each, gate in zip(asked, gates, strict=True) for job in _others(viewer, each, bool(gate))]
        told = forecast.previews(self._moment(viewer), firsts, self._patience(), others)
        return [
            document
            | (gate if document.get("verdict") != "never" else {})
            | {"name": each.names()[0]}
            | self._loosely(each.job)
            for document, gate, each in zip(told, gates, asked, strict=True)
        ]

    def _loosely(self, job: Job) -> Document:
        """That others' CPU or memory is not safe from it, where that is so."""
        counted = self._world.acceptance.only_counted(job)
        if not counted:
            return {}
        what = " and ".join({"cpu": "its cores", "memory": "its memory"}[name] for name in counted)
        told = f"{what} {'is' if counted == ['memory'] else 'are'}"
        return {"note": f"{told} counted and not enforced: this machine gives the yard no control group for it"}

    def _gate(self, viewer: Viewer, asked: files.Submission, beside: Asked) -> Document:
        """What keeps it from the brain though it may fit: the job that it follows. Nothing where nothing does."""
        together = {name for each in beside for name in (each.job.name, *each.names())}
        for after in asked.after:
            state = "pending" if after.job in together else self._world.acceptance.state_of(viewer.owner, after.job)
            if state == "pending":
                told = f"waits until {after.job} has {'ended' if after.anyhow else 'succeeded'}"
            elif state not in ("ok", "") and not after.anyhow:
                told = f"would be cancelled at once: {after.job} {state}, and it is to follow its success"
            else:
                continue
            reason = {"code": Code.WAITS_ITS_TURN.value, "message": told}
            return {"verdict": "waits", "message": told, "reason": reason}
        return {}

    def _known_key(self, viewer: Viewer, key: str, digest: str) -> list[Document] | None:
        """What was answered to the same submission of the same owner before."""
        if told := text.wrong_line(key):
            raise Refused(f"the key {told}")
        known = self._world.acceptance.known(viewer.owner, key)
        if known is None:
            return None
        if known[0] != digest:
            raise Conflict(f"the key {key} was used for another submission; use a new one")
        return [_accepted(job, {}) for job in known[1]]

    def _read(self, viewer: Viewer, jobs: Sequence[Document]) -> list[files.Submission]:
        """What the documents ask for; nothing is compared with the yard yet, so nobody waits for it."""
        now, members, asked = self._world.now(), 0, []
        for document in jobs:
            submission = self._intake.read(viewer.caller, document, now)
            self._intake.check(viewer.caller, submission, self._world.site.queues)
            submission = intake.kept_to(submission, self._world.site.policy, self._world.site.queues)
            members += len(submission.members) or 1
            call_limits.check_members(members)
            asked.append(submission)
        return asked

    def _checked(self, viewer: Viewer, read: Asked) -> list[files.Submission]:
        """The same with every name given, checked against the jobs there are."""
        owner = viewer.owner
        with self._world.jobs.still():
            first = self._world.acceptance.next_number()
            asked = [self._intake.named(each, first + number) for number, each in enumerate(read)]
            self._intake.check_names(owner, asked)
            self._intake.check_caps(viewer.caller, owner, asked)
        self._check_followed(viewer, asked)
        return asked

    def _check_queues(self, viewer: Viewer, asked: Asked, seen: object) -> None:
        """Once more, if the queues were changed since they were looked at."""
        queues = self._world.site.queues
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
                    known[after.job] = bool(self._world.acceptance.state_of(viewer.owner, after.job))
                if not known[after.job]:
                    raise NotFound(f"job {submission.job.name} is to follow {after.job}, which nobody knows")
            beside.update((submission.job.name, *submission.names()))

    def _refuse_never(self, asked: Asked) -> None:
        """Jobs of one kind are asked about once, until the fleet or the queues change."""
        patience, done = self._patience(), 0
        bare = self._world.site.bare()
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

    def _forecasts(self, viewer: Viewer, asked: Asked) -> dict[str, Document]:
        """What is likely to become of them; not told where telling would take longer than accepting."""
        if len(asked) > 1 or not self._has_few_jobs():
            return {}
        gate = self._gate(viewer, asked[0], asked[:0])
        job = _first(viewer, asked[0], bool(gate))
        told = forecast.expect_all(self._moment(viewer), [job], self._patience())[0]
        return {asked[0].job.name: told | gate}

    def _has_few_jobs(self) -> bool:
        with self._world.jobs.still():
            return sum(1 for _ in islice(self._world.jobs.active(), FORECAST_JOBS_MAX + 1)) <= FORECAST_JOBS_MAX

    def _moment(self, viewer: Viewer) -> Snapshot:
        with self._world.jobs.still():
            return viewer.moment(self._world.site.moment(), self._world.jobs.active())

    def _patience(self) -> Patience:
        return Patience.from_now(self._world.monotonic)


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


def _accepted(job: JobRecord, forecasts: Mapping[str, Document]) -> Document:
    answer = {"name": job.name, "phase": job.phase.value, "id": job.id}
    known = forecasts.get(job.template.name)
    return answer | ({"forecast": known} if known is not None else {})


def _first(viewer: Viewer, asked: files.Submission, gated: bool = False) -> Job:
    """The job, or the first member of its array, as the moment calls it; one that is `gated` does not start yet."""
    return _member(viewer, asked, asked.names()[0], gated)


def _others(viewer: Viewer, asked: files.Submission, gated: bool) -> list[Job]:
    """The other members of an array that may come with the first."""
    most = min(asked.at_once or MEMBERS_FORESEEN, MEMBERS_FORESEEN)
    return [_member(viewer, asked, name, gated) for name in asked.names()[1:most]]


def _member(viewer: Viewer, asked: files.Submission, name: str, gated: bool) -> Job:
    return replace(asked.job, name=viewer.asked_name(name), on_hold=asked.job.on_hold or gated)
