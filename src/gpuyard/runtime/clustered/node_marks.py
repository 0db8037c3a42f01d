"""What we leave on Nodes, which are others': labels under a name of ours, a condition, a taint where one was asked for.

Written by `labelling`, taken away by `letting_go`. A taint says nothing of who set it, so ours is noted beside it: one
that somebody else has set is never taken for ours. Pure.
"""

from __future__ import annotations

from typing import Any

NODES_MANAGER = "gpuyard-nodes"
"""The name under which labels are copied to nodes."""
CONDITION = "GpusHealthy"
"""Of nodes, by what agents tell."""
NOTE = "gpuyard.dev/taint"
"""The annotation that says which taint is ours."""
JSON_PATCH = "application/json-patch+json"
Document = dict[str, Any]
Taint = tuple[str, str, str]
"""Key, value and effect."""


def taint_patch(node: Document, wanted: Taint | None) -> list[Document]:
    """What makes this taint ours and no other, as a JSON patch of the node as it was read; nothing if it is so."""
    there = node["spec"].get("taints") or []
    notes = node["metadata"].get("annotations", {})
    ours = _read(notes.get(NOTE, ""))
    others = [each for each in there if _taint(each) != ours]
    if wanted is not None and any((each["key"], each["effect"]) == (wanted[0], wanted[2]) for each in others):
        wanted = None  # somebody else's says the same
    if wanted == ours and (wanted is None or len(others) < len(there)):
        return []
    taints = [*others, _written(wanted)] if wanted is not None else others
    version = {"op": "test", "path": "/metadata/resourceVersion", "value": node["metadata"]["resourceVersion"]}
    kept = {key: value for key, value in notes.items() if key != NOTE}
    note = {} if wanted is None else {NOTE: f"{wanted[0]}={wanted[1]}:{wanted[2]}"}
    patch = [version, {"op": "add", "path": "/metadata/annotations", "value": kept | note}]
    return patch if taints == there else [*patch, {"op": "add", "path": "/spec/taints", "value": taints}]


def is_labelled(node: Document) -> bool:
    """Whether labels of ours are on it."""
    return any(field.get("manager") == NODES_MANAGER for field in node["metadata"].get("managedFields", ()))


def bears_condition(node: Document) -> bool:
    """Whether our condition is among its own."""
    return any(each["type"] == CONDITION for each in node.get("status", {}).get("conditions", ()))


def _taint(found: Document) -> Taint:
    return found["key"], found.get("value", ""), found["effect"]


def _read(note: str) -> Taint | None:
    name, _, effect = note.rpartition(":")
    key, _, value = name.partition("=")
    return (key, value, effect) if key else None


def _written(taint: Taint) -> Document:
    key, value, effect = taint
    return {"key": key, "effect": effect, **({"value": value} if value else {})}
