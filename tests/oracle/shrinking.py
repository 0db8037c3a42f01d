"""A moment made small: whatever can be left out while the verdict's kind persists is left out."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

from gpuyard.files import Unreadable
from tests.oracle.judge import judge
from tests.oracle.plans import Planner
from tests.oracle.shapes import Document

DISPENSABLE = (
    "min_runtime", "warm_up", "evictions", "topology", "models", "time_limit", "priority", "preemptible", "class",
    "checkpoint", "stale_since", "weight", "limit", "parent", "islands", "mig", "unhealthy", "cpu", "domains", "taints",
    "tolerations", "avoid", "alignment", "numa",
)  # fmt: skip


def shrunk(document: Document, kind: str, planner: Planner) -> Document:
    """The smallest that greedy leaving-out finds."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in _less(document):
            if _still(candidate, kind, planner):
                document, smaller = candidate, True
                break
    return document


def _still(document: Document, kind: str, planner: Planner) -> bool:
    try:
        return any(verdict.kind == kind for verdict in judge(document, planner))
    except (Unreadable, KeyError, StopIteration, ValueError, IndexError):
        return False


def _less(document: Document) -> Iterator[Document]:
    for part in ("jobs", "nodes", "queues", "budgets", "reservations", "pools"):
        for i in range(len(document.get(part, []))):
            candidate = deepcopy(document)
            del candidate[part][i]
            yield candidate
    for part in ("policy", "topology"):
        if document.get(part):
            yield {key: value for key, value in document.items() if key != part}
    for part in ("jobs", "nodes", "queues"):
        for i, entry in enumerate(document.get(part, [])):
            for key in DISPENSABLE:
                if key in entry:
                    candidate = deepcopy(document)
                    del candidate[part][i][key]
                    yield candidate
            if entry.get("gpus", 0) > 1 and part == "nodes":
                candidate = deepcopy(document)
                candidate[part][i]["gpus"] -= 1
                yield candidate
