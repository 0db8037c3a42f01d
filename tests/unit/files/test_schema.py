"""The JSON Schema: it is one, it says everything about every key, and every example we ship keeps to it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from gpuyard.files import parse_snapshot, schema, snapshot_document
from gpuyard.files.text.yaml_text import YamlDocument
from gpuyard.model.errors import NotFound
from gpuyard.model.policy import ClassPolicy, Policy, Weights
from tests.support.scenario import Scenario, load_all

ROOT = Path(__file__).resolve().parents[3]
KINDS = ["snapshot", "job", "policy", "queue"]
FENCE = re.compile(r"^```ya?ml\n(apiVersion: gpuyard\.dev/v1\n(?!kind: Queue\n).*?)^```", re.MULTILINE | re.DOTALL)
"""Queues with an apiVersion are objects of a cluster and have a shape of their own."""


def examples() -> Iterator[tuple[str, str]]:
    """Every snapshot in the open: shipped examples, and the documentation's fenced blocks."""
    for path in sorted((ROOT / "examples").glob("*.yaml")):
        yield path.name, path.read_text()
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for number, block in enumerate(FENCE.findall(path.read_text())):
            yield f"{path.relative_to(ROOT)}#{number}", block


EXAMPLES = list(examples())
VALIDATOR = Draft202012Validator(schema("snapshot"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_is_a_schema(kind: str):
    Draft202012Validator.check_schema(schema(kind))
    json.dumps(schema(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_says_what_it_is_for(kind: str):
    assert [where for where, shape in properties(schema(kind)) if not shape.get("description")] == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_reference_leads_somewhere(kind: str):
    text = json.dumps(schema(kind))
    assert set(re.findall(r'"#/\$defs/([^"]+)"', text)) <= schema(kind)["$defs"].keys()


def test_there_are_examples():
    assert len(EXAMPLES) >= 6


@pytest.mark.parametrize(("name", "text"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_every_example_keeps_to_the_schema_and_is_read(name: str, text: str):
    data = plain(YamlDocument(text, name).data)
    if data["kind"] == "Snapshot":
        Draft202012Validator(schema("snapshot")).validate(data)
        assert parse_snapshot(text, name, 0.0).nodes
    else:
        Draft202012Validator(schema(data["kind"].lower())).validate(data)


@pytest.mark.parametrize("scenario", load_all(), ids=lambda scenario: scenario.name)
def test_every_scenario_keeps_to_the_schema_and_comes_back_from_a_file(scenario: Scenario):
    VALIDATOR.validate(plain(scenario.document))
    snapshot = parse_snapshot(scenario.text(), scenario.file, scenario.now)
    written = json.dumps(snapshot_document(snapshot))
    assert parse_snapshot(written, scenario.file, 0.0) == snapshot


def test_every_knob_of_the_policy_is_in_the_schema_with_its_default_and_unit():
    found = schema("policy")
    assert set(found["properties"]) == set(Policy.__slots__)
    assert set(found["$defs"]["Policy.weights"]["properties"]) == set(Weights.__slots__)
    assert set(found["$defs"]["Policy.classes.batch"]["properties"]) == set(ClassPolicy.__slots__)
    assert found["properties"]["pdb"] == {
        "enum": ["never", "last-resort"],
        "description": "Whether disruption budgets may be broken: never, or last-resort.",
        "default": "never",
    }
    assert "Unit: seconds." in found["properties"]["reserve_after"]["description"]
    assert found["$defs"]["Policy.classes.inference"]["properties"]["priority"]["default"] == 100


@pytest.mark.parametrize(
    "wrong",
    [
        {"nodes": [{"name": "a", "gpuss": 8}]},
        {"nodes": [{"gpus": 8}]},
        {"nodes": [{"name": "a", "gpus": True}]},
        {"nodes": [{"name": "a", "memory": "64GB"}]},
        {"jobs": [{"name": "a", "fraction": 1.5}]},
        {"jobs": [{"name": "a", "class": "trainign"}]},
        {"jobs": [{"name": "a", "groups": [{"name": "g", "groups": [{"tasks": 2}]}]}]},
        {"policy": {"pdb": "always"}},
        {"now": "2026-01-01T00:00:00"},
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(wrong: dict[str, Any]):
    document = {"apiVersion": "gpuyard.dev/v1", "kind": "Snapshot", **wrong}
    assert not Draft202012Validator(schema("snapshot")).is_valid(document)


def test_a_job_and_a_queue_have_schemas_of_their_own():
    Draft202012Validator(schema("job")).validate({"name": "a", "gpus": 2, "run": {"command": ["python", "x.py"]}})
    Draft202012Validator(schema("queue")).validate({"name": "q", "quota": {"gpu": 8, "H100": 4}, "limit": "unlimited"})


def test_an_unknown_schema_is_hinted_at():
    with pytest.raises(NotFound, match="did you mean snapshot"):
        schema("snapshots")


def properties(shape: Any, where: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every property of every object in a schema, with its place."""
    if isinstance(shape, dict):
        for name, inner in shape.get("properties", {}).items():
            # An allowance's own keys are described with it.
            if "Allowance" not in where:
                yield f"{where}.{name}", inner
        for key, inner in shape.items():
            yield from properties(inner, f"{where}.{key}")


def plain(value: Any) -> Any:
    """As JSON has it: keys are text."""
    return json.loads(json.dumps(value))


def test_plain_yaml_readers_see_the_same_examples():
    # Whoever reads our examples with another YAML reader should find the same data.
    for name, text in EXAMPLES:
        assert plain(yaml.load(text, _core())) == plain(YamlDocument(text, name).data), name


def _core() -> type[yaml.SafeLoader]:
    class Loader(yaml.SafeLoader):
        """PyYAML's own, with times left alone."""

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:timestamp"]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return Loader
