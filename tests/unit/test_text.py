"""The gate for text: what may enter as a name, a path, a word of a command, a variable; and that every door asks it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard import files
from gpuyard.cli.main import run
from gpuyard.model.errors import Refused
from gpuyard.model.outside import text
from tests.support.yards import ADMIN, ME, TestYard, sh

BAD = ("a\0b", "a\x1b[2J", "\ud800", "a\x7f", "a\x85", "\u2028", "\udcff")


@pytest.mark.parametrize("bad", BAD)
def test_nothing_but_whole_printable_text_is_a_name_a_path_or_prose(bad: str):
    assert all(wrong(bad) for wrong in (text.wrong_line, text.wrong_path, text.wrong_prose, text.wrong_variable))
    assert all(wrong(bad).isascii() for wrong in (text.wrong_line, text.wrong_path, text.wrong_prose))


def test_commands_may_have_lines_and_names_may_not():
    assert not text.wrong_prose("for i in 1 2\n\tdo echo ü\ndone")
    assert text.wrong_line("two\nlines")
    assert text.wrong_line("\u202etxt.exe")  # turns what follows around
    assert not text.wrong_path("/srv/données")


def test_everything_has_an_end():
    assert text.wrong_line("a" * 254) == "must have at most 253 characters"
    assert text.wrong_path("/" + "é" * 2048) == "must have at most 4095 bytes"
    assert not text.wrong_prose("a" * text.PROSE_MAX)
    assert text.wrong_prose("é" * 70_000) == "must have at most 131071 bytes"


@pytest.mark.parametrize("bad", [*BAD, "two\nlines", "naïve"])
def test_what_is_wrong_with_a_token_is_told_without_any_of_it(bad: str):
    assert text.wrong_token(f"SECRET{bad}") == "must be printable ASCII on one line, and holds something else"
    assert not text.wrong_token("eyJhbGciOi.J9-_~+/==")


@pytest.mark.parametrize(
    "url",
    [
        "https://10.0.0.1:6443",
        "http://[::1]:80",
        "HTTPS://a-b.c/k8s/clusters/c-1",
        "https://[fe80::1%eth0]",
        "http://x/",
    ],
)
def test_the_address_of_a_server_may_have_a_port_and_a_path(url: str):
    assert text.wrong_url(url) == ""


@pytest.mark.parametrize(
    "url", ["", "x", "x:80", "ftp://x", "https://", "https://[::1", "https://x:65536", "http://a b", "http://x/\n"]
)
def test_what_is_no_address_of_a_server_is_told_what_one_is(url: str):
    told = text.wrong_url(url)
    assert told.startswith("must be https://HOST:PORT or http://HOST:PORT with a port of at most 65535, not '")
    assert told.isprintable()


def test_a_password_in_an_address_is_not_shown():
    assert "hidden" not in text.wrong_url("https://me:hidden@x:6443")
    assert "hidden" not in text.wrong_url("https://me:hidden@x:99999999")


def test_the_name_of_a_variable_is_a_name():
    assert not text.wrong_variable("_A1")
    for bad in ("", "1A", "A=B", "A B", "A-B", "A\0uid\x000", "A\n", "é", "A" * 254):
        assert text.wrong_variable(bad)


PLACES: tuple[dict[str, Any], ...] = (
    {"name": "{bad}"}, {"queue": "{bad}"}, {"models": ["{bad}"]}, {"after": ["{bad}"]}, {"array": "{bad}"},
    {"node_selector": {"{bad}": "x"}}, {"node_selector": {"x": "{bad}"}}, {"topology": {"required": "{bad}"}},
    {"checkpoint": {"signal": "{bad}"}}, {"{bad}": 1}, {"avoid": {"queues": ["{bad}"]}},
    {"run": {"command": ["{bad}"]}}, {"run": {"command": ["x"], "env": {"{bad}": "x"}}},
    {"run": {"command": ["x"], "env": {"A": "{bad}"}}}, {"run": {"command": ["x"], "workdir": "{bad}"}},
    {"run": {"command": ["x"], "image": "{bad}"}},
)  # fmt: skip


def filled(value: Any, bad: str) -> Any:
    if isinstance(value, dict):
        return {filled(key, bad): filled(inner, bad) for key, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner, bad) for inner in value]
    return value.replace("{bad}", bad) if isinstance(value, str) else value


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_no_place_of_a_job_takes_it(place: dict[str, Any], bad: str):
    document = {"name": "a", "run": {"command": ["true"]}} | filled(place, bad)
    with pytest.raises(Refused) as told:
        files.read_submission(document, 0.0)
    sentence = str(told.value)
    assert sentence.encode()  # the refusal itself can be sent to anybody
    assert sentence.replace("\n", "").isprintable()


def test_a_variable_that_is_no_name_is_refused_with_its_place(yard: TestYard):
    with pytest.raises(Refused, match=r"run\.env has a key that must be letters, digits and _"):
        yard.put(sh("true", name="a", run={"env": {"A\0uid\x000\0": "1"}}))


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[TestYard]:
    made = TestYard(tmp_path / "state")
    made.start()
    yield made
    made.stop()


@pytest.mark.parametrize("bad", BAD)
def test_queues_and_drains_do_not_take_it_either(yard: TestYard, bad: str):
    with pytest.raises(Refused):
        yard.set_queue(ADMIN, {"name": bad, "quota": 1}, dry_run=False)
    with pytest.raises(Refused):
        yard.drain(ADMIN, {"node": "n0", "reason": f"x{bad}x"})
    with pytest.raises(Refused):
        yard.job(ME, bad)


def test_a_command_line_that_is_no_text_is_one_sentence(capsys: pytest.CaptureFixture[str]):
    assert run(["show", "\udcff"]) == 2
    assert "Word 2 of the command line must be whole UTF-8" in capsys.readouterr().err
