"""Neighbours that a pod must have, must not have, or must lie evenly among, as the model has them.

A pod is known to others by its labels and its namespace, but only by those that some pod's selectors mention: the rest
would tell pods apart that are alike. What cannot be promised is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpuyard.kube.objects import LabelSelector, Metadata, PodSpec, PodTerm, SpreadConstraint
from gpuyard.model.job import NAMESPACE, Evenness, Expression, Neighbour, TaskGroup, Terms
from gpuyard.model.topology import NODE
from gpuyard.worlds.kubernetes.asking import levels, terms
from gpuyard.worlds.kubernetes.asking.marks import ReadingSettings
from gpuyard.worlds.kubernetes.asking.refusals import Refusal, RefusalName
from gpuyard.worlds.kubernetes.asking.selectors import MADE_LABELS, holds, label_key

_NOBODY = (Expression(NAMESPACE, "DoesNotExist"),)


@dataclass(frozen=True, slots=True)
class CompanyAsked:
    """What a pod is known by, and whom it seeks and shuns."""

    labels: tuple[tuple[str, str], ...] = ()
    near: tuple[Neighbour, ...] = ()
    apart: tuple[Neighbour, ...] = ()
    even: tuple[Evenness, ...] = ()


def label_keys(spec: PodSpec) -> frozenset[str]:
    """The labels that a pod's required terms mention; all pods together are `ReadingSettings.label_keys`."""
    if spec.affinity is None and not spec.topology_spread_constraints:
        return frozenset()  # most pods
    near, apart, even = _terms(spec)
    keys = {key for term in (*near, *apart) for key in _keys(term.label_selector)}
    keys |= {key for constraint in even for key in _keys(constraint.label_selector)}
    keys |= {key for constraint in even for key in constraint.match_label_keys or ()}
    for term in (*near, *apart):
        keys |= {*(term.match_label_keys or ()), *(term.mismatch_label_keys or ())}
    return frozenset((*map(label_key, keys), NAMESPACE)) if near or apart or even else frozenset()


def company_of(spec: PodSpec, metadata: Metadata, settings: ReadingSettings) -> CompanyAsked | Refusal:
    """All of it."""
    near, apart, even = _terms(spec)
    keys = settings.label_keys | label_keys(spec)
    found = []
    for side in (near, apart):
        read = [_neighbour(term, metadata, settings) for term in side]
        refused = next((each for each in read if isinstance(each, Refusal)), None)
        if refused is not None:
            return refused
        found.append(tuple(each for each in read if isinstance(each, Neighbour)))
    among = terms.own_terms(spec) if even else ()
    spreads = [_evenness(constraint, among, metadata, settings) for constraint in even]
    for each in spreads:
        if isinstance(each, Refusal):
            return each
    labels = tuple(sorted((key, value) for key, value in _borne(metadata).items() if key in keys))
    sought, shunned = _all_of(found[0]), found[1]
    return CompanyAsked(labels, sought, shunned, tuple(e for e in spreads if isinstance(e, Evenness)))


def _all_of(sought: tuple[Neighbour, ...]) -> tuple[Neighbour, ...]:
    """Only somebody of whom all terms are true is the neighbour that any of them seeks."""
    labels = tuple(dict.fromkeys(expression for term in sought for expression in term.labels))
    return tuple(dict.fromkeys(Neighbour(term.level, labels) for term in sought))


def known_as(spec: PodSpec, metadata: Metadata, settings: ReadingSettings) -> CompanyAsked:
    """What a pod that stands is to others: how it is known, and whom it keeps off; whom it sought is over.

    Nothing of a pod that is there can be refused: namespaces by their labels are all namespaces, rather too many than
    too few, and by a label that is no level it keeps others off its own node, which is surely of its domain.
    """
    keys = settings.label_keys
    labels = tuple(sorted((key, value) for key, value in _borne(metadata).items() if key in keys))
    apart = (_meant(term, metadata, settings.level(term.topology_key) or NODE) for term in _terms(spec)[1])
    return CompanyAsked(labels, apart=tuple(apart))


def keeps_apart(spec: PodSpec) -> bool:
    """Whether there are neighbours that it must not have."""
    return spec.affinity is not None and bool(_terms(spec)[1])


def meant_by(groups: Iterable[TaskGroup]) -> Iterator[tuple[Expression, ...]]:
    """All neighbours that these seek, shun, or lie evenly among."""
    for group in groups:
        yield from (term.labels for term in (*group.near, *group.apart))
        yield from (term.labels for term in group.even)


def is_meant(metadata: Metadata, meant: Iterable[tuple[Expression, ...]]) -> bool:
    """Whether any of these is about it."""
    mine = _borne(metadata)
    return any(all(holds(each, mine) for each in expressions) for expressions in meant)


def _borne(metadata: Metadata) -> dict[str, str]:
    labels = metadata.labels or {}
    named = {label_key(key): labels[key] for key in MADE_LABELS if key in labels}
    return {**labels, **named, NAMESPACE: metadata.namespace}


def is_soft(spec: PodSpec) -> bool:
    """Whether it has wishes for neighbours that are not kept: they are only preferred."""
    affinity = spec.affinity
    sides = (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity else ()
    liked = any(side is not None and side.preferred_during_scheduling_ignored_during_execution for side in sides)
    return liked or any(c.when_unsatisfiable != "DoNotSchedule" for c in spec.topology_spread_constraints or ())


def _terms(spec: PodSpec) -> tuple[list[PodTerm], list[PodTerm], list[SpreadConstraint]]:
    affinity = spec.affinity
    near = affinity.pod_affinity if affinity else None
    apart = affinity.pod_anti_affinity if affinity else None
    even = [c for c in spec.topology_spread_constraints or () if c.when_unsatisfiable == "DoNotSchedule"]
    return (
        list((near.required_during_scheduling_ignored_during_execution if near else None) or ()),
        list((apart.required_during_scheduling_ignored_during_execution if apart else None) or ()),
        even,
    )


def _keys(selector: LabelSelector | None) -> Iterable[str]:
    if selector is None:
        return ()
    return (*(selector.match_labels or {}), *(each.key for each in selector.match_expressions or ()))


def _neighbour(term: PodTerm, metadata: Metadata, settings: ReadingSettings) -> Neighbour | Refusal:
    level = settings.level(term.topology_key)
    if not level:
        return _no_level(term.topology_key, settings)
    everywhere = term.namespace_selector
    if everywhere is not None and (everywhere.match_labels or everywhere.match_expressions):
        told = "it seeks neighbours in namespaces by their labels; name the namespaces, or take all with {}"
        return Refusal(RefusalName.POD_AFFINITY, told)
    return _meant(term, metadata, level)


def _meant(term: PodTerm, metadata: Metadata, level: str) -> Neighbour:
    """Those that it means in its namespaces; in all, where it chooses some of them by their labels."""
    everywhere = term.namespace_selector is not None
    spaces = () if everywhere else tuple(term.namespaces or (metadata.namespace,))
    mine = metadata.labels or {}
    more = [Expression(label_key(key), "In", (mine[key],)) for key in term.match_label_keys or () if key in mine]
    more += [Expression(label_key(key), "NotIn", (mine[key],)) for key in term.mismatch_label_keys or () if key in mine]
    return Neighbour(level, (*_expressions(term.label_selector), *more, *_inside(spaces)))


def _evenness(
    asked: SpreadConstraint, among: Terms, metadata: Metadata, settings: ReadingSettings
) -> Evenness | Refusal:
    level = settings.level(asked.topology_key)
    if not level:
        return _no_level(asked.topology_key, settings)
    if asked.node_affinity_policy == "Ignore" or asked.node_taints_policy == "Honor":
        told = "its spread counts nodes that it cannot use, or leaves out tainted ones; only the defaults are known"
        return Refusal(RefusalName.POD_AFFINITY, told)
    mine = metadata.labels or {}
    more = [Expression(label_key(key), "In", (mine[key],)) for key in asked.match_label_keys or () if key in mine]
    chosen = (*_expressions(asked.label_selector), *more) or _NOBODY  # kube-scheduler counts nobody for an empty one
    labels = (*chosen, *_inside((metadata.namespace,)))
    return Evenness(level, labels, max(1, asked.max_skew), max(0, asked.min_domains or 0), among)


def _no_level(key: str, settings: ReadingSettings) -> Refusal:
    known = levels.told(settings.levels)
    told = f"it wants neighbours by {key}, which is no level of this cluster; there is kubernetes.io/hostname, {known}"
    return Refusal(RefusalName.POD_AFFINITY, told)


def _expressions(selector: LabelSelector | None) -> Iterator[Expression]:
    """An empty selector means everybody, none at all nobody."""
    if selector is None:
        yield from _NOBODY
        return
    for key, value in sorted((selector.match_labels or {}).items()):
        yield Expression(label_key(key), "In", (value,))
    for each in selector.match_expressions or ():
        yield Expression(label_key(each.key), each.operator, tuple(each.values or ()))


def _inside(namespaces: tuple[str, ...]) -> Iterator[Expression]:
    if namespaces:
        yield Expression(NAMESPACE, "In", namespaces)
