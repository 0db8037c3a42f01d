"""The same pods and nodes, judged by ours and by what Kubernetes documents: no node more, and no node less."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
from hypothesis import strategies as st

from gpuyard.brain.engine.nodes.requests import STATIC_CHECKERS
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.placing import neighbours
from gpuyard.kube.objects import moment
from tests.support.cluster_reading import Cluster
from tests.support.kube.placing_rules import nodes_for, nodes_near
from tests.support.laws import law
from tests.support.scenario import NOW

Document = dict[str, Any]
KEYS = ("kubernetes.io/hostname", "zone", "rack")
LEVELS = [["zone", "zone"], ["rack", "rack"]]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
NUMBERS = ("0", "3", "007", "12", "x7", "9223372036854775807", "9223372036854775808")
SPACES = ("team", "data")
ZONES = tuple(
    f"{prefix}.kubernetes.io/{kind}" for prefix in ("failure-domain.beta", "topology") for kind in ("zone", "region")
)
ODD = ("kubernetes.io/metadata.namespace", "metadata.name", "gpuyard.dev/gpus")
"""Labels like any other, called as what we know a pod's namespace, a node's name and the kind of its GPUs by."""


@law(st.integers(0, 2**32))
def test_a_pod_may_go_where_kubernetes_documents_that_it_may_and_nowhere_else(seed: int):
    nodes, pods, asking = _drawn(Random(seed))
    assert _ours(nodes, pods, asking) == nodes_for(asking, nodes, pods)


@law(st.integers(0, 2**32))
def test_a_pod_may_go_where_its_volumes_can_be_reached_and_nowhere_else(seed: int):
    dice = Random(seed)
    nodes = [_zoned(dice, _node(dice, number)) for number in range(dice.randint(1, 5))]
    volumes = [_volume(dice, f"v{number}") for number in range(dice.randint(1, 2))]
    named = [each["metadata"]["name"] for each in volumes]
    claims = [_claim(name) for name in named]
    spec = {
        "tolerations": [{"operator": "Exists"}],
        "volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in named],
        "containers": [{"name": "a"}],
    }
    asking = {"kind": "Pod", "metadata": {"name": "new", "namespace": "team"}, "spec": spec}
    may = nodes_for(asking, nodes, []) & nodes_near(volumes, nodes)
    assert _ours(nodes, [*volumes, *claims], asking) == may


def _ours(nodes: list[Document], others: list[Document], asking: Document) -> set[str]:
    read = Cluster({"settings": {"levels": LEVELS}, "objects": [*nodes, *others, asking]}).read()
    assert read.gathered["team/new"].refusal is None
    fleet = Fleet(read.snapshot(moment(NOW)))
    row = fleet.jobs["team/new"]
    may = fleet.shapes.static(row.request, STATIC_CHECKERS)
    closed = neighbours.limits(fleet, row, 0)
    for mask in closed.closed.values() if closed is not None else ():
        may = may & ~mask
    return {fleet.columns.nodes[n].name for n in np.flatnonzero(may).tolist()}


# --- clusters ----------------------------------------------------------------------------------------


def _drawn(dice: Random) -> tuple[list[Document], list[Document], Document]:
    nodes = [_node(dice, number) for number in range(dice.randint(1, 7))]
    pods = [_standing(dice, number, dice.choice(nodes)) for number in range(dice.randint(0, 12))]
    return nodes, pods, _asking(dice)


def _node(dice: Random, number: int) -> Document:
    """Racks are of one zone each: what is called alike in two zones, or outside all, is two domains with us."""
    name = f"n{number}"
    zone = dice.choice(("a", "a", "b", "b", ""))
    labels = {"kubernetes.io/hostname": name, "zone": zone, "rack": zone + dice.choice("12")}
    for key in dice.choice(((), (), (), (), ("rack",), ("zone", "rack"))):
        del labels[key]
    labels["arch"] = dice.choice("xxy")
    if dice.random() < 0.6:
        labels["disk"] = dice.choice(NUMBERS)
    for key in ("metadata.name", "gpuyard.dev/gpus"):
        if dice.random() < 0.1:
            labels[key] = dice.choice(("n0", "n1"))
    effects = ("NoSchedule", "NoExecute", "PreferNoSchedule")
    count = dice.choice((0, 0, 0, 0, 1, 2))
    taints = [{"key": dice.choice("pq"), "effect": dice.choice(effects)} for _ in range(count)]
    for taint in taints:
        if dice.random() < 0.5:
            taint["value"] = dice.choice("vw")
    spec: Document = {"taints": taints or None, "unschedulable": dice.random() < 0.05}
    labels["gpuyard.dev/pool"] = "main"
    gpus = dice.choice(({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "8"}, {"nvidia.com/gpu.shared": "8"}, {}))
    offered = {**gpus, "cpu": "8", "memory": "8Gi"}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"capacity": offered}}


def _zoned(dice: Random, node: Document) -> Document:
    node["metadata"]["labels"] |= {label: dice.choice("ab") for label in ZONES if dice.random() < 0.4}
    return node


def _volume(dice: Random, name: str) -> Document:
    """Also such as name zones that no node could be in, or that cannot be read."""
    labels = {label: dice.choice(("a", "a__b", "b", "a__c", "a__")) for label in ZONES if dice.random() < 0.4}
    spec: Document = {"capacity": {"storage": "1Gi"}}
    if dice.random() < 0.5:
        terms = [_node_term(dice) for _ in range(dice.randint(1, 2))]
        if dice.random() < 0.4:
            zone = {"key": dice.choice(ZONES), "operator": "In", "values": dice.choice((["a"], ["a", "b"]))}
            terms = [{"matchExpressions": [zone]}, *terms[1:]]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    return {"kind": "PersistentVolume", "metadata": {"name": name, "labels": labels}, "spec": spec}


def _claim(name: str) -> Document:
    """One that has the volume of its name."""
    metadata = {"name": name, "namespace": "team"}
    status = {"phase": "Bound"}
    return {"kind": "PersistentVolumeClaim", "metadata": metadata, "spec": {"volumeName": name}, "status": status}


def _standing(dice: Random, number: int, node: Document) -> Document:
    """Few of them keep apart from anybody, or nobody could go anywhere."""
    metadata: Document = {"name": f"old-{number}", "labels": _labels(dice), "namespace": dice.choice(SPACES)}
    if dice.random() < 0.2:
        metadata["deletionTimestamp"] = "2025-12-31T23:59:59Z"
    spec: Document = {"containers": [{"name": "a"}], "nodeName": node["metadata"]["name"]}
    spec["schedulerName"] = dice.choice(("gpuyard", "default-scheduler"))
    if dice.random() < 0.1:
        spec["affinity"] = {"podAntiAffinity": {REQUIRED: [_term(dice)]}}
    phase = dice.choice(("Running", "Running", "Running", "Pending", "Succeeded", "Failed"))
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase}}


def _asking(dice: Random) -> Document:
    """Two kinds of wishes at most: with all of them hardly any node is left to differ about."""
    affinity: Document = {}
    gpus = dice.choice(({}, {"nvidia.com/gpu": "1"}, {"nvidia.com/gpu.shared": "1"}))
    spec: Document = {"affinity": affinity, "containers": [{"name": "a", "resources": {"limits": gpus}}]}
    spec["tolerations"] = [_toleration(dice) for _ in range(dice.randint(0, 2))]
    for wish in dice.sample(("apart", "near", "nodes", "selector", "even", "even", "even"), 2):
        match wish:
            case "apart":
                affinity["podAntiAffinity"] = {REQUIRED: [_term(dice) for _ in range(dice.randint(1, 2))]}
            case "near":
                affinity["podAffinity"] = {REQUIRED: [_term(dice) for _ in range(dice.choice((1, 1, 1, 2)))]}
            case "nodes":
                terms = [_node_term(dice) for _ in range(dice.randint(1, 2))]
                affinity["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": terms}}
            case "selector":
                spec["nodeSelector"] = {"arch": "x"}
            case "even":
                keys = dice.sample(KEYS, dice.randint(1, 2))
                spec["topologySpreadConstraints"] = [_spread(dice, key) for key in keys]
    return {"kind": "Pod", "metadata": {"name": "new", "namespace": "team", "labels": _labels(dice)}, "spec": spec}


def _labels(dice: Random) -> Document:
    more = [key for key in ("hash", *ODD) if dice.random() < 0.4]
    return {"app": dice.choice("xxxy"), **{key: dice.choice("12") for key in more}}


def _node_term(dice: Random) -> Document:
    term: Document = {"matchExpressions": [_expression(dice) for _ in range(dice.randint(0, 2))]}
    if dice.random() < 0.2:
        term["matchFields"] = [{"key": "metadata.name", "operator": dice.choice(("In", "NotIn")), "values": ["n0"]}]
    return term


def _expression(dice: Random) -> Document:
    key = dice.choice(("disk", "disk", "disk", "zone", "metadata.name", "gpuyard.dev/gpus"))
    operator = dice.choice((*OPERATORS, "Gt", "Lt"))
    if operator in ("Gt", "Lt"):
        return {"key": key, "operator": operator, "values": [dice.choice(NUMBERS)]}
    if operator in ("In", "NotIn"):
        return {"key": key, "operator": operator, "values": dice.sample((*NUMBERS, "a", "b", "n0"), 3)}
    return {"key": key, "operator": operator, "values": dice.choice((None, []))}


def _toleration(dice: Random) -> Document:
    effect = dice.choice(({}, {"effect": "NoSchedule"}, {"effect": "NoExecute", "tolerationSeconds": 5}))
    lot = dice.choice(("all", "key", "value", "plain"))
    if lot == "all":
        return {"operator": "Exists", **effect}
    if lot == "key":
        return {"key": dice.choice("pq"), "operator": "Exists", **effect}
    equal = {"operator": "Equal"} if lot == "value" else {}
    return {"key": dice.choice("pq"), "value": dice.choice(("v", "w", "")), **equal, **effect}


def _selector(dice: Random) -> Document | None:
    lot = dice.random()
    if lot < 0.1:
        return None
    if lot < 0.2:
        return {}
    if lot < 0.7:
        return {"matchLabels": {"app": dice.choice("xxxy")}}
    operator = dice.choice(OPERATORS)
    values = dice.sample("12", dice.randint(1, 2)) if operator in ("In", "NotIn") else None
    key = dice.choice(("hash", "hash", *ODD))
    expressions = [{"key": key, "operator": operator, "values": values}]
    return {"matchLabels": dice.choice((None, {})), "matchExpressions": expressions}


def _term(dice: Random) -> Document:
    term: Document = {"topologyKey": dice.choice(KEYS), "labelSelector": _selector(dice)}
    if dice.random() < 0.3:
        term["namespaces"] = dice.sample(SPACES, dice.randint(0, 2))
    if dice.random() < 0.2:
        term["namespaceSelector"] = dice.choice(({}, {"matchLabels": {}}, {"matchExpressions": []}))
    if term["labelSelector"] is not None and dice.random() < 0.3:
        term[dice.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["hash"]
    return term


def _spread(dice: Random, key: str) -> Document:
    found: Document = {"topologyKey": key, "maxSkew": dice.randint(1, 2), "labelSelector": _selector(dice)}
    found["whenUnsatisfiable"] = dice.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"))
    if found["whenUnsatisfiable"] == "DoNotSchedule" and dice.random() < 0.3:
        found["minDomains"] = dice.randint(1, 4)
    if found["labelSelector"] is not None and dice.random() < 0.3:
        found["matchLabelKeys"] = ["hash"]
    found["nodeTaintsPolicy"] = dice.choice((None, "Ignore"))
    found["nodeAffinityPolicy"] = dice.choice((None, "Honor"))
    return found
