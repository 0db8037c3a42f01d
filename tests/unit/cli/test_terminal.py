"""Colour and width: what a terminal, a pipe and a dumb terminal get."""

from __future__ import annotations

import pytest

from gpuyard.cli.console.terminal import Column, Screen, text

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
