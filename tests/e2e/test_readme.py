"""README's transcripts are what the commands really print, numbers and names of the day aside."""

from __future__ import annotations

import platform
import re
import shlex
from pathlib import Path

import pytest

from tests.e2e.conftest import Shell

pytestmark = pytest.mark.slow

README = Path(__file__).resolve().parents[2] / "README.md"


def transcripts() -> list[list[tuple[str, list[str]]]]:
    """Every indented block that types `yard`: its commands, each with the lines that follow it."""
    found = []
    for block in re.split(r"\n(?!    |\n)", README.read_text()):
        session: list[tuple[str, list[str]]] = []
        for line in (line[4:] for line in block.splitlines() if line.startswith("    ")):
            if line.startswith("$ yard ") and "asked after" not in line:
                session.append((line.removeprefix("$ "), []))
            elif session and line.strip():
                session[-1][1].append(line)
        if session:
            found.append(session)
    return found


def normal(text: str) -> list[str]:
    """Lines without numbers, addresses, folders and machine names; a run of alike lines is one."""
    text = text.replace(platform.node(), "here")
    text = re.sub(r"http://\S+", "URL", text)
    text = re.sub(r"(State:\s+)\S+", r"\1FOLDER", text)
    text = re.sub(r"(GPUs are )[^\n]*", r"\1SUCH", text)
    text = re.sub(r"; in about [^;\n]*|Likely starts [^\n]*", "", text)  # learned from what ran before
    text = re.sub(r", \d+s of work lost", "", text)  # as long as the commands took
    lines: list[str] = []
    for line in text.splitlines():
        line = " ".join(re.sub(r"\d+(\.\d+)?", "N", line).split())
        if line and (not lines or lines[-1] != line):
            lines.append(line)
    return lines


@pytest.mark.parametrize("session", transcripts(), ids=lambda session: session[0][0])
def test_a_transcript_is_what_happens(session: list[tuple[str, list[str]]], shell: Shell):
    for typed, expected in session:
        words = shlex.split(typed)[1:]
        if words[0] in ("up", "demo"):
            words += ["--port", "0"]
        done = shell(*words)
        assert normal(done.stderr + done.stdout) == normal("\n".join(expected)), typed


def test_there_are_transcripts():
    assert {session[0][0] for session in transcripts()} >= {"yard demo", "yard up --detach"}
