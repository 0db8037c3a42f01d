"""Transcripts of README and the guide to jobs are what commands really print, numbers and names of the day aside."""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import yaml

from gpuyard import files
from tests.e2e.conftest import PATIENCE_S, Shell

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
JOBS = ROOT / "docs" / "guides" / "jobs.md"
PAGES = (ROOT / "README.md", JOBS)


def transcripts() -> list[list[tuple[str, list[str]]]]:
    """Every indented block that types `yard`: its commands, each with the lines that follow it."""
    found = []
    for block in re.split(r"\n(?!    |\n)", "\n".join(page.read_text() for page in PAGES)):
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
    text = re.sub(r", (\d+[smhd])+ to do again", "", text)  # as long as the commands took
    text = re.sub(r"\b(\d+[smhd])+\b", "0s", text)  # and so are ages
    text = re.sub(r"\bjobs? running", "jobs running", text)  # of one or more, as it comes
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


def blocks(heading: str) -> list[str]:
    """The indented blocks below a heading of the guide to jobs."""
    text = JOBS.read_text().split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return [textwrap.dedent(block) for block in re.findall(r"(?m)(?:^    .*\n|^\n(?=    ))+", text)]


def test_the_job_file_of_the_guide_is_one():
    document = yaml.safe_load(blocks("A job file")[0])
    assert files.read_submission(document, 0.0).job.name == "train"


def test_the_training_of_the_guide_tells_how_far_it_is(shell: Shell, tmp_path: Path):
    shell.up()
    (tmp_path / "train.py").write_text(blocks("How far it is")[0])
    done = shell("run", "--name", "train", "--gpus", "1", "--", sys.executable, str(tmp_path / "train.py"))
    shown = shell("show", "train").stdout.splitlines()[0]
    said = re.search(r"^`(train succeeded [^`]*)`", JOBS.read_text(), re.MULTILINE)
    assert said is not None
    assert normal(said[1]) == normal(done.stderr)[-1:]
    assert shown.startswith("train succeeded: 12 steps, ")


def test_the_program_of_the_guide_runs(shell: Shell, tmp_path: Path):
    shell.up()
    (tmp_path / "train.py").write_text("print('trained')\n")
    program = blocks("From Python")[0].replace('"python", "train.py"', f'"{sys.executable}", "{tmp_path}/train.py"')
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "GPUYARD_STATE": str(shell.state)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stdout.endswith("succeeded trained\n\n"), done.stderr
