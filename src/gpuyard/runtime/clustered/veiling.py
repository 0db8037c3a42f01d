"""A moment as one team may see it: jobs of others under other names, and in no word that their people have chosen.

Called by `tenants`. A word of theirs (of a selector, a label, a toleration, a resource, a model) becomes another, each
always the same one: what was equal stays equal and what was not does not become so, so the brain decides the same and
says the same of one's own jobs. Words that nodes bear are no secret, nor are those by which neighbours beyond one's own
namespaces are sought: that is what was asked about. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from gpuyard.model.job import (
    MAIN,
    NAMESPACE,
    AffinityTerm,
    Bundle,
    Evenness,
    Expression,
    Job,
    Neighbour,
    Placement,
    TaskGroup,
    Terms,
)
from gpuyard.model.node import ARCHITECTURES, Node
from gpuyard.model.queue import model_matches
from gpuyard.model.resources import PORT
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.serving import masking

SOMEBODY = "somebody"
INSTANT_S = 1e-6
NUMBERED = ("Gt", "Lt")
"""Operators whose values are numbers, and compared as such."""
GroupNames = Mapping[str, str]
"""Of one job: its groups as people named them, and what they go by."""


def masked(moment: Snapshot, namespaces: Iterable[str]) -> Snapshot:
    """The same, with jobs of other namespaces under other names; nothing is left of what their people wrote."""
    theirs = set(namespaces)
    moment = replace(moment, jobs=_one_after_another(moment.jobs))
    hidden = {
        job.name: f"{SOMEBODY}-{number}"
        for number, job in enumerate(sorted(moment.jobs, key=lambda job: job.submitted))
        if namespace_of(job.name) not in theirs
    }
    families = _numbered({job.family for job in moment.jobs if job.family}, "family")
    groups = {job.name: _group_names(job) for job in moment.jobs if job.name in hidden}
    words = _renaming(moment, hidden, theirs)
    jobs = tuple(
        _veiled(job, words, families.get(job.family, ""), groups[job.name]) if job.name in hidden else job
        for job in moment.jobs
    )
    budgets = tuple(
        replace(
            budget,
            name=budget.name if namespace_of(budget.name) in theirs else f"budget-{number}",
            covers=tuple((job, groups.get(job, {}).get(group, group)) for job, group in budget.covers),
        )
        for number, budget in enumerate(moment.budgets)
    )
    reservations = tuple(
        replace(each, placements=_placed(each.placements, groups.get(each.job, {}))) for each in moment.reservations
    )
    return masking.renamed(replace(moment, jobs=jobs, budgets=budgets, reservations=reservations), {}, hidden)


def namespace_of(name: str) -> str:
    """Of a job or a budget; "" where it has none."""
    return name.partition("/")[0] if "/" in name else ""


def _one_after_another(jobs: Iterable[Job]) -> tuple[Job, ...]:
    """Kubernetes counts creations by seconds, and of one second whose name comes first goes first. Under other names it
    would be another: so the order is told by the time."""
    later: dict[float, int] = {}
    at = {}
    for job in sorted(jobs, key=lambda job: (job.submitted, job.name)):
        at[job.name] = job.submitted + later.setdefault(job.submitted, 0) * INSTANT_S
        later[job.submitted] += 1
    return tuple(replace(job, submitted=at[job.name]) for job in jobs)


# --- words -------------------------------------------------------------------------------------------


class _Words:
    """The other word for each that is nobody's business."""

    def __init__(self, renamed: Mapping[str, str]) -> None:
        self._renamed = renamed

    def __call__(self, word: str) -> str:
        return self._renamed.get(word, word)

    def pairs(self, told: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        return tuple(sorted((self(key), self(value)) for key, value in told))

    def expressions(self, told: Iterable[Expression]) -> tuple[Expression, ...]:
        return tuple(
            replace(each, key=self(each.key), values=tuple(map(self, each.values)))
            if each.operator not in NUMBERED
            else replace(each, key=self(each.key))
            for each in told
        )

    def term(self, term: AffinityTerm) -> AffinityTerm:
        return replace(term, expressions=self.expressions(term.expressions))

    def terms(self, told: Terms) -> Terms:
        return tuple(tuple(map(self.term, alternatives)) for alternatives in told)


def _renaming(moment: Snapshot, hidden: Mapping[str, str], theirs: set[str]) -> _Words:
    own = [group for job in moment.jobs if job.name not in hidden for group in job.task_groups()]
    others = [job for job in moment.jobs if job.name in hidden]
    known = {"", NAMESPACE, *ARCHITECTURES, *theirs, *(word for node in moment.nodes for word in _borne(node))}
    known |= {word for group in own for each in _sought(group, theirs, outside=True) for word in _of(each)}
    mine = {word for group in own for pair in group.labels for word in pair}
    reaching_in = (each for job in others for group in job.task_groups() for each in _sought(group, theirs, False))
    known |= {word for each in reaching_in for word in _of(each)} & mine
    models = {node.model for node in moment.nodes}
    return _Words(_numbered({word for job in others for word in _written(job, models)} - known, "word"))


def _numbered(words: Iterable[str], kind: str) -> dict[str, str]:
    """In the order in which they were."""
    return {word: f"{kind}-{number:05}" for number, word in enumerate(sorted(words))}


def _borne(node: Node) -> Iterator[str]:
    yield from (node.name, *(word for pair in node.labels for word in pair), *(name for name, _ in node.extras))
    yield from (word for taint in node.taints for word in (taint.key, taint.value))


def _sought(group: TaskGroup, theirs: set[str], outside: bool) -> Iterator[Neighbour | Evenness]:
    """Neighbours that may be outside one's own namespaces, or inside."""
    for each in _neighbours(group):
        spaces = [set(told.values) for told in each.labels if told.key == NAMESPACE and told.operator == "In"]
        if not any(space <= theirs if outside else space.isdisjoint(theirs) for space in spaces):
            yield each


def _neighbours(group: TaskGroup) -> list[Neighbour | Evenness]:
    return [*group.near, *group.apart, *group.even]


def _of(sought: Neighbour | Evenness) -> Iterator[str]:
    return (word for told in sought.labels for word in (told.key, *told.values))


def _written(job: Job, models: set[str]) -> Iterator[str]:
    yield from (word for word in job.models if not any(model_matches(word, model) for model in models))
    yield from (word for word in (job.architecture, job.min_architecture) if word.lower() not in ARCHITECTURES)
    for group in job.task_groups():
        yield from (word for pair in (*group.node_selector, *group.labels) for word in pair)
        asked = [*group.terms, *(terms for each in group.even for terms in each.among or ())]
        terms = [term for terms in asked for term in terms] + [term for term, _ in group.likes]
        for told in (told for term in terms for told in term.expressions):
            yield from (told.key, *(() if told.operator in NUMBERED else told.values))
        yield from (word for each in _neighbours(group) for word in _of(each))
        yield from (word for each in group.tolerations for word in (each.key, each.value))
        yield from (name for name, _ in group.request.extras if not name.startswith(PORT))


# --- jobs --------------------------------------------------------------------------------------------


def _veiled(job: Job, words: _Words, family: str, groups: GroupNames) -> Job:
    return replace(
        job,
        gang=_bare(job.gang, words, groups),
        family=family,
        held_for="on hold" if job.held_for else "",
        placements=_placed(job.placements, groups),
        models=tuple(map(words, job.models)),
        architecture=words(job.architecture),
        min_architecture=words(job.min_architecture),
    )


def _group_names(job: Job) -> GroupNames:
    """Sorted as before, for the brain takes groups by their names where nothing else tells them apart."""
    named = sorted({group.name for group in job.task_groups()} - {MAIN})
    return {MAIN: MAIN} | {name: f"group-{number:04}" for number, name in enumerate(named)}


def _placed(placements: Iterable[Placement], groups: GroupNames) -> tuple[Placement, ...]:
    return tuple(replace(place, group=groups.get(place.group, place.group)) for place in placements)


def _bare(bundle: Bundle, words: _Words, groups: GroupNames, name: str = "") -> Bundle:
    inside = (
        _bare(each, words, groups, f"{name or 'bundle'}-{number}")
        if isinstance(each, Bundle)
        else _plain(each, words, groups)
        for number, each in enumerate(bundle.groups)
    )
    return replace(bundle, name=name, groups=tuple(inside))


def _evenly(even: Evenness, words: _Words) -> Evenness:
    among = None if even.among is None else words.terms(even.among)
    return replace(even, labels=words.expressions(even.labels), among=among)


def _plain(group: TaskGroup, words: _Words, groups: GroupNames) -> TaskGroup:
    extras = tuple(sorted((words(name), amount) for name, amount in group.request.extras))
    return replace(
        group,
        name=groups[group.name],
        node_selector=words.pairs(group.node_selector),
        labels=words.pairs(group.labels),
        terms=words.terms(group.terms),
        likes=tuple((words.term(term), weight) for term, weight in group.likes),
        near=tuple(replace(each, labels=words.expressions(each.labels)) for each in group.near),
        apart=tuple(replace(each, labels=words.expressions(each.labels)) for each in group.apart),
        even=tuple(_evenly(each, words) for each in group.even),
        tolerations=tuple(replace(each, key=words(each.key), value=words(each.value)) for each in group.tolerations),
        request=replace(group.request, extras=extras),
    )
