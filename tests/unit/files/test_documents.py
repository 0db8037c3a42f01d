"""Text that is no document: one sentence each, and lines that are right in YAML and JSON alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuyard.files import Unreadable, parse_snapshot, read_snapshot
from gpuyard.files.text.documents import parse

HEADER = "apiVersion: gpuyard.dev/v1\nkind: Snapshot\n"


def refusal(text: str, name: str = "x.yaml") -> str:
    with pytest.raises(Unreadable) as caught:
        parse_snapshot(text, name, 0.0)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "x.yaml: the file is empty"),
        (" \n\n", "x.yaml: the file is empty"),
        ("# nothing\n", "x.yaml: the file is empty"),
        ("hello", "x.yaml:1: the file must be a mapping with apiVersion and kind, not 'hello'"),
        ("- a", "x.yaml:1: the file must be a mapping with apiVersion and kind, not a list"),
        ("kind: Snapshot", "x.yaml:1: the file has no apiVersion; it must be gpuyard.dev/v1"),
        ("apiversion: gpuyard.dev/v1", "has no apiVersion; it must be gpuyard.dev/v1; did you mean it by apiversion?"),
        ("apiVersion: gpuyard.dev/v1", "x.yaml:1: the file has no kind; it must be Snapshot"),
        ("apiVersion: v1\nkind: Pod", "x.yaml:1: apiVersion must be gpuyard.dev/v1, not 'v1'"),
        ("apiVersion: gpuyard.dev/v1\nkind: Pod", "x.yaml:2: kind must be Snapshot, not 'Pod'"),
        (HEADER + "nodes: [", "x.yaml:4: broken YAML: "),
        (HEADER + "nodes: [}\n", "x.yaml:3: broken YAML: "),
        (HEADER + "nodes:\n\t- a", "x.yaml:4: broken YAML: a tab cannot indent; use spaces"),
        (HEADER + "now: a: b", "x.yaml:3: broken YAML: mapping values are not allowed"),
        (HEADER + "---\nkind: Snapshot\n", "holds several documents; one is expected"),
        (HEADER + "nodes: *h\n", "x.yaml:3: broken YAML: found undefined alias"),
        (HEADER + "nodes: !!python/object:os.system {}\n", "x.yaml:3: broken YAML: could not determine a constructor"),
        (HEADER + "? [a]\n: b\n", "broken YAML: found unhashable key"),
        (HEADER + "nodes: \x00\n", "x.yaml: broken YAML: "),
        (HEADER + "memory: &m {a: *m}\n", "its aliases contain themselves"),
        (HEADER + "nodes: " + "[" * 5000, "x.yaml:3: nested deeper than 100 levels"),
        (HEADER + "nodes: " + "{a: " * 300, "nested deeper than 100 levels"),
        (HEADER + "nodes:\n  " + "- " * 100_000 + "a", "nested deeper than 100 levels"),
    ],
)  # fmt: skip
def test_broken_yaml_is_one_sentence(text: str, told: str):
    assert told in refusal(text)
    assert "\n" not in refusal(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "x.json:1: broken JSON: expecting property name enclosed in double quotes (column 2)"),
        ('{"a": 1,\n "b"}', "x.json:2: broken JSON: expecting ':' delimiter (column 5)"),
        ("kind: Snapshot", "x.json:1: broken JSON: "),
        ("[" * 100_000, "x.json: nested deeper than 100 levels"),
        ('{"a": NaN}', "x.json: NaN is not a number that JSON has"),
        ('{"a": 1' + "0" * 5000 + "}", "x.json: holds a number with too many digits"),
        ('{"a": {"b": [\n{"c": 1, "c": 2}]}}', "x.json:2: the key 'c' stands twice in a.b[0]"),
        ('{"a": 1, "a": 2}', "x.json:1: the key 'a' stands twice"),
    ],
)  # fmt: skip
def test_broken_json_is_one_sentence(text: str, told: str):
    assert told in refusal(text, "x.json")
    assert "\n" not in refusal(text, "x.json")


def test_many_small_aliases_cannot_stand_for_billions():
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))
    assert "stand for too many values" in refusal(HEADER + bomb)


def test_what_is_not_a_text_file_is_said_so(tmp_path: Path):
    binary = tmp_path / "snap.yaml"
    binary.write_bytes(b"\xff\xfe\x00\x01")
    for path, told in [
        (binary, "this is not a text file (not UTF-8)"),
        (tmp_path, "this is a folder, not a file"),
        (tmp_path / "snip.yaml", f"no such file; did you mean {binary}?"),
        (tmp_path / "no" / "where.yaml", "no such file"),
    ]:
        with pytest.raises(Unreadable) as caught:
            read_snapshot(path, 0.0)
        assert str(caught.value) == f"{path}: {told}"


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path):
    path = tmp_path / "s.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + HEADER.encode())
    assert read_snapshot(path, 0.0).now == 0.0


def test_lines_are_found_in_json_as_in_yaml():
    data = {"a": [{"b": 1}, {"c": [1, {"d": "x, ]}"}], "e": 2}], "f": {"g": []}}
    text = json.dumps(data, indent=1)
    as_json, as_yaml = parse(text, "x.json"), parse(text, "x.yaml")
    lines = text.splitlines()
    for at, shows in [(("a", 1, "e"), '"e": 2'), (("a", 1, "c", 1, "d"), '"d"'), (("f", "g"), '"g"'), (("a", 0), "{")]:
        assert shows in lines[as_json.line(at) - 1]
        assert as_json.line(at) == as_yaml.line(at)


def test_a_place_that_is_not_there_has_the_line_of_what_is_around_it():
    text = json.dumps({"a": [{"b": 1}]}, indent=1)
    for at in [("a", 0, "name"), ("a", 0, "b", "c", 4)]:
        assert parse(text, "x.json").line(at) in (3, 4)
    assert parse(text, "x.json").line(("a", 7)) == 2


def test_problems_in_json_have_lines():
    text = json.dumps(
        {"apiVersion": "gpuyard.dev/v1", "kind": "Snapshot", "jobs": [{"name": "a"}, {"name": "b", "x": 1}]}, indent=1
    )
    assert refusal(text, "x.json") == "x.json:10: job b has an unknown key x"
