"""What those who serve people need of a world: the one port behind every answer.

Used by this room alone; `runtime.embedded.local_port` brings it for this machine, a cluster's will for pods. A world
hands out records of its own kind and gets the same ones back: hence the type variable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from gpuyard.files.reading.submissions import After, Submission
from gpuyard.model.alerts import Alert
from gpuyard.model.answers.progress import Progress
from gpuyard.model.job import Job, Phase, Placement, Run
from gpuyard.model.node import Closure, Node, Place
from gpuyard.model.ownership import Caps, Owner
from gpuyard.model.policy import Policy
from gpuyard.model.queue import Queue
from gpuyard.model.reasons import Reason
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.service import Document

# --- records -------------------------------------------------------------------------------------


class TaskRecord(Protocol):
    """One task of an attempt: starting, ready, running, stopping or ended, and then with its outcome."""

    @property
    def rank(self) -> int: ...
    @property
    def state(self) -> str: ...
    @property
    def outcome(self) -> str: ...
    @property
    def placement(self) -> Placement: ...
    @property
    def pid(self) -> int: ...
    @property
    def exit(self) -> int | None: ...
    @property
    def ended(self) -> float | None: ...
    @property
    def told(self) -> str: ...


class AttemptRecord(Protocol):
    """One try at running a job; `why` it is being stopped, or was."""

    @property
    def number(self) -> int: ...
    @property
    def state(self) -> str: ...
    @property
    def why(self) -> str: ...
    @property
    def created(self) -> float: ...
    @property
    def started(self) -> float | None: ...
    @property
    def stopped(self) -> float | None: ...
    @property
    def ended(self) -> float | None: ...
    @property
    def progress(self) -> Progress | None:
        """How far it is by its own word."""

    @property
    def told(self) -> str:
        """For whom it was stopped and what was lost, in words for its owner."""

    @property
    def story(self) -> str:
        """Why it was stopped: what was told, else in a word."""

    @property
    def tasks(self) -> Mapping[int, TaskRecord]: ...
    def live(self) -> Sequence[TaskRecord]:
        """Tasks that are not over."""


class TemplateRecord(Protocol):
    """What was submitted, once for all members of an array."""

    document: dict[str, Any] | None
    """How it is told to people: kept by whoever tells it first."""

    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def job(self) -> Job: ...
    @property
    def owner(self) -> Owner: ...
    @property
    def submitted(self) -> float: ...
    @property
    def after(self) -> tuple[After, ...]: ...


class JobRecord(Protocol):
    """One job as its world knows it."""

    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def owner(self) -> Owner: ...
    @property
    def template(self) -> TemplateRecord: ...
    @property
    def array(self) -> str: ...
    @property
    def member(self) -> int | None: ...
    @property
    def phase(self) -> Phase: ...
    @property
    def over(self) -> bool: ...
    @property
    def shown(self) -> bool:
        """Whether the brain knows of it."""

    @property
    def reason(self) -> Reason | None: ...
    @property
    def told(self) -> str: ...
    @property
    def attempt(self) -> AttemptRecord | None: ...
    @property
    def attempts(self) -> int: ...
    @property
    def failures(self) -> int: ...
    @property
    def losses(self) -> int: ...
    @property
    def evictions(self) -> int: ...
    @property
    def started(self) -> float | None: ...
    @property
    def ended(self) -> float | None: ...
    @property
    def waits(self) -> float | None:
        """Since when it waits, if not since it was submitted."""

    @property
    def exit(self) -> int | None: ...
    def description(self) -> Job:
        """The job as it was asked for, under its key."""

    def held_gpus(self) -> float:
        """How many GPUs its tasks hold now, parts included."""


R = TypeVar("R", bound=JobRecord)
R_co = TypeVar("R_co", bound=JobRecord, covariant=True)
R_contra = TypeVar("R_contra", bound=JobRecord, contravariant=True)


# --- what is asked of a world --------------------------------------------------------------------


class KnownJobs(Protocol[R_co]):
    """The jobs that a world knows, also those that ended."""

    def still(self) -> AbstractContextManager[object]:
        """Nothing changes inside."""

    def refresh(self) -> None:
        """What was decided last is in the records."""

    def settle(self) -> None:
        """What was changed can be read back."""

    def active(self) -> Iterable[R_co]:
        """Those that are not over, oldest first."""

    def recent(self) -> Iterable[R_co]:
        """The newest that ended."""

    def ended(self, owner: Owner | None) -> Sequence[R_co]:
        """All that ended, of one owner or of all."""

    def find(self, key: str) -> R_co | None:
        """One by its name among everybody's: the one that is not over, else one that ended."""

    def members(self, key: str) -> Sequence[R_co]:
        """The members of an array that are not over."""

    def array_owners(self, key: str) -> Sequence[Owner]:
        """Whose arrays of that name there are, also those that ended."""

    def history(self, number: int) -> Sequence[AttemptRecord]:
        """All attempts of a job, as far as they can be read."""

    def output(self, number: int, task: int, offset: int) -> tuple[bytes, int]:
        """What a task wrote, from an offset on, some at a time; and the next offset."""

    def output_folder(self, number: int) -> str:
        """Where that is kept, for those who may look there themselves; nothing if nowhere."""

    def terminal(self, number: int, task: int) -> str:
        """Where the terminal of a task that runs is found; nothing if it does not run."""


class Wishes(Protocol[R_contra]):
    """What people want of jobs. `Conflict` says why it cannot be."""

    def cancel(self, job: R_contra, told: str, /) -> None: ...
    def hold(self, job: R_contra, /, requeue: bool = False) -> None: ...
    def release(self, job: R_contra, /) -> None: ...
    def requeue(self, job: R_contra, /) -> None: ...
    def vouch(self, job: R_contra, user: str, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Given:
    """One submission, read and checked, with the document that it came as."""

    asked: Submission
    document: Document


@dataclass(frozen=True, slots=True)
class SubmissionKey:
    """By which a repeated submission is known: its owner's word, and what was asked with it."""

    word: str
    digest: str


class Acceptance(Protocol[R]):
    """How jobs get in. `check_run`, `take` and `renew` may refuse in one sentence."""

    @property
    def caps(self) -> Caps: ...
    def check_run(self, run: Run) -> None:
        """Whether this could be run here at all."""

    def only_counted(self, job: Job) -> Sequence[str]:
        """Of the `cpu` and `memory` that it asks for, what its tasks are not kept to here."""

    def next_number(self) -> int:
        """The number that the next job gets."""

    def is_taken(self, key: str) -> bool:
        """Whether that name is one of a job that is not over."""

    def state_of(self, owner: Owner, name: str) -> str:
        """How the job stands that an owner means by that name: `pending`, `ok`, how it ended else, "" for none."""

    def take(self, owner: Owner, given: Sequence[Given]) -> Sequence[R]:
        """Make jobs of them and keep their names; called while all is `still`."""

    def accept(self, owner: Owner, taken: Sequence[R], key: SubmissionKey | None) -> None:
        """They are kept for good before this returns; or none of them is, and their names are free again."""

    def known(self, owner: Owner, word: str) -> tuple[str, Sequence[R]] | None:
        """What was submitted with that key before: its digest and its jobs. `Conflict` if that cannot be read."""

    def renew(self, job: R, asked: Job) -> None:
        """One that ended is asked for anew in this form."""


class Site(Protocol):
    """The fleet, and what people set about it."""

    @property
    def policy(self) -> Policy: ...
    @property
    def queues(self) -> Sequence[Queue]: ...
    def moment(self) -> Snapshot:
        """All of it now, and what the brain remembers."""

    def bare(self) -> Snapshot:
        """The fleet without jobs."""

    def nodes(self) -> Iterable[Node]:
        """As they are now."""

    def holders(self) -> Mapping[tuple[str, int], Mapping[int, int]]:
        """Which jobs hold how many grains of each device, by node and index."""

    def measured(self) -> Mapping[tuple[str, int], Document]:
        """What sensors tell of each device, by node and index; nothing of virtual ones."""

    def standing(self) -> Iterable[tuple[str, str]]:
        """Which job stands in which queue, those about to be accepted included."""

    def version(self) -> object:
        """Differs whenever something may have changed."""

    def closure(self, place: Place) -> Closure | None:
        """What closes a node or GPU by itself; `NotFound` if there is none such."""

    def close(self, place: Place, closure: Closure | None, by: str) -> None:
        """Close it, or open it again."""

    def set_queues(self, queues: tuple[Queue, ...], change: Document) -> None:
        """The tree as it is from now on; `change` is what was set, and is kept."""


@dataclass(frozen=True, slots=True)
class Used:
    """What one owner or queue had: `keys` are as they were asked for."""

    keys: tuple[str, ...]
    gpu_seconds: float
    money: float
    tasks: int
    lost: float
    measured: float = 0.0
    """GPU-seconds in which somebody looked, and of these, in which the GPUs were at work."""
    busy: float = 0.0


@dataclass(frozen=True, slots=True)
class PastEvent:
    """One thing that happened, to whom it belongs, and what else is to be said of it."""

    id: int
    at: float
    kind: str
    job: str
    identity: str
    rest: Document


Sample = tuple[int, int, int, int]
"""When, GPUs held, jobs that run, jobs that wait."""


class Past(Protocol):
    """What happened, and what was used."""

    def used(self, columns: Sequence[str], since: float, identity: str | None) -> Sequence[Used]:
        """By `user`, `queue` or `owner` (who a user really is), what still runs included; of one owner or of all."""

    def counts(self) -> Document:
        """`waits`, `ended`, `evictions`, `accounts`: all that only grows; and what sensors tell, as `gpu_metrics`."""

    def last(self) -> int:
        """The number of the newest event."""

    def events(self, after: int, limit: int) -> Iterable[PastEvent]:
        """Those with higher numbers, oldest first."""

    def events_of(self, number: int) -> Iterable[PastEvent]:
        """The newest of what happened to one job, oldest first."""

    def wait(self, after: int, timeout: float) -> bool:
        """Until there is a newer one; False on time-out."""

    def samples(self) -> Sequence[Sample]:
        """How it was over the last day, oldest first, and how it is now."""


class ServedWorld(Protocol[R]):
    """All of it."""

    @property
    def shared(self) -> bool:
        """Whether many people have jobs here, each under names of their own."""

    @property
    def jobs(self) -> KnownJobs[R]: ...
    @property
    def requests(self) -> Wishes[R]: ...
    @property
    def acceptance(self) -> Acceptance[R]: ...
    @property
    def site(self) -> Site: ...
    @property
    def past(self) -> Past: ...
    def change(self) -> AbstractContextManager[object]:
        """What is wanted inside happens together."""

    def unwritten(self) -> str:
        """Why what was changed is not on disk yet; empty if it is."""

    def now(self) -> float: ...
    def monotonic(self) -> float: ...
    def status(self) -> Document:
        """See `Service.status`."""

    def alerts(self) -> Sequence[Alert]:
        """What stands now that somebody should hear of."""

    def stranding(self) -> Document:
        """What of each pool's free GPUs the demand of the last day could not use, as it was last measured."""

    def cycles(self) -> Document:
        """How many plans were made, and the seconds that took."""

    def backup(self, path: str) -> int:
        """A consistent copy of the state in a new file; its bytes."""
