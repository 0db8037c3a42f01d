"""Zones and regions that the labels of a volume name, and where it can be reached for them. Pure; used by `volumes`.

As kube-scheduler has it: each label must have its like on the node. A node that bears none of these labels is in no
zone, and reaches every volume.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, product

from gpuyard.kube.objects import Metadata, NodeTerm, NodeTerms, Requirement

_OLD = {f"failure-domain.beta.kubernetes.io/{name}": f"topology.kubernetes.io/{name}" for name in ("zone", "region")}
"""What the labels were called, and are now: a volume may be older than its nodes."""
_LABELS = (*_OLD, *_OLD.values())
_BETWEEN = "__"

Zones = tuple[str, list[str]]


def within(required: NodeTerms | None, volume: Metadata) -> NodeTerms | None:
    """Where a volume can be reached by its own terms and by its labels; None: from everywhere."""
    told = [zones for zones in _told(volume) if not _is_said(zones, required)]
    if not told:
        return required
    there = [_nowhere(), *map(_all_of, product(*map(_ways, told)))]
    if required is None:
        return NodeTerms(there)
    meant = [term for term in required.node_selector_terms or () if term.match_expressions or term.match_fields]
    return NodeTerms([_both(term, zone) for term in meant for zone in there])


def _told(volume: Metadata) -> Iterator[Zones]:
    """What cannot be read as zones binds nobody."""
    for label in _LABELS:
        zones = [each.strip() for each in volume.label(label).split(_BETWEEN)]
        if all(zones):
            yield label, sorted(set(zones))


def _is_said(zones: Zones, required: NodeTerms | None) -> bool:
    """Whether the volume's own terms say so anyhow, as those do that its driver writes."""
    label, values = zones
    terms = (required.node_selector_terms or ()) if required is not None else ()
    return bool(terms) and all(
        any(
            each.key == label and each.operator == "In" and set(each.values or ()) <= set(values)
            for each in term.match_expressions or ()
        )
        for term in terms
    )


def _nowhere() -> NodeTerm:
    return NodeTerm([Requirement(label, "DoesNotExist") for label in _LABELS])


def _ways(zones: Zones) -> list[list[Requirement]]:
    """How a node can be in one of them: by the same label, or by what an old one is called now."""
    label, values = zones
    same = [Requirement(label, "In", values)]
    if label not in _OLD:
        return [same]
    return [same, [Requirement(label, "DoesNotExist"), Requirement(_OLD[label], "In", values)]]


def _all_of(ways: tuple[list[Requirement], ...]) -> NodeTerm:
    return NodeTerm(list(chain(*ways)))


def _both(one: NodeTerm, other: NodeTerm) -> NodeTerm:
    return NodeTerm([*(one.match_expressions or ()), *(other.match_expressions or ())], one.match_fields)
