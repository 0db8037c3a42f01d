"""Damaged files: whatever is done to a good document, it is read or refused in clear sentences, never a crash."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gpuyard.files import Unreadable, parse_job, parse_snapshot, schema
from gpuyard.model.job import Job
from gpuyard.model.snapshot import Snapshot

GOOD: dict[str, Any] = {
    "apiVersion": "gpuyard.dev/v1", "kind": "Snapshot", "now": "2026-01-01T00:00:00Z", "topology": ["block", "rack"],
    "policy": {"pdb": "never", "classes": {"batch": {"priority": 5}}, "weights": {"island": 2}},
    "pools": [{"name": "h100", "price": 30000, "max_busy": {"rack": 24}}],
    "nodes": [
        {"name": "n0", "pool": "h100", "gpus": 4, "model": "H100-SXM5-80GB", "cpu": 96, "memory": "1Ti",
         "islands": [[0, 1], [2, 3]], "domains": {"block": "b0", "rack": "r0"}, "labels": {"a": "b"},
         "taints": [{"key": "k", "effect": "NoSchedule"}], "health": {"3": "suspect"},
         "mig": {"2": ["1g.10gb", "1g.10gb"]}},
        {"name": "n1", "gpus": 2},
    ],
    "queues": [
        {"name": "top", "quota": {"gpu": 8, "H100": 4, "cpu": 8}}, {"name": "q", "parent": "top", "limit": "unlimited"},
    ],
    "jobs": [
        {"name": "a", "queue": "q", "tasks": 2, "min": 1, "gpus": 1, "topology": {"required": "rack"},
         "time_limit": "2h",
         "placements": [{"node": "n0", "gpus": [0]}, {"node": "n0", "gpus": [1], "terminating": True}],
         "checkpoint": {"interval": "30m", "last": "2025-12-31T22:50:00Z"},
         "avoid": {"level": "node", "queues": ["q"]}},
        {"name": "b", "queue": "q", "mig": {"1g.10gb": 2}, "placements": [{"node": "n0", "gpus": [2, 2]}]},
        {"name": "c", "queue": "q", "min_groups": 1, "groups": [
            {"name": "x", "groups": [{"name": "y", "fraction": 0.5}]}, {"name": "z", "gpu_memory": "20Gi", "tasks": 3}],
         "affinity": [{"matchExpressions": [{"key": "z", "operator": "In", "values": ["a"]}]}],
         "tolerations": [{"operator": "Exists"}], "placements": [{"node": "n1", "gpus": [0], "group": "y"}],
         "run": {"command": ["sh"], "env": {"A": "b"}}},
    ],
    "budgets": [{"name": "pdb", "jobs": ["a"], "max_unavailable": 1}],
    "reservations": [{"job": "a", "placements": [{"node": "n0", "gpus": [3]}], "until": "2026-01-01T01:00:00Z"}],
    "memory": {"seen": [1]},
}  # fmt: skip

ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 70), st.integers(), st.integers(-9999, 9999).map(lambda n: n / 1000),
    st.text(max_size=8), st.sampled_from(["q", "a", "n0", "rack", "unlimited", "1g.10gb", "80Gi", "-5m", "root", "\0"]),
    st.just([]), st.just({}), st.lists(st.integers(0, 5), max_size=3), st.just([[]]), st.just({"name": "q"}),
)  # fmt: skip


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a document."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, inner in parts for found in [(value, key), *places(inner)]]


@st.composite
def damaged(draw: Any) -> dict[str, Any]:
    """The good document after a few blows."""
    document = copy.deepcopy(GOOD)
    for _ in range(draw(st.integers(1, 4))):
        container, key = draw(st.sampled_from(places(document)))
        blow = draw(st.sampled_from(["set", "set", "delete", "double", "swap", "rename"]))
        other, other_key = draw(st.sampled_from(places(document)))
        match blow:
            case "set":
                container[key] = copy.deepcopy(draw(ODD))
            case "delete":
                del container[key]
            case "double" if isinstance(container, list):
                container.append(copy.deepcopy(container[key]))
            case "swap":
                container[key] = copy.deepcopy(other[other_key])
            case "rename" if isinstance(container, dict):
                container[draw(st.text(max_size=4) | st.sampled_from(["name", "gpus", "groups"]))] = container.pop(key)
        if not places(document):
            break
    return document


def test_the_document_is_good_before_it_is_damaged():
    assert isinstance(parse_snapshot(json.dumps(GOOD), "x.json", 0.0), Snapshot)


@given(damaged())
def test_a_damaged_document_is_read_or_refused(document: dict[str, Any]):
    outcome = attempt(json.dumps(document), "x.json")
    assert outcome == attempt(json.dumps(document), "x.json")
    if isinstance(outcome, Snapshot):
        Draft202012Validator(schema("snapshot")).validate(document)


@given(damaged())
def test_json_read_as_yaml_comes_out_the_same(document: dict[str, Any]):
    # JSON's escapes for characters beyond 16 bits are the one thing that YAML reads otherwise.
    text = json.dumps(document, indent=1, ensure_ascii=True)
    assume(not re.search(r"\\u[dD][89a-fA-F]", text))
    as_json, as_yaml = attempt(text, "x.json"), attempt(text, "x.json", as_yaml=True)
    assert type(as_json) is type(as_yaml)
    if isinstance(as_json, Snapshot):
        assert as_json == as_yaml


@given(st.text(max_size=40), st.integers(0, 2000), st.integers(0, 30))
def test_a_torn_text_is_read_or_refused(piece: str, start: int, length: int):
    text = json.dumps(GOOD, indent=1)
    torn = text[:start] + piece + text[start + length :]
    for name in ("x.json", "x.yaml"):
        attempt(torn, name)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str):
    for name in ("x.json", "x.yaml"):
        attempt(text, name)
        attempt("apiVersion: gpuyard.dev/v1\nkind: Snapshot\n" + text, name)
        attempt_job("name: a\n" + text)


def attempt(text: str, name: str, as_yaml: bool = False) -> Snapshot | str:
    """The snapshot, or what is told."""
    try:
        return parse_snapshot(("# yaml\n" if as_yaml else "") + text, "x.yaml" if as_yaml else name, 0.0)
    except Unreadable as error:
        refusal = error
    assert refusal.problems
    assert all(problem.message and "\n" not in problem.message for problem in refusal.problems)
    return str(refusal)


def attempt_job(text: str) -> Job | None:
    try:
        return parse_job(text, "job.yaml", 0.0)
    except Unreadable:
        return None
