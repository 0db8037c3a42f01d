"""Colour and width: what a terminal, a pipe and a dumb terminal get."""

from __future__ import annotations

import json
import os
import pwd
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.cli.console import terminal
from gpuyard.cli.console.terminal import Column, Screen, text
from gpuyard.cli.jobs import following
from gpuyard.cli.main import run
from tests.support.hosted import Hosted, hosted

ESCAPE = "\x1b["
COLUMNS = (Column("NAME"), Column("WHY", wraps=True))
ROWS = [[text("llm", "green"), "because " * 30]]


@pytest.fixture
def drawn(capsys: pytest.CaptureFixture[str]):
    def draw() -> str:
        Screen().table(COLUMNS, ROWS)
        return capsys.readouterr().out

    return draw


def test_a_pipe_gets_no_colour(drawn):
    assert ESCAPE not in drawn()


def test_force_color_colours_a_pipe(drawn, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert ESCAPE in drawn()


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_color_and_a_dumb_terminal_win_over_force_color(
    drawn, monkeypatch: pytest.MonkeyPatch, name: str, value: str
):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv(name, value)
    assert ESCAPE not in drawn()


@pytest.mark.parametrize("width", [40, 80, 120])
def test_words_wrap_at_the_columns_asked_for(drawn, monkeypatch: pytest.MonkeyPatch, width: int):
    monkeypatch.setenv("COLUMNS", str(width))
    assert width - 12 < max(map(len, drawn().splitlines())) <= width


def test_a_pipe_gets_whole_lines_for_grep(drawn, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("COLUMNS")
    assert len(drawn().splitlines()) == 2


def test_names_are_never_cut(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "20")
    name = "a-name-that-is-longer-than-the-terminal"
    Screen().table((Column("NAME"), Column("QUEUE")), [[name, "research"]])
    assert name in capsys.readouterr().out


def test_lines_have_no_blanks_at_their_end(drawn):
    assert all(line == line.rstrip() for line in drawn().splitlines())


def test_square_brackets_are_not_taken_for_markup(capsys: pytest.CaptureFixture[str]):
    Screen().table((Column("WHERE"),), [["n0[red]"]])
    assert "n0[red]" in capsys.readouterr().out


# --- what others wrote ---------------------------------------------------------------------------

EVIL = "a\x1b]0;owned\x07\x1b[2J\x9b31m\rb\u202egpj\ud800"
WHOLE = EVIL.removesuffix("\ud800")
"""Without the half character, which never gets through JSON."""
OBEYED = "\x1b\x07\x9b\r\u202e\ud800"


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosted]:
    """A yard in which others have given jobs names, reasons and output that a terminal would obey."""
    monkeypatch.setenv("GPUYARD_STATE", str(tmp_path / "state"))
    me = pwd.getpwuid(os.geteuid()).pw_name
    with hosted(tmp_path / "state") as served:
        for name, user in ((WHOLE, WHOLE), ("theirs", WHOLE), ("mine", me)):
            served.yard.known[name] = {
                "name": name, "user": user, "queue": WHOLE, "phase": "waiting", "tasks": 1, "gpus": 1,
                "class": "training", "reason": {"code": WHOLE, "message": WHOLE}, "message": WHOLE,
                "submitted": "2026-01-01T00:00:00Z", "placements": [{"node": WHOLE, "gpus": [0]}],
            }  # fmt: skip
            served.yard.output[name] = WHOLE.encode() + b"\n\xff"
        yield served


@pytest.mark.parametrize("form", ["table", "wide", "json", "yaml", "name"])
@pytest.mark.parametrize("colour", ["", "1"])
def test_nothing_that_others_wrote_reaches_the_terminal_as_a_command(
    live: Hosted, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, form: str, colour: str
):
    monkeypatch.setenv("FORCE_COLOR", colour)
    assert run(["jobs", "-o", form]) == 0
    shown = capsys.readouterr().out
    assert "\x1b]" not in shown
    assert "\x1b[2J" not in shown
    assert not any(letter in shown for letter in OBEYED.replace("\x1b", ""))
    if not colour:
        assert "\x1b" not in shown
    if form == "json":
        assert json.loads(shown)[0]["user"] == WHOLE


@pytest.mark.parametrize("words", [["why", EVIL], ["cancel", EVIL], ["wait", WHOLE, "--timeout", "0s"], [EVIL]])
def test_neither_do_mistakes(live: Hosted, capsys: pytest.CaptureFixture[str], words: list[str]):
    run(words)
    shown = capsys.readouterr()
    assert shown.err
    assert not any(letter in shown.out + shown.err for letter in OBEYED)


def test_every_word_we_say_passes_one_place(capsys: pytest.CaptureFixture[str]):
    terminal.say(EVIL)
    terminal.write(EVIL)
    Screen().table((Column("NAME"),), [[EVIL]])
    Screen().show(text(EVIL))
    shown = capsys.readouterr()
    assert not any(letter in shown.out + shown.err for letter in OBEYED)
    assert shown.err == "a\\u001b]0;owned\\u0007\\u001b[2J\\u009b31m\\u000db\\u202egpj\\ud800\n"


def test_a_terminal_obeys_my_own_output_and_nobody_else_s(live: Hosted, capfdbinary: pytest.CaptureFixture[bytes]):
    def shown(name: str, escaped: bool) -> bytes:
        with live.client() as client:
            following.Output(client, [following.Speaker(name, 0, "")], escaped).read_all()
        return capfdbinary.readouterr().out

    assert b"\x1b[2J" in shown("mine", False)
    theirs = shown("theirs", True)
    assert not any(letter.encode() in theirs for letter in "\x1b\x07\r\u202e")
    assert theirs.endswith(b"\n\\xff")


@pytest.mark.parametrize(
    ("name", "raw", "obeyed"), [("mine", [], True), ("theirs", [], False), ("theirs", ["--raw"], True)]
)
def test_raw_is_for_who_asks_for_it(
    live: Hosted, monkeypatch: pytest.MonkeyPatch, name: str, raw: list[str], obeyed: bool
):
    seen: list[bool] = []
    monkeypatch.setattr(following.Output, "read_all", lambda output, _: seen.append(not output._escaped))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert run(["logs", name, *raw]) == 0
    assert seen == [obeyed]


def test_another_s_terminal_is_not_opened_unasked(live: Hosted, capsys: pytest.CaptureFixture[str]):
    assert run(["attach", "theirs"]) == 2
    assert "your terminal would obey what it writes; --raw" in capsys.readouterr().err
