"""Where a pod may run: selectors, node affinity and tolerations as the model has them.

Values that an API server lets pass and that mean nothing are kept from the brain: a comparison with what is no number
never holds, and so does an operator that nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuyard.kube.objects import NodeTerm, NodeTerms, PodSpec, PodToleration, Requirement
from gpuyard.model.job import AffinityTerm, Expression, Likes, Terms, Toleration, whole_number
from gpuyard.worlds.kubernetes.asking.refusals import Refusal, RefusalName
from gpuyard.worlds.kubernetes.asking.selectors import label_key

_COUNTED = ("Gt", "Lt")
_KNOWN = ("In", "NotIn", "Exists", "DoesNotExist", *_COUNTED)


def node_terms(spec: PodSpec, others: Iterable[NodeTerms | None] = ()) -> Terms:
    """The pod's required node affinity, and whatever else binds it to nodes: volumes, claims."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return tuple(alternatives(terms) for terms in (required, *others) if terms is not None)


def own_terms(spec: PodSpec) -> Terms:
    """What the pod itself says of its nodes: selector and required affinity, without where its GPUs and volumes are."""
    selector = sorted((spec.node_selector or {}).items())
    named = tuple(Expression(label_key(key), "In", (value,)) for key, value in selector)
    return (((AffinityTerm(named),),) if named else ()) + node_terms(spec)


def node_likes(spec: PodSpec) -> Likes:
    """The pod's preferred node affinity. A term without expressions is liked everywhere, which says nothing."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    preferred = affinity.preferred_during_scheduling_ignored_during_execution if affinity else None
    found = ((_term(each.preference), max(1, min(100, each.weight))) for each in preferred or ())
    return tuple((term, weight) for term, weight in found if term.expressions)


def alternatives(terms: NodeTerms) -> tuple[AffinityTerm, ...]:
    """The terms of which one must hold; without any, one that never does."""
    return tuple(map(_term, terms.node_selector_terms or ())) or (AffinityTerm(()),)


def _term(term: NodeTerm) -> AffinityTerm:
    asked = [*(term.match_expressions or ()), *(term.match_fields or ())]
    if not all(map(_means_something, asked)):
        return AffinityTerm(())
    labels = (_expression(label_key(each.key), each) for each in term.match_expressions or ())
    fields = (_expression(each.key, each) for each in term.match_fields or ())
    return AffinityTerm((*labels, *fields))


def _expression(key: str, asked: Requirement) -> Expression:
    return Expression(key, asked.operator, tuple(asked.values or ()))


def _means_something(asked: Requirement) -> bool:
    """What cannot hold takes its whole term with it."""
    values = tuple(asked.values or ())
    if asked.operator in _COUNTED:
        return _is_number(values)
    return asked.operator in _KNOWN and (asked.operator != "In" or bool(values))


def _is_number(values: tuple[str, ...]) -> bool:
    """One that a label could have, which bears no sign: kube-scheduler takes no other."""
    return len(values) == 1 and values[0].isdecimal() and whole_number(values[0]) is not None


def tolerations(spec: PodSpec) -> tuple[Toleration, ...] | Refusal:
    """The taints that the pod bears."""
    found = []
    for asked in spec.tolerations or ():
        if asked.operator not in ("", "Equal", "Exists"):
            return Refusal(RefusalName.TOLERATION, _unknown(asked))
        found.append(Toleration(asked.key, asked.operator or "Equal", asked.value, asked.effect))
    return tuple(found)


def _unknown(asked: PodToleration) -> str:
    return f"its toleration of {asked.key} compares by {asked.operator}, and only Equal and Exists are known"
