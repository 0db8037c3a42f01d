"""Queues of a cluster: the kind `Queue`, and the tree that all objects of it are. Pure: API objects in, values out.

Its schema is made of the table that reads queues of files, so that both accept the same. Rights are a namespace's,
because pods are made by controllers: `spec.namespaces` says whose pods may name a queue (none: everybody's), and a
namespace that a single queue names stands there without naming it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuyard.files.format.entries import QueueEntry
from gpuyard.files.format.tables import entry_schema, read_entry
from gpuyard.files.problems import Problems, Unreadable
from gpuyard.files.reading.fleet import queue_of
from gpuyard.kube.definitions import structural
from gpuyard.kube.definitions.structural import KindNames, KindShape, Schema
from gpuyard.kube.objects import Metadata, Projection
from gpuyard.model.queue import ROOT, Queue

KIND = "Queue.gpuyard.dev"
QUEUES = KindNames("Queue", "queues", "gq", "A team's place in the tree, with its quota, its limit and who may use it.")
NOT_HERE = ("name", "users", "groups")
"""Of a file's queue: the object has a name of its own, and its rights are namespaces'."""
NAMESPACES = "namespaces"
_GPUS: Schema = {
    "x-kubernetes-int-or-string": True,
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "minimum": 0,
    "pattern": r"^([0-9]+(\.[0-9]+)?|unlimited)$",
    "description": "A number of GPUs, in quotes if it is not whole, or unlimited.",
}
RULES = (
    ("!has(self.spec.parent) || self.spec.parent != self.metadata.name", "a queue is not its own parent"),
    ("self.metadata.name != 'root' || !has(self.spec.parent)", "the root of the tree has no parent"),
)
ALLOWED = (
    "!has(self.quota) || !has(self.limit) || !has(self.quota.gpu) || !has(self.limit.gpu)"
    " || type(self.quota.gpu) == string || type(self.limit.gpu) == string || int(self.quota.gpu) <= int(self.limit.gpu)"
)
COLUMNS = (
    ("Parent", "string", ".spec.parent"),
    ("Quota", "string", ".spec.quota.gpu"),
    ("Limit", "string", ".spec.limit.gpu"),
    ("Namespaces", "string", ".spec.namespaces"),
    ("Ready", "string", ".status.conditions[?(@.type=='Ready')].status"),
)


class QueueObject(Projection, frozen=True):
    """One queue as the API server has it."""

    metadata: Metadata = Metadata()
    spec: dict[str, Any] = {}  # noqa: RUF012  msgspec copies it
    status: dict[str, Any] = {}  # noqa: RUF012  msgspec copies it


@dataclass(frozen=True, slots=True)
class ClusterQueues:
    """All queues that stand, who may use them, and why others do not."""

    queues: tuple[Queue, ...] = ()
    namespaces: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Of each leaf; none named: everybody."""
    by_namespace: Mapping[str, str] = field(default_factory=dict)
    """The queue of pods that name none, for namespaces that a single queue names."""
    wrong: Mapping[str, str] = field(default_factory=dict)
    """Why queues are left aside, each in a sentence."""


NO_QUEUES = ClusterQueues()


# --- the kind --------------------------------------------------------------------------------------


def definition() -> dict[str, Any]:
    """What an API server is told of it."""
    spec = spec_schema() | structural.rules([(ALLOWED, "the quota is not above the limit")])
    status: Schema = {"type": "object", "properties": {"conditions": structural.CONDITIONS}}
    return structural.definition(QUEUES, KindShape(spec, status, COLUMNS, RULES))


def spec_schema() -> Schema:
    """Structural, made of the table of a file's queue."""
    definitions: dict[str, Schema] = {}
    table = entry_schema(QueueEntry, definitions)["properties"]
    _, mapping = definitions["Allowance"]["anyOf"]
    definitions["Allowance"] = {"type": "object"}
    allowance = _allowance(mapping["properties"], definitions)
    parts = {camel(name): structural.structural(each, definitions) for name, each in table.items()}
    for name in ("quota", "limit"):
        parts[name] = parts[name] | {"properties": allowance}
    namespaces = parts["users"] | {"maxItems": 1000, "description": "Whose pods may use it; empty: everybody's."}
    kept = {name: part for name, part in parts.items() if name not in NOT_HERE}
    return {"type": "object", "properties": kept | {NAMESPACES: namespaces | {"x-kubernetes-list-type": "set"}}}


def _allowance(amounts: dict[str, Schema], definitions: dict[str, Schema]) -> dict[str, Schema]:
    """A mapping alone, where a file may also have a plain number: structural schemas know no such choice."""
    return {
        "gpu": dict(_GPUS),
        "cpu": structural.structural(amounts["cpu"], definitions) | {"description": "Cores: 8 or 500m."},
        "memory": structural.structural(amounts["memory"], definitions) | {"description": "80Gi, 1G or plain bytes."},
        "models": {
            "type": "object",
            "maxProperties": 64,
            "additionalProperties": dict(_GPUS),
            "description": "GPUs by model, or by the beginning of its name.",
        },
    }


def camel(name: str) -> str:
    """As an API writes it."""
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def matters(seen: QueueObject) -> tuple[object, ...]:
    """All of it that a decision could rest on."""
    return seen.metadata.uid, seen.metadata.deletion_timestamp is None, seen.spec


# --- the tree --------------------------------------------------------------------------------------


def tree_of(objects: Iterable[QueueObject]) -> ClusterQueues:
    """The tree of all that are there. What hangs on nothing, or on itself, is left aside and told."""
    wrong: dict[str, str] = {}
    read: dict[str, Queue] = {}
    for seen in sorted(objects, key=lambda each: each.metadata.name):
        if seen.metadata.deletion_timestamp is not None:
            continue
        found = read_queue(seen)
        if isinstance(found, Queue):
            read[found.name] = found
        else:
            wrong[seen.metadata.name] = found
    wrong |= {name: told for name in read if (told := _hangs(name, read))}
    standing = [queue for name, queue in read.items() if name not in wrong]
    inner = {queue.parent for queue in standing} | {ROOT}
    leaves = {queue.name: frozenset(queue.users) for queue in standing if queue.name not in inner}
    return ClusterQueues(tuple(standing), leaves, _homes(leaves), wrong)


def read_queue(seen: QueueObject) -> Queue | str:
    """In the model's words; what is wrong with it otherwise."""
    document = {_snake(name): value for name, value in seen.spec.items() if name != NAMESPACES}
    for name in ("quota", "limit"):
        if isinstance(document.get(name), dict):
            document[name] = _flat(document[name])
    document |= {"name": seen.metadata.name, "users": seen.spec.get(NAMESPACES) or []}
    problems = Problems(seen.metadata.name)
    try:
        entry = read_entry(QueueEntry, document, (), problems)
        problems.refuse_if_any(lambda _: 0)
        queue = queue_of(entry, (), problems)
        problems.refuse_if_any(lambda _: 0)
    except Unreadable as unreadable:
        return "; ".join(problem.message for problem in unreadable.problems)
    return queue


def _flat(allowance: dict[str, Any]) -> dict[str, Any]:
    """As a file has it: models beside `gpu`; text that is a number as the number."""
    amounts = {**allowance, **(allowance.get("models") or {})}
    amounts.pop("models", None)
    return {name: _number(value) if name not in ("cpu", "memory") else value for name, value in amounts.items()}


def _number(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"[0-9]+(\.[0-9]+)?", value):
        return float(value) if "." in value else int(value)
    return value


def _hangs(name: str, read: Mapping[str, Queue]) -> str:
    """Why it does not reach the root; "" if it does."""
    passed: list[str] = []
    at = name
    while at and at != ROOT:
        if at in passed:
            return f"the queue tree has a cycle: {' > '.join([*passed[passed.index(at) :], at])}"
        if at not in read:
            return f"its parent {at} does not exist" if len(passed) == 1 else f"{at}, above it, does not exist"
        passed.append(at)
        at = read[at].parent
    return ""


def _homes(leaves: Mapping[str, frozenset[str]]) -> dict[str, str]:
    """Nothing is guessed: a namespace that several queues name must say which."""
    named: dict[str, list[str]] = {}
    for queue, namespaces in leaves.items():
        for namespace in namespaces:
            named.setdefault(namespace, []).append(queue)
    return {namespace: queues[0] for namespace, queues in named.items() if len(queues) == 1}
