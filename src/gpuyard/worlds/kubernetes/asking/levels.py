"""Levels of the topology by the labels of nodes: ours, Topograph's of both generations, the GPU vendor's, the clouds'.

A level has several labels, of which the first that a node bears tells its domain; one with an empty value does where no
other does. Domains of different tellers are never one, however alike they are called; and one that is called alike
inside two others is two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gpuyard.model.topology import NODE

Levels = tuple[tuple[str, tuple[str, ...]], ...]
"""Outermost first, each with its labels, the one that holds first."""

OUR_PREFIX = "topology.gpuyard.dev/"
EMPTY = "(empty)"
"""The domain of those that bear a label without a value, to Kubernetes one like any other; no label's value is this."""
CLIQUE = "clique"
GPU_CLIQUE = "nvidia.com/gpu.clique"
_OLD, _FABRIC, _FAST = "network.topology.nvidia.com/", "fabric.topograph.run/", "accelerator.topograph.run/"
_AWS, _GCE, _OCI = "topology.k8s.aws/", "cloud.google.com/gce-topology-", "oci.oraclecloud.com/host."

_TOLD_BY = {_OLD: "topograph", _FABRIC: "topograph", _FAST: "topograph", _AWS: "aws", _GCE: "gce", _OCI: "oci"}
"""Whose a label is, by how it begins; Topograph's two generations name the same switches. What is not told by any of
these is called as it is."""

NODES_OWN = ("kubernetes.io/hostname", _GCE + "host", NODE)
"""What means the node itself: of GPUs that Google Cloud tells the place of, a machine is a host."""


def labels_of(level: str) -> tuple[str, ...]:
    """The labels that tell a level; one that is called like a label is told by that label alone."""
    known = dict(DEFAULT_LEVELS).get(level)
    return known or ((level,) if "/" in level else (OUR_PREFIX + level,))


def levels_of(names: Iterable[str]) -> Levels:
    """Those levels; all that are known, where none is named."""
    return tuple((name, labels_of(name)) for name in names) or DEFAULT_LEVELS


def meant(key: str, levels: Levels) -> str:
    """The level that a label, or its own name, means; "" if there is none. A label of two levels means the inner."""
    if key in NODES_OWN:
        return NODE
    by_name = next((level for level, _ in levels if key == level), "")
    return by_name or next((level for level, labels in reversed(levels) if key in labels), "")


def told(levels: Levels) -> str:
    """All of them, in words."""
    return ", ".join(f"{level} ({labels[0]})" for level, labels in levels) or "none"


def domains_of(labels: Mapping[str, str], levels: Levels) -> tuple[tuple[str, str], ...]:
    """The domain of a node in each level that its labels tell."""
    named = {level for level, _ in levels}
    found = ((level, _telling(labels, keys)) for level, keys in levels)
    return tuple((level, "/".join(_path(level, key, labels, named))) for level, key in found if key)


def _telling(labels: Mapping[str, str], keys: Iterable[str]) -> str:
    borne = [key for key in keys if key in labels]
    return next((key for key in borne if labels[key]), borne[0] if borne else "")


def _path(level: str, key: str, labels: Mapping[str, str], named: set[str]) -> Iterator[str]:
    """Its name with that of its teller, and with those around it that are no level here: the brain tells apart what
    lies in two domains of an outer level, but only of levels that it knows."""
    teller = _teller(key)
    if teller:
        yield teller
        for outer, keys in DEFAULT_LEVELS:
            if outer == level:
                break
            if outer not in named:
                yield from [labels[each] for each in keys if _teller(each) == teller and labels.get(each)][:1]
    yield labels[key] or EMPTY


def _teller(key: str) -> str:
    return next((teller for prefix, teller in _TOLD_BY.items() if key.startswith(prefix)), "")


DEFAULT_LEVELS: Levels = (
    ("zone", ("topology.kubernetes.io/zone",)),
    ("core", (OUR_PREFIX + "core", _FABRIC + "tier-2", _OLD + "core", _OLD + "datacenter",
              _AWS + "network-node-layer-1")),
    ("spine", (OUR_PREFIX + "spine", _FABRIC + "tier-1", _OLD + "spine", _AWS + "network-node-layer-2")),
    ("block", (OUR_PREFIX + "block", _FABRIC + "tier-0", _OLD + "leaf", _OLD + "block", _AWS + "network-node-layer-3",
               _GCE + "block", _OCI + "network_block_id")),
    ("rack", (OUR_PREFIX + "rack", _AWS + "network-node-layer-4", _GCE + "subblock", _OCI + "rack_id")),
    ("accelerator", (OUR_PREFIX + "accelerator", _FAST + "domain", _OLD + "accelerator", _AWS + "ultraserver-id",
                     GPU_CLIQUE)),
    (CLIQUE, (OUR_PREFIX + CLIQUE, GPU_CLIQUE, _FAST + "sub-domain")),
)  # fmt: skip
"""Leaf switches are blocks. GPUs of several nodes on one NVLink are an `accelerator`; a fabric manager may part it into
cliques, and where it does not, or where nobody tells more, the clique is both."""
