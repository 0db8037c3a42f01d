"""The examples of docs/concepts and of the handbook are run: what `yard` says of a page's snapshots stands below them.

A fenced `yaml` block that begins with `apiVersion:` is fleet.yaml for the fenced `console` blocks after it; each of
those begins with `$ yard ...` and shows its output. A line `...` stands for any lines, `… ms` for any time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest

from gpuyard.cli.main import run
from gpuyard.cli.root import ENTRIES
from gpuyard.files.format.policies import POLICY
from gpuyard.model.alerts import AlertKind
from gpuyard.model.policy import AlertPolicy, ClassPolicy, OrderPolicy, Policy
from tests.support import policy_page
from tests.support.hosted import hosted

CONCEPTS = Path(__file__).resolve().parent.parent / "docs" / "concepts"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RULE = re.compile(r"\[[Rr]ules? (\d+)")


@dataclass(frozen=True)
class Claim:
    """A command and what the page says it prints."""

    page: str
    snapshot: str
    command: str
    output: str


def claims(page: Path) -> list[Claim]:
    """The claims of one page, in order."""
    found, snapshot = [], ""
    for language, text in FENCE.findall(page.read_text(encoding="utf-8")):
        if language == "yaml" and text.startswith("apiVersion: gpuyard.dev/v1"):
            snapshot = text
        elif language == "console":
            command, _, output = text.partition("\n")
            found.append(Claim(page.name, snapshot, command.removeprefix("$ "), output))
    return found


PAGES = sorted(CONCEPTS.glob("*.md"))
HANDBOOK = CONCEPTS.parent / "handbook.md"
CLAIMS = [claim for page in (*PAGES, HANDBOOK) for claim in claims(page)]
LIVE = [
    line for language, text in FENCE.findall(HANDBOOK.read_text(encoding="utf-8")) if language == "sh"
    for line in text.splitlines()
]  # fmt: skip
"""What the handbook types at a running yard."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_concept_has_a_drawing_an_example_that_is_run_and_its_rules(page: Path):
    text = page.read_text(encoding="utf-8")
    assert [claim for claim in claims(page) if claim.snapshot], "no snapshot with a claim about it"
    assert RULE.search(text), "no rule is cited"
    assert "```text\n" in text, "nothing is drawn"


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.page}: {claim.command}")
def test_the_page_shows_what_yard_says(
    claim: Claim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "116")
    monkeypatch.setenv("NO_COLOR", "1")
    Path("fleet.yaml").write_text(claim.snapshot, encoding="utf-8")
    program, *args = claim.command.split()
    assert program == "yard"
    assert run(args) == 0
    said = re.sub(r"\d+\.\d ms", "… ms", capsys.readouterr().out)
    assert matches(claim.output, said), f"the page says\n{claim.output}\nand yard says\n{said}"


@pytest.mark.parametrize("line", sorted(set(LIVE)))
def test_what_the_handbook_types_at_a_running_yard_works(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GPUYARD_STATE", str(tmp_path / "state"))
    program, *args = line.split()
    assert program == "yard"
    with hosted(tmp_path / "state"):
        assert run(args) == 0


def test_the_handbook_names_knobs_and_kinds_that_exist():
    text = HANDBOOK.read_text(encoding="utf-8")
    knobs = {field.name for kind in (Policy, ClassPolicy, AlertPolicy, OrderPolicy) for field in fields(kind)}
    named = {word for word in re.findall(r"`([a-z_.]+)`", text) if "_" in word}
    spoken = {"time_limit", "gpuyard_alerts", "gpuyard_stranded_gpus", "gpuyard_stranded_ratio", "_gpus", "_after"}
    unknown = {word for word in named - spoken if word.rpartition(".")[2] not in knobs}
    assert not unknown, "knobs that there are not"
    assert all(f"| {kind.value} |" in text for kind in AlertKind), "an alert that the handbook does not know"


def test_the_policy_page_has_every_knob_with_its_default_and_its_sentence():
    """`python -m tests.support.policy_page` writes it anew."""
    assert policy_page.PAGE.read_text(encoding="utf-8") == policy_page.expected()


def test_the_policy_page_has_every_key_of_the_schema():
    def keys(schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
        for name, part in schema["properties"].items():
            inner = definitions.get(part.get("$ref", "").rpartition("/")[2], part)
            yield from keys(inner, f"{prefix}{name}.") if "properties" in inner else [f"{prefix}{name}"]

    definitions: dict[str, Any] = {}
    POLICY.schema(definitions)
    known = {re.sub(r"classes\.\w+", "classes.CLASS", key) for key in keys(definitions["Policy"])}
    assert known == set(re.findall(r"^\| `([\w.]+)`", policy_page.PAGE.read_text(encoding="utf-8"), re.MULTILINE))


def matches(written: str, said: str) -> bool:
    """Whether the output is the one written down, where `...` stands for any lines."""
    parts = [re.escape(part) for part in re.split(r"^\.\.\.\n", written, flags=re.MULTILINE)]
    return re.fullmatch("(?:.*\n)*?".join(parts), said) is not None


def test_dots_stand_for_any_lines_and_nothing_else_does():
    assert matches("a\n...\nc\n", "a\nb\nb\nc\n")
    assert matches("a\n...\nc\n", "a\nc\n")
    assert not matches("a\nc\n", "a\nb\nc\n")


def test_no_word_of_the_glossary_has_two_meanings():
    rows = re.findall(r"^\| (\*\*.*?) \|", (CONCEPTS.parent / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    words = Counter(word.lower() for row in rows for word in re.findall(r"\*\*(.+?)\*\*", row))
    assert len(words) > 100
    assert [word for word, times in words.items() if times > 1] == []


# --- the tree is drawn as it is ------------------------------------------------------------------

ARCHITECTURE = (CONCEPTS.parent / "architecture.md").read_text(encoding="utf-8")
SOURCE = CONCEPTS.parent.parent / "src" / "gpuyard"
FIELD_WORDS = (
    "quota", "gang", "topology", "preemption", "reclaim", "backfill", "defragmentation", "deadlock", "drain", "explain",
)  # fmt: skip


def drawn_rooms() -> set[str]:
    """The folders in the drawing of src/gpuyard, by their indentation."""
    lines = ARCHITECTURE.split("    src/gpuyard/\n")[1].split("    tests/ ")[0].splitlines()
    found, above = set(), list[tuple[int, str]]()
    for line in lines:
        depth, name = len(line) - len(line.lstrip()), line.split()[0]
        if name.endswith("/"):
            above = [(at, room) for at, room in above if at < depth]
            above.append((depth, name.rstrip("/")))
            found.add("/".join(room for _, room in above))
    return found


def test_the_architecture_page_draws_every_room_that_there_is_and_no_other():
    rooms = {str(path.parent.relative_to(SOURCE)) for path in SOURCE.rglob("__init__.py")} - {"."}
    assert drawn_rooms() == rooms


def test_the_architecture_page_names_every_command_in_its_room():
    lines = {line.split()[0]: set(re.findall(r"\w+", line)) for line in ARCHITECTURE.splitlines() if "/  " in line}
    missing = [entry.name for entry in ENTRIES.values() if entry.name not in lines[f"{entry.module.split('.')[0]}/"]]
    assert missing == []


def test_every_file_that_the_architecture_page_names_is_there():
    files = [f"/{path.relative_to(SOURCE.parent.parent)}" for path in SOURCE.parent.parent.rglob("*.py")]
    named = set(re.findall(r"`([\w/]+\.py)`", ARCHITECTURE))
    assert {name for name in named if not any(path.endswith(f"/{name}") for path in files)} == set()
    assert len(named) > 40


@pytest.mark.parametrize("word", FIELD_WORDS)
def test_whoever_looks_for_a_word_of_the_field_finds_a_file_or_folder_of_that_name(word: str):
    brain = SOURCE / "brain"
    assert [path for path in brain.rglob("*") if path.stem.startswith(word) and "__pycache__" not in str(path)]
