"""What is printed as the next step works as printed, from where the reader stands, at the yard that was meant."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import pytest

from gpuyard.cli.console import hints, terminal
from gpuyard.cli.keeping import up
from gpuyard.cli.keeping.status import Ailing
from gpuyard.cli.keeping.yard_log import YardLog
from gpuyard.client import places
from tests.support.fake_yard import FakeYard
from tests.support.hosted import hosted
from tests.unit.cli.conftest import Yard


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `yard` beside an interpreter that is not on the PATH."""
    own = tmp_path / "clone" / ".venv" / "bin" / "yard"
    own.parent.mkdir(parents=True)
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(own.parent / "python"))
    return own


def test_yard_is_told_as_the_shell_finds_it(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(script.parent))
    assert hints.yard() == "yard"
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(tmp_path / "clone")
    assert hints.yard() == ".venv/bin/yard"
    monkeypatch.chdir("/")
    assert hints.yard() == str(script)


def test_another_yard_on_the_path_is_not_this_one(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    other = tmp_path / "other" / "yard"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(other.parent))
    assert hints.yard() == str(script)
    other.unlink()
    other.symlink_to(script)  # as pipx and `uv tool install` do it
    assert hints.yard() == "yard"


def test_commands_in_a_sentence_carry_the_state_that_was_named(capsys: pytest.CaptureFixture[str]):
    with click.Context(click.Command("x")) as context:
        context.meta[hints.REACH] = "/tmp/a b"
        terminal.say("a goes on. `yard logs a -f` shows it, `yard cancel a` ends it.")
    assert capsys.readouterr().err == (
        "a goes on. `yard --state '/tmp/a b' logs a -f` shows it, `yard --state '/tmp/a b' cancel a` ends it.\n"
    )


def test_state_before_or_behind_the_command_names_the_yard(yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GPUYARD_STATE", str(tmp_path / "nobody"))
    monkeypatch.setenv("GPUYARD_URL", "http://127.0.0.1:9")
    with hosted(tmp_path / "one") as one, hosted(tmp_path / "two") as two:
        for live in (one, two):
            with live.client() as client:
                client.submit([{"name": f"in-{live.state.name}"}])
        assert yard("--state", str(one.state), "jobs", "-o", "name").out == "in-one\n"
        assert yard("jobs", "-o", "name", "--state", str(two.state)).out == "in-two\n"
        monkeypatch.chdir(tmp_path)
        assert yard("queues", "--state", "two", "-o", "name").out == "default\n"
    assert os.environ["GPUYARD_STATE"] == str(tmp_path / "nobody")
    assert os.environ["GPUYARD_URL"] == "http://127.0.0.1:9"
    told = yard("--state", str(tmp_path / "none"), "jobs")
    assert (told.code, f"`yard --state {tmp_path}/none up`" in told.err) == (1, True)


# --- down takes nobody else's --------------------------------------------------------------------


def test_down_never_takes_another_yard(yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The attack: with its own yard gone, `yard down` went on to the machine's, and took it from everybody."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GPUYARD_STATE", raising=False)
    with hosted(tmp_path / "machine") as shared, hosted(tmp_path / "try") as other:
        monkeypatch.setattr(places, "SHARED_SOCKET", places.socket_path(shared.state))
        assert yard("jobs").code == 0  # whoever only asks finds the machine's
        told = yard("down")
        assert told.code == 1
        assert "`yard down --shared` stops that one" in told.err
        assert yard("down", "--state", str(tmp_path / "none")).code == 1
        assert not shared.hosting.wait(0)
        assert not other.hosting.wait(0)
        assert yard("down", "--shared", "--state", "x").code == 2


# --- up and status are loud ----------------------------------------------------------------------


class Ill(FakeYard):
    """A yard whose loop does not turn."""

    def __init__(self, **checks: str) -> None:
        super().__init__()
        self.checks |= checks

    def status(self) -> dict[str, Any]:
        return super().status() | {"last_cycle": 0.0}


@pytest.mark.parametrize("check", ["loop", "turns", "store"])
def test_a_yard_that_does_not_plan_fails_status_and_up(
    check: str, yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The attack: the loop was dead, yet `yard up` said "Up." and left with 0."""
    monkeypatch.setenv("GPUYARD_STATE", str(tmp_path / "s"))
    with hosted(tmp_path / "s", Ill(**{check: "KeyError: 'prod'"})) as live:
        for form in ("table", "json"):
            told = yard("status", "-o", form)
            assert (told.code, told.err) == (1, "error: This yard plans nothing: KeyError: 'prod'.\n")
            assert "KeyError" in told.out
        answer = live.tcp("GET", "/readyz", Authorization=f"Bearer {live.token}")
        assert (answer.status, b"KeyError" in answer.body) == (503, True)
        child = type("Child", (), {"pid": 4711, "poll": lambda self: None})()
        with live.client() as client, pytest.raises(Ailing, match="plans nothing: KeyError: 'prod'"):
            up._await_answer(child, client, YardLog(tmp_path / "log", 0))


def test_a_yard_is_up_once_it_has_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    looks = iter([0.0, 0.0, 5.0])
    ill = Ill()
    monkeypatch.setattr(ill, "status", lambda: FakeYard.status(ill) | {"last_cycle": next(looks)})
    child = type("Child", (), {"pid": 4711, "poll": lambda self: None})()
    with hosted(tmp_path / "s", ill) as live, live.client() as client:
        up._await_answer(child, client, YardLog(tmp_path / "log", 0))
    assert next(looks, None) is None
