"""Jobs: from entries to the model's values, and job files.

Called by `snapshots` for every job, and by the command line for `yard submit FILE`. What a job says about itself is
checked here; whether its queue and nodes exist, and whether its GPUs are free, is for `crosscheck`.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from gpuyard.files.format.entries import (
    AskEntry,
    CheckpointEntry,
    EvennessEntry,
    ExpressionEntry,
    JobEntry,
    JobFileEntry,
    LikeEntry,
    NeighbourEntry,
    RunEntry,
    TermEntry,
    TolerationEntry,
)  # fmt: skip
from gpuyard.files.format.tables import read_entry
from gpuyard.files.problems import Path, Problems, inside_of
from gpuyard.files.reading.placements import placements_of
from gpuyard.files.text import documents
from gpuyard.model.job import (
    MAIN,
    AffinityTerm,
    Avoid,
    Bundle,
    Checkpoint,
    Evenness,
    Expression,
    Job,
    Likes,
    Neighbour,
    Run,
    TaskGroup,
    Terms,
    Toleration,
    one_group,
)  # fmt: skip
from gpuyard.model.outside.phrases import agreeing, are, counted
from gpuyard.model.queue import DEFAULT
from gpuyard.model.resources import Request
from gpuyard.model.topology import ANYWHERE, TopologyAsk


def read_job(path: pathlib.Path, now: float) -> Job:
    """The job a file describes; `now` is when it was submitted, if it does not say."""
    return parse_job(documents.read_text(path), str(path), now)


def parse_job(text: str, name: str, now: float) -> Job:
    """The job a text describes; `name` is what to call the text when it is wrong."""
    document = documents.parse(text, name)
    return job_file(document.data, name, now, document.line)[0]


def job_file(data: Any, name: str, now: float, line: Callable[[Path], int]) -> tuple[Job, JobFileEntry]:
    """The job that a file's content describes, and the entry with what else the file says."""
    problems = Problems(name, data)
    with documents.depth_refused(name):
        entry = read_entry(JobFileEntry, data, (), problems)
    for key in ("placements", "started", "waiting_since", "stale_since"):
        if isinstance(data, dict) and key in data:
            problems.add((key,), f"a job file describes what is to be run, so it has no {key}")
    job = job_of(entry, (), now, problems) if entry is not None else None
    problems.refuse_if_any(line)
    assert job is not None
    assert entry is not None
    return job, entry


def job_of(entry: JobEntry, at: Path, now: float, problems: Problems) -> Job:
    """A job as the model holds it."""
    started, submitted = entry.started, entry.submitted
    gang = _gang(entry, at, problems)
    return Job(
        name=entry.name,
        gang=gang,
        # A foreign load may stand in no queue at all: it is nobody's here.
        queue=entry.queue or ("" if entry.foreign else DEFAULT),
        user=entry.user,
        job_class=entry.job_class,
        priority=entry.priority,
        preemptible=entry.preemptible,
        submitted=submitted if submitted is not None else started if started is not None else now,
        started=started,
        models=entry.models,
        min_gpu_memory=entry.min_gpu_memory,
        min_architecture=entry.min_architecture,
        architecture=entry.architecture,
        avoid=Avoid(entry.avoid.level, entry.avoid.queues, entry.avoid.own) if entry.avoid else None,
        time_limit=entry.time_limit,
        min_runtime=entry.min_runtime,
        warm_up=entry.warm_up,
        duration=entry.duration,
        attained=entry.attained,
        checkpoint=_checkpoint(entry.checkpoint) if entry.checkpoint else None,
        evictions=entry.evictions,
        waiting_since=entry.waiting_since,
        stale_since=entry.stale_since,
        stale_grace=entry.stale_grace,
        placements=placements_of(entry.placements, list(gang.leaves()), (*at, "placements"), problems),
        foreign=entry.foreign,
        on_hold=entry.held,
        held_for=entry.held_for,
        takes=entry.takes,
        family=entry.family,
        run=_run(entry.run) if entry.run else None,
    )


def _checkpoint(entry: CheckpointEntry) -> Checkpoint:
    return Checkpoint(entry.interval, entry.last, entry.grace, entry.signal)


def _run(entry: RunEntry) -> Run:
    return Run(entry.command, entry.env, entry.workdir, entry.retries, entry.image, entry.tty)


def _terms(entry: AskEntry, at: Path, problems: Problems) -> Terms:
    places = [((*at, "affinity"), entry.affinity or ())]
    places += [((*at, "terms", place), terms) for place, terms in enumerate(entry.terms)]
    for here, terms in places:
        _check_terms(terms, here, problems)
    return tuple(alternatives for alternatives in map(_alternatives, (terms for _, terms in places)) if alternatives)


def _alternatives(entries: Iterable[TermEntry]) -> tuple[AffinityTerm, ...]:
    return tuple(AffinityTerm(tuple(map(_expression, entry.match_expressions))) for entry in entries)


def _check_terms(terms: Iterable[TermEntry], at: Path, problems: Problems) -> None:
    for place, term in enumerate(terms):
        for number, expression in enumerate(term.match_expressions):
            _check_expression(expression, (*at, place, "matchExpressions", number), problems)


def _neighbour(entry: NeighbourEntry) -> Neighbour:
    return Neighbour(entry.level, tuple(map(_expression, entry.match_expressions)))


def _evenness(entry: EvennessEntry) -> Evenness:
    labels = tuple(map(_expression, entry.match_expressions))
    among = None if entry.among is None else tuple(map(_alternatives, entry.among))
    return Evenness(entry.level, labels, entry.skew, entry.least_domains, among)


def _check_company(entry: AskEntry, at: Path, problems: Problems) -> None:
    for key in ("near", "apart", "even"):
        _check_terms(getattr(entry, key) or (), (*at, key), problems)
    for place, even in enumerate(entry.even or ()):
        for number, terms in enumerate(even.among or ()):
            _check_terms(terms, (*at, "even", place, "among", number), problems)


def _likes(entries: Iterable[LikeEntry], at: Path, problems: Problems) -> Likes:
    _check_terms(entries, (*at, "likes"), problems)
    return tuple((AffinityTerm(tuple(map(_expression, e.match_expressions))), e.weight) for e in entries)


def _expression(entry: ExpressionEntry) -> Expression:
    return Expression(entry.key, entry.operator, entry.values)


def _check_expression(entry: ExpressionEntry, at: Path, problems: Problems) -> None:
    match entry.operator:
        case "Exists" | "DoesNotExist" if entry.values:
            problems.tell(at, f"takes no values with {entry.operator}")
        case "In" | "NotIn" if not entry.values:
            problems.tell(at, f"needs values with {entry.operator}")
        case "Gt" | "Lt" if len(entry.values) != 1 or not entry.values[0].lstrip("-").isdecimal():
            problems.tell(at, f"needs one whole number (in quotes) as its value with {entry.operator}")


# --- the gang ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Inherited:
    """What a leaf takes from the groups around it and from the job where it says nothing itself."""

    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    terms: Terms = ()
    likes: Likes = ()
    labels: tuple[tuple[str, str], ...] = ()
    near: tuple[Neighbour, ...] = ()
    apart: tuple[Neighbour, ...] = ()
    even: tuple[Evenness, ...] = ()

    def under(self, entry: AskEntry, at: Path, problems: Problems) -> _Inherited:
        selector = self.node_selector if entry.node_selector is None else entry.node_selector
        borne = self.tolerations if entry.tolerations is None else _tolerations(entry.tolerations, at, problems)
        terms = self.terms if entry.affinity is None and not entry.terms else _terms(entry, at, problems)
        likes = self.likes if entry.likes is None else _likes(entry.likes, at, problems)
        near = self.near if entry.near is None else tuple(map(_neighbour, entry.near))
        apart = self.apart if entry.apart is None else tuple(map(_neighbour, entry.apart))
        even = self.even if entry.even is None else tuple(map(_evenness, entry.even))
        _check_company(entry, at, problems)
        labels = self.labels if entry.labels is None else entry.labels
        return _Inherited(selector, borne, terms, likes, labels, near, apart, even)


_NOTHING = _Inherited()

NESTED_MAX = 16
"""Groups within groups; trainings have two or three levels."""

_ON_LEAVES = ("tasks", "min", "gpus", "fraction", "gpu_memory", "mig", "cpu", "memory", "extras", "failed", "succeeded",
              "ended", "tried", "absent")  # fmt: skip
"""What only a group of tasks can say; a group of groups leaves it to them."""


def _gang(entry: JobEntry, at: Path, problems: Problems) -> Bundle:
    gang = _gang_of(entry, at, problems)
    if any(True for _ in gang.leaves()) and gang.complete({}):
        if entry.groups is None:
            problems.tell((*at, "min"), "must be at least 1")
        else:
            problems.tell((*at, "groups"), "need nobody, so that it would never start: give one of them a min above 0")
    return gang


def _gang_of(entry: JobEntry, at: Path, problems: Problems) -> Bundle:
    inherited = _NOTHING.under(entry, at, problems)
    if entry.groups is None:
        if entry.min_groups is not None:
            problems.add((*at, "min_groups"), "min_groups is given, but there are no groups")
        return one_group(_leaf(MAIN, entry, at, inherited, problems), _topology(entry))
    bundle = _bundle("", entry, at, inherited, problems)
    _check_group_names(bundle, at, problems)
    return bundle


def _bundle(name: str, entry: AskEntry, at: Path, inherited: _Inherited, problems: Problems) -> Bundle:
    for key in _ON_LEAVES:
        if getattr(entry, key) not in (None, ()):
            problems.add((*at, key), f"{inside_of((*at, key))} must stand on the groups, because there are groups")
    entries = entry.groups or ()
    if at.count("groups") > NESTED_MAX:
        problems.tell(at, f"nests groups deeper than {NESTED_MAX} levels")
        entries = ()
    groups = [_group(group, (*at, "groups", place), inherited, problems) for place, group in enumerate(entries)]
    least = len(groups) if entry.min_groups is None else entry.min_groups
    if least > len(groups):
        there = f"there {are(len(groups))} only {counted(len(groups), 'group')}"
        problems.tell((*at, "min_groups"), f"is {least}, but {there}")
    return Bundle(name, tuple(groups), least, _topology(entry))


def _group(entry: AskEntry, at: Path, inherited: _Inherited, problems: Problems) -> TaskGroup | Bundle:
    inherited = inherited.under(entry, at, problems)
    if entry.groups is not None:
        return _bundle(entry.name, entry, at, inherited, problems)
    if entry.min_groups is not None:
        problems.tell((*at, "min_groups"), "is given, but there are no groups")
    return _leaf(entry.name, entry, at, inherited, problems, _topology(entry))


def _leaf(
    name: str, entry: AskEntry, at: Path, inherited: _Inherited, problems: Problems, topology: TopologyAsk = ANYWHERE
) -> TaskGroup:
    tasks = 1 if entry.tasks is None else entry.tasks
    least = tasks if entry.min is None else entry.min
    failed, succeeded, absent = entry.failed or 0, entry.succeeded or 0, entry.absent or 0
    if least > tasks:
        problems.tell((*at, "min"), f"is {least}, more than tasks ({tasks})")
    if (ended := failed + succeeded) > tasks:
        there = f"there {are(tasks)} {counted(tasks, 'task')}"
        problems.tell((*at, "failed"), f"and succeeded count {counted(ended, 'member')}, and {there}")
    elif ended + absent > tasks:
        have = agreeing(ended, "has", "have")
        problems.tell((*at, "absent"), f"is {absent}, and of {counted(tasks, 'task')} {ended} {have} ended")
    request = _request(entry, at, problems)
    return TaskGroup(
        name,
        tasks,
        least,
        request,
        topology,
        inherited.node_selector,
        inherited.terms,
        inherited.likes,
        inherited.labels,
        inherited.near,
        inherited.apart,
        inherited.even,
        inherited.tolerations,
        failed,
        succeeded,
        absent,
        entry.ended,
        entry.tried,
    )


def _request(entry: AskEntry, at: Path, problems: Problems) -> Request:
    asked = [key for key in ("gpus", "fraction", "gpu_memory", "mig") if getattr(entry, key)]
    if len(asked) > 1:
        problems.tell((*at, asked[1]), f"and {asked[0]} are both given; a task asks for one of them")
    return Request(
        gpus=entry.gpus or 0,
        share=entry.fraction or 0,
        gpu_memory=entry.gpu_memory or 0,
        mig=entry.mig,
        cpu=entry.cpu or 0,
        memory=entry.memory or 0,
        extras=tuple(sorted((name, amount) for name, amount in entry.extras or () if amount)),
    )


def _topology(entry: AskEntry) -> TopologyAsk:
    return TopologyAsk(entry.topology.required, entry.topology.preferred) if entry.topology else ANYWHERE


def _tolerations(entries: Iterable[TolerationEntry], at: Path, problems: Problems) -> tuple[Toleration, ...]:
    made = []
    for place, entry in enumerate(entries):
        here = (*at, "tolerations", place)
        if entry.operator == "Exists" and entry.value:
            problems.tell(here, "takes no value with Exists")
        if entry.operator == "Equal" and not entry.key:
            problems.tell(here, "needs a key, or the operator Exists")
        made.append(Toleration(entry.key, entry.operator, entry.value, entry.effect))
    return tuple(made)


def _check_group_names(bundle: Bundle, at: Path, problems: Problems, seen: set[str] | None = None) -> None:
    seen = set() if seen is None else seen
    for place, group in enumerate(bundle.groups):
        here = (*at, "groups", place)
        if group.name in seen:
            problems.tell((*here, "name"), f"is {group.name}, as another group of this job is named")
        seen.add(group.name)
        if isinstance(group, Bundle):
            _check_group_names(group, here, problems, seen)
