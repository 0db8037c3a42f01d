"""Where Kubernetes lets a pod go, written plainly from its documentation: a second opinion to hold ours against.

Over objects as the API has them, with nothing of ours in it. Node affinity and selector, taints, topology spread,
inter-pod affinity and anti-affinity, symmetric, and where volumes that are bound can be reached. Of amounts only
whether a node offers what is asked for at all; ports are no part of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

Document = dict[str, Any]
Labels = dict[str, str]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_SIXTY_FOUR_BITS = 1 << 63


def nodes_for(pod: Document, nodes: Iterable[Document], pods: Iterable[Document]) -> set[str]:
    """The names of the nodes that the pod may go to, around those that stand."""
    there = list(nodes)
    standing = [each for each in pods if _is_standing(each, there)]
    return {_name(node) for node in there if _lets_in(pod, node, there, standing)}


def _lets_in(pod: Document, node: Document, nodes: list[Document], standing: list[Document]) -> bool:
    return (
        not node["spec"].get("unschedulable")
        and _offers(pod, node)
        and _selects_node(pod, node)
        and _bears_taints(pod, node)
        and all(_keeps_even(each, pod, node, nodes, standing) for each in _spreads(pod))
        and _has_near(_terms(pod, "podAffinity"), pod, node, nodes, standing)
        and not any(_is_beside(term, pod, node, nodes, standing) for term in _terms(pod, "podAntiAffinity"))
        and not any(_is_shunned(each, pod, node, nodes) for each in standing)
    )


def _is_standing(pod: Document, nodes: list[Document]) -> bool:
    over = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return not over and pod["spec"].get("nodeName") in {_name(node) for node in nodes}


# --- nodes -------------------------------------------------------------------------------------------


def _offers(pod: Document, node: Document) -> bool:
    limits = [each.get("resources", {}).get("limits", {}) for each in pod["spec"]["containers"]]
    return all(name in node["status"]["capacity"] for each in limits for name in each)


def _selects_node(pod: Document, node: Document) -> bool:
    labels = _labels(node)
    if any(labels.get(key) != value for key, value in (pod["spec"].get("nodeSelector") or {}).items()):
        return False
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get(_REQUIRED)
    return required is None or any(_term_holds(term, node) for term in required["nodeSelectorTerms"])


def _term_holds(term: Document, node: Document) -> bool:
    """A term with nothing in it holds nowhere."""
    labels, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not labels and not fields:
        return False
    named = {"metadata.name": _name(node)}
    return all(_holds(each, _labels(node)) for each in labels) and all(_holds(each, named) for each in fields)


def _holds(asked: Document, labels: Labels) -> bool:
    value, values = labels.get(asked["key"]), asked.get("values") or []
    match asked["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return _compares(value, values[0]) and int(value or "") > int(values[0])
        case "Lt":
            return _compares(value, values[0]) and int(value or "") < int(values[0])
    raise AssertionError(asked)


def _compares(*both: str | None) -> bool:
    return all(re.fullmatch("[0-9]+", each or "") and int(each or "") < _SIXTY_FOUR_BITS for each in both)


def _bears_taints(pod: Document, node: Document) -> bool:
    repelling = [each for each in node["spec"].get("taints") or [] if each["effect"] != "PreferNoSchedule"]
    borne = pod["spec"].get("tolerations") or []
    return all(any(_tolerates(each, taint) for each in borne) for taint in repelling)


def _tolerates(toleration: Document, taint: Document) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


# --- volumes -----------------------------------------------------------------------------------------


def nodes_near(volumes: Iterable[Document], nodes: Iterable[Document]) -> set[str]:
    """The names of the nodes from which all of these volumes can be reached."""
    had = list(volumes)
    return {_name(node) for node in nodes if all(_reaches(node, volume) for volume in had)}


def _reaches(node: Document, volume: Document) -> bool:
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    return _is_in_zones(node, volume) and (
        required is None or any(_term_holds(term, node) for term in required["nodeSelectorTerms"])
    )


_ZONES = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Labels that name zones, and how each is called now."""


def _is_in_zones(node: Document, volume: Document) -> bool:
    """A node without any such label is in no zone, and no volume is out of its reach."""
    here = _labels(node)
    if not here.keys() & _ZONES.keys():
        return True
    for label in _labels(volume).keys() & _ZONES.keys():
        zones = _labels(volume)[label].split("__")
        if "" not in zones and here.get(label, here.get(_ZONES[label])) not in zones:
            return False
    return True


# --- spread ------------------------------------------------------------------------------------------


def _spreads(pod: Document) -> list[Document]:
    found = pod["spec"].get("topologySpreadConstraints") or []
    return [each for each in found if each["whenUnsatisfiable"] == "DoNotSchedule"]


def _keeps_even(
    asked: Document, pod: Document, node: Document, nodes: list[Document], standing: list[Document]
) -> bool:
    """Counted are nodes that the pod's selector and affinity let it use and that bear the keys of all constraints, be
    there what it asks for or not. An empty selector counts nobody who stands there."""
    key, mine = asked["topologyKey"], _labels(pod)
    if key not in _labels(node):
        return False
    keys = {each["topologyKey"] for each in _spreads(pod)}
    eligible = [each for each in nodes if _selects_node(pod, each) and keys <= _labels(each).keys()]
    selector = _with_label_keys(asked.get("labelSelector"), asked, mine)
    counts = dict.fromkeys((_labels(each)[key] for each in eligible), 0)
    domains = {_name(each): _labels(each)[key] for each in eligible}
    for each in standing:
        alike = not _is_empty(selector) and _space(each) == _space(pod) and _selects(selector, _labels(each))
        if alike and not each["metadata"].get("deletionTimestamp") and each["spec"]["nodeName"] in domains:
            counts[domains[each["spec"]["nodeName"]]] += 1
    least = 0 if len(counts) < (asked.get("minDomains") or 1) else min(counts.values(), default=0)
    here = counts.get(_labels(node)[key], 0)
    most: int = asked["maxSkew"]
    return here + _selects(selector, mine) - least <= most


# --- neighbours --------------------------------------------------------------------------------------


def _terms(pod: Document, side: str) -> list[Document]:
    affinity = (pod["spec"].get("affinity") or {}).get(side) or {}
    return affinity.get(_REQUIRED) or []


def _has_near(
    terms: list[Document], pod: Document, node: Document, nodes: list[Document], standing: list[Document]
) -> bool:
    """Only who is meant by all terms counts. The first of those who seek each other needs nobody, only the domains."""
    here = [_labels(node).get(term["topologyKey"]) for term in terms]
    if None in here:
        return False
    meant = [each for each in standing if all(_means(term, pod, each) for term in terms)]
    domains = [{_domain(term, each, nodes) for each in meant} - {None} for term in terms]
    if not any(domains):
        return all(_means(term, pod, pod) for term in terms)
    return all(mine in there for mine, there in zip(here, domains, strict=True))


def _is_beside(term: Document, pod: Document, node: Document, nodes: list[Document], standing: list[Document]) -> bool:
    here = _labels(node).get(term["topologyKey"])
    return here is not None and any(_means(term, pod, each) and _domain(term, each, nodes) == here for each in standing)


def _is_shunned(other: Document, pod: Document, node: Document, nodes: list[Document]) -> bool:
    """Whether somebody who stands would not have it there."""
    for term in _terms(other, "podAntiAffinity"):
        here = _labels(node).get(term["topologyKey"])
        if here is not None and _means(term, other, pod) and _domain(term, other, nodes) == here:
            return True
    return False


def _domain(term: Document, pod: Document, nodes: list[Document]) -> str | None:
    where = next(each for each in nodes if _name(each) == pod["spec"]["nodeName"])
    return _labels(where).get(term["topologyKey"])


def _means(term: Document, bearer: Document, other: Document) -> bool:
    """Whether the term of one pod is about another."""
    everywhere = term.get("namespaceSelector") is not None
    spaces = term.get("namespaces") or ([] if everywhere else [_space(bearer)])
    selector = _with_label_keys(term.get("labelSelector"), term, _labels(bearer))
    return (everywhere or _space(other) in spaces) and _selects(selector, _labels(other))


def _with_label_keys(selector: Document | None, asked: Document, mine: Labels) -> Document | None:
    if selector is None:
        return None
    more = list(_expressions(asked, mine))
    return {**selector, "matchExpressions": [*(selector.get("matchExpressions") or []), *more]}


def _expressions(asked: Document, mine: Labels) -> Iterator[Document]:
    for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in asked.get(field) or []:
            if key in mine:
                yield {"key": key, "operator": operator, "values": [mine[key]]}


def _is_empty(selector: Document | None) -> bool:
    return selector is not None and not (selector.get("matchLabels") or selector.get("matchExpressions"))


def _selects(selector: Document | None, labels: Labels) -> bool:
    """None selects nobody, an empty one everybody."""
    if selector is None:
        return False
    alike = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return alike and all(_holds(each, labels) for each in selector.get("matchExpressions") or [])


# --- parts -------------------------------------------------------------------------------------------


def _name(found: Document) -> str:
    name: str = found["metadata"]["name"]
    return name


def _space(pod: Document) -> str:
    space: str = pod["metadata"].get("namespace", "team")
    return space


def _labels(found: Document) -> Labels:
    return found["metadata"].get("labels") or {}
