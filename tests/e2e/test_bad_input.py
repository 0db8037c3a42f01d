"""Five hundred bad job files and command lines: exit code 2 and one clear message each, and the yard stays up."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from gpuyard.cli.main import run
from tests.e2e.conftest import Shell

pytestmark = pytest.mark.slow

SEED = 6
FILES, LINES = 300, 200

GOOD = {
    "name": "t", "gpus": 1, "tasks": 2, "queue": "default", "time_limit": "1h", "models": ["virtual"],
    "checkpoint": {"grace": "5s"}, "run": {"command": ["true"], "env": {"A": "b"}, "retries": 1},
}  # fmt: skip
WRONG: tuple[object, ...] = (
    -1, 10**30, 1.5, "", "many", None, [], {}, [[]], {"a": {"b": []}}, True, "1h", "\u0000", "x" * 5000, [1, "a"],
    float("inf"),
)  # fmt: skip
WORDS = ("--gpus", "--tasks", "--queue", "--time-limit", "--array", "--memory", "--priority", "--env", "--frobnicate")
VALUES = ("", "-1", "two", "0x10", "9" * 40, "H100:", ":8", "1-", "%", "\u00e9", "--", "1.2.3", "a=b", "$(true)")
BREAK = (
    "{",
    "name: [",
    "\t- x",
    "name: a\nname: b",
    "- 1\n- 2",
    "42",
    "&a [*a]",
    "!!python/object:os.system x",
    "\x00",
)


def bad_file(dice: random.Random) -> str:
    """A job file with one thing wrong, or text that is none at all."""
    if dice.random() < 0.2:
        return dice.choice(BREAK) + dice.choice(("", "\n", " x"))
    document = json.loads(json.dumps(GOOD))
    place = dice.choice([document, document["run"], document["checkpoint"]])
    if dice.random() < 0.3:
        place[dice.choice(("gpu", "comand", "Name", "taks", "placements_", ""))] = 1
    else:
        place[dice.choice(list(place))] = dice.choice(WRONG)
    return json.dumps(document) if dice.random() < 0.5 else "# a job\n" + json.dumps(document, indent=1)


def bad_line(dice: random.Random) -> list[str]:
    """`yard run` with options that cannot be."""
    words = [w for _ in range(dice.randint(1, 3)) for w in (dice.choice(WORDS), dice.choice(VALUES))]
    return ["run", "--detach", *words, "--frobnicate" if dice.random() < 0.3 else "--gpus", "two", "--", "true"]


def told(capsys: pytest.CaptureFixture[str], args: list[str]) -> tuple[int, str]:
    code = run(args)
    return code, capsys.readouterr().err


def test_bad_files_and_lines_are_told_and_disturb_nobody(
    shell: Shell, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GPUYARD_STATE", str(shell.state))
    shell.up()
    dice = random.Random(SEED)
    refused = 0
    while refused < FILES:
        path = tmp_path / "job.yaml"
        path.write_text(bad_file(dice))
        code, words = told(capsys, ["submit", "--dry-run", str(path)])
        assert code in (0, 2, 3, 4, 5), (code, words, path.read_text())  # some of what is thrown in happens to be right
        assert code in (0, 5) or words.startswith(("error: ", "warning: ")) or "\nerror: " in words
        assert "Traceback" not in words
        assert "a bug" not in words, path.read_text()
        refused += code == 2
    for _ in range(LINES):
        args = bad_line(dice)
        code, words = told(capsys, args)
        assert (code, words.count("error: ")) == (2, 1), (args, words)
    with shell.client() as client:
        assert client.status()["healthy"]
        assert client.jobs() == []
