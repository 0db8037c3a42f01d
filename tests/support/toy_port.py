"""The port of `runtime.serving` over a toy world: what a world must bring so that people can be served, and no more."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuyard.files.reading.submissions import After
from gpuyard.model.alerts import Alert
from gpuyard.model.answers.progress import Progress
from gpuyard.model.errors import NotFound
from gpuyard.model.job import Job, Phase, Placement, Run
from gpuyard.model.node import Closure, Node, Place
from gpuyard.model.ownership import NO_CAPS, Owner
from gpuyard.model.queue import Queue
from gpuyard.model.reasons import Reason
from gpuyard.model.resources import WHOLE
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.driving.driver import Driver
from gpuyard.runtime.driving.loop import Loop
from gpuyard.runtime.serving.port import Given, PastEvent, SubmissionKey, Used
from tests.support.pretend import StillClock
from tests.support.toy_world import Lifecycle, ToyWorld

WORK_S = 100.0


@dataclass(frozen=True)
class ToyTask:
    rank: int
    placement: Placement
    state: str = "running"
    outcome: str = ""
    pid: int = 0
    exit: int | None = None
    ended: float | None = None
    told: str = ""


@dataclass(frozen=True)
class ToyAttempt:
    number: int
    created: float
    tasks: Mapping[int, ToyTask]
    state: str = "running"
    why: str = ""
    progress: Progress | None = None
    told: str = ""
    story: str = ""
    started: float | None = None
    stopped: float | None = None
    ended: float | None = None

    def live(self) -> Sequence[ToyTask]:
        return list(self.tasks.values())


@dataclass
class ToyTemplate:
    id: int
    name: str
    job: Job
    owner: Owner
    submitted: float
    after: tuple[After, ...] = ()
    document: dict[str, Any] | None = None


@dataclass
class ToyRecord:
    """One job: what was submitted, and its life in the toy world."""

    template: ToyTemplate
    world: ToyWorld
    member: int | None = None
    shown: bool = True
    failures: int = 0
    losses: int = 0
    ended: float | None = None
    waits: float | None = None
    exit: int | None = None
    array: str = ""

    @property
    def life(self) -> Lifecycle:
        return self.world.jobs[self.key]

    @property
    def id(self) -> int:
        return self.template.id

    @property
    def name(self) -> str:
        return self.template.name

    @property
    def owner(self) -> Owner:
        return self.template.owner

    @property
    def key(self) -> str:
        return self.owner.key(self.name)

    @property
    def over(self) -> bool:
        return bool(self.life.over)

    @property
    def phase(self) -> Phase:
        return Phase(self.life.over or ("running" if self.life.places else "waiting"))

    @property
    def reason(self) -> Reason | None:
        return next((each.reason for each in self.world.plan.waiting if each.job == self.key), None)

    @property
    def told(self) -> str:
        return self.life.told

    @property
    def attempts(self) -> int:
        return self.life.attempts

    @property
    def evictions(self) -> int:
        return self.life.evictions

    @property
    def started(self) -> float | None:
        return self.life.since or None

    @property
    def attempt(self) -> ToyAttempt | None:
        tasks = {place.task: ToyTask(place.task, place) for place in self.life.places}
        return ToyAttempt(self.life.attempts, self.life.since, tasks) if tasks else None

    def description(self) -> Job:
        return replace(self.template.job, name=self.key)

    def held_gpus(self) -> float:
        return float(sum(len(place.gpus) for place in self.life.places))


@dataclass
class ToyPort:
    """Implements `ServedWorld[ToyRecord]`, and every part of it."""

    fleet: Snapshot
    shared: bool = False
    caps: Any = NO_CAPS
    records: dict[str, ToyRecord] = field(default_factory=dict)
    keys: dict[tuple[str, str], tuple[str, list[ToyRecord]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.world = ToyWorld(self.fleet)
        self.loop = Loop(self.world, StillClock())
        self.driver = Driver(self.loop, StillClock())
        self.loop.open()
        self.driver.turn()
        self.policy = self.fleet.policy

    @property
    def jobs(self) -> ToyPort:
        return self

    requests = acceptance = site = past = jobs

    # --- jobs ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        yield

    def refresh(self) -> None: ...
    def settle(self) -> None: ...
    def active(self) -> list[ToyRecord]:
        return [record for record in self.records.values() if not record.over]

    def recent(self) -> list[ToyRecord]:
        return [record for record in self.records.values() if record.over]

    def ended(self, owner: Owner | None) -> list[ToyRecord]:
        return [record for record in self.recent() if owner in (None, record.owner)]

    def find(self, key: str) -> ToyRecord | None:
        return self.records.get(key)

    def members(self, key: str) -> list[ToyRecord]:
        return []

    def array_owners(self, key: str) -> list[Owner]:
        return []

    def history(self, number: int) -> list[ToyAttempt]:
        return [r.attempt for r in self.records.values() if r.id == number and r.attempt is not None]

    def output(self, number: int, task: int, offset: int) -> tuple[bytes, int]:
        return b"toy\n"[offset:], 4

    def output_folder(self, number: int) -> str:
        return ""

    def terminal(self, number: int, task: int) -> str:
        return ""

    # --- wishes ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def change(self) -> Iterator[None]:
        yield
        self.driver.turn()

    def unwritten(self) -> str:
        return ""

    def cancel(self, job: ToyRecord, told: str, /) -> None:
        job.life.told = told
        self.world.end(job.life, "cancelled")

    def hold(self, job: ToyRecord, /, requeue: bool = False) -> None: ...
    def release(self, job: ToyRecord, /) -> None: ...
    def requeue(self, job: ToyRecord, /) -> None: ...
    def vouch(self, job: ToyRecord, user: str, /) -> None: ...

    # --- acceptance ------------------------------------------------------------------------------

    def check_run(self, run: Run) -> None: ...
    def only_counted(self, job: Job) -> list[str]:
        return []

    def next_number(self) -> int:
        return len(self.records) + 1

    def is_taken(self, key: str) -> bool:
        return key in self.records and not self.records[key].over

    def state_of(self, owner: Owner, name: str) -> str:
        return "pending" if self.is_taken(owner.key(name)) else ""

    def take(self, owner: Owner, given: Sequence[Given]) -> list[ToyRecord]:
        taken = []
        for each in given:
            job = each.asked.job
            template = ToyTemplate(self.next_number(), job.name, job, owner, self.now(), each.asked.after)
            record = ToyRecord(template, self.world)
            self.records[record.key] = record
            taken.append(record)
        return taken

    def accept(self, owner: Owner, taken: Sequence[ToyRecord], key: SubmissionKey | None) -> None:
        for record in taken:
            self.world.submit(record.description(), WORK_S)
        if key is not None:
            self.keys[owner.identity, key.word] = key.digest, list(taken)
        self.driver.turn()

    def known(self, owner: Owner, word: str) -> tuple[str, list[ToyRecord]] | None:
        return self.keys.get((owner.identity, word))

    def renew(self, job: ToyRecord, asked: Job) -> None:
        job.template.job = asked

    # --- the site --------------------------------------------------------------------------------

    @property
    def queues(self) -> tuple[Queue, ...]:
        return self.world.fleet.queues

    def moment(self) -> Snapshot:
        return replace(self.world.snapshot(), memory=self.loop.memory.to_document())

    def bare(self) -> Snapshot:
        return replace(self.world.fleet, now=self.now())

    def nodes(self) -> Iterable[Node]:
        return self.world.fleet.nodes

    def measured(self) -> dict[tuple[str, int], dict[str, Any]]:
        return {}

    def holders(self) -> dict[tuple[str, int], dict[int, int]]:
        held: dict[tuple[str, int], dict[int, int]] = {}
        for record in self.active():
            for place in record.life.places:
                for gpu in place.gpus:
                    held.setdefault((place.node, gpu), {})[record.id] = WHOLE
        return held

    def standing(self) -> list[tuple[str, str]]:
        return [(record.key, record.template.job.queue) for record in self.active()]

    def version(self) -> object:
        return self.loop.turns

    def closure(self, place: Place) -> Closure | None:
        for node in self.world.fleet.nodes:
            if node.name == place.node:
                return node.closed
        raise NotFound(f"there is no node {place.node}")

    def close(self, place: Place, closure: Closure | None, by: str) -> None:
        assert closure is not None
        self.world.shut(place.node, closure)
        self.driver.turn()

    def set_queues(self, queues: tuple[Queue, ...], change: dict[str, Any]) -> None:
        self.world.fleet = replace(self.world.fleet, queues=queues)

    # --- the past, and the rest ------------------------------------------------------------------

    def used(self, columns: Sequence[str], since: float, identity: str | None) -> list[Used]:
        return [Used(tuple(columns), 7.0, 0.0, 1, 0.0)]

    def counts(self) -> dict[str, Any]:
        return {}

    def last(self) -> int:
        return 0

    def events(self, after: int, limit: int) -> list[PastEvent]:
        return []

    def events_of(self, number: int) -> list[PastEvent]:
        return []

    def wait(self, after: int, timeout: float) -> bool:
        return False

    def samples(self) -> list[tuple[int, int, int, int]]:
        return []

    def now(self) -> float:
        return self.world.now()

    def monotonic(self) -> float:
        return self.world.now()

    def status(self) -> dict[str, Any]:
        return {}

    def alerts(self) -> list[Alert]:
        return []

    def stranding(self) -> dict[str, Any]:
        return {}

    def cycles(self) -> dict[str, Any]:
        return {"count": self.loop.turns}

    def backup(self, path: str) -> int:
        return 0
