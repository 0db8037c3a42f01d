"""JSON Schema (draft 2020-12) of every file we read, from the same tables as the readers.

Called by `yard schema KIND` and by editors through it. A schema knows shapes, not names: that a queue exists, or that
a GPU is free, only the reader can tell.
"""

from __future__ import annotations

from typing import Any

from gpuyard.files.format.entries import JobFileEntry, QueueEntry, SnapshotEntry
from gpuyard.files.format.kinds import Definitions, Schema
from gpuyard.files.format.policies import POLICY
from gpuyard.files.format.tables import entry_schema
from gpuyard.files.problems import did_you_mean
from gpuyard.model.errors import NotFound

DIALECT = "https://json-schema.org/draft/2020-12/schema"

KINDS: dict[str, type[Any]] = {
    "snapshot": SnapshotEntry,
    "job": JobFileEntry,
    "policy": POLICY.entry,
    "queue": QueueEntry,
}


def schema(kind: str) -> Schema:
    """The schema of one kind of file."""
    if kind not in KINDS:
        hint = did_you_mean(kind, KINDS)
        raise NotFound(f"there is no schema {kind}; there are: {', '.join(KINDS)}{hint}")
    definitions: Definitions = {}
    body = entry_schema(KINDS[kind], definitions)
    head = {"$schema": DIALECT, "$id": f"https://gpuyard.dev/schema/v1/{kind}.json", "title": kind.capitalize()}
    return {**head, **body, "$defs": dict(sorted(definitions.items()))}
