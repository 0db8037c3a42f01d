"""What is written is read back the same, whatever the snapshot; and nothing that is left out is missed."""

from __future__ import annotations

import json

import yaml
from hypothesis import given
from jsonschema import Draft202012Validator

from gpuyard.files import parse_snapshot, schema, snapshot_document
from gpuyard.model.snapshot import Snapshot
from tests.unit.files.strategies import snapshots

VALIDATOR = Draft202012Validator(schema("snapshot"))


@given(snapshots())
def test_reading_what_was_written_gives_the_same_snapshot(snapshot: Snapshot):
    text = json.dumps(snapshot_document(snapshot))
    assert parse_snapshot(text, "x.json", 0.0) == snapshot


@given(snapshots())
def test_yaml_and_json_say_the_same(snapshot: Snapshot):
    # allow_unicode and quoting as yaml.safe_dump does them: words such as `true` and `07` must stay text.
    text = yaml.safe_dump(snapshot_document(snapshot), sort_keys=False, allow_unicode=True)
    assert parse_snapshot(text, "x.yaml", 0.0) == snapshot


@given(snapshots())
def test_what_is_written_keeps_to_the_schema(snapshot: Snapshot):
    VALIDATOR.validate(json.loads(json.dumps(snapshot_document(snapshot))))


@given(snapshots())
def test_writing_again_gives_the_same_document(snapshot: Snapshot):
    document = snapshot_document(snapshot)
    assert snapshot_document(parse_snapshot(json.dumps(document), "x.json", 0.0)) == document


def test_defaults_are_left_out():
    document = {
        "apiVersion": "gpuyard.dev/v1",
        "kind": "Snapshot",
        "now": "2026-01-01T00:00:00Z",
        "nodes": [{"name": "n", "gpus": 8, "model": "H100"}],
        "jobs": [{"name": "a", "gpus": 1}],
    }
    assert snapshot_document(parse_snapshot(json.dumps(document), "x.json", 0.0)) == document
