"""A command line under test: run in this process, with a brain made by hand and a terminal of known width."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuyard import files
from gpuyard.cli.main import run
from gpuyard.model.snapshot import Snapshot
from tests.unit.cli import hand_made


@dataclass
class Answer:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Yard = Callable[..., Answer]


@pytest.fixture(autouse=True)
def quiet_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eighty columns and no colour, whatever the developer's terminal is."""
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def oracle(monkeypatch: pytest.MonkeyPatch) -> hand_made.Oracle:
    """A brain that says what hand_made says."""
    oracle = hand_made.Oracle()
    hand_made.install(monkeypatch, oracle)
    return oracle


@pytest.fixture
def yard(capsys: pytest.CaptureFixture[str]) -> Yard:
    """Runs a command and hands back exit code, stdout and stderr."""

    def call(*args: str) -> Answer:
        code = run(args)
        caught = capsys.readouterr()
        return Answer(code, caught.out, caught.err)

    return call


@pytest.fixture
def snapshot_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file that is read as the hand-made snapshot; any other path is read for real."""
    path = tmp_path / "cluster.yaml"
    path.write_text("apiVersion: gpuyard.dev/v1\nkind: Snapshot\n")
    really = files.read_snapshot

    def read(name: Path, now: float) -> Snapshot:
        return hand_made.SNAPSHOT if name == path else really(name, now)

    monkeypatch.setattr(files, "read_snapshot", read)
    return str(path)
