"""What a task finds in its environment, and what stays with its submitter."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest

from gpuyard.cli.jobs import environment, job_document
from gpuyard.cli.keeping import up
from gpuyard.model.job import Run


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"HF_HOME": "/hf", "HF_TOKEN": "s3cret", "WANDB_PROJECT": "p", "WANDB_API_KEY": "s3cret", "OTHER": "o"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)


def test_what_people_need_is_passed_on_and_secrets_stay_and_are_named(capsys: pytest.CaptureFixture[str]):
    found = environment.chosen(())
    assert (found["HF_HOME"], found["WANDB_PROJECT"]) == ("/hf", "p")
    assert not {"HF_TOKEN", "WANDB_API_KEY", "OTHER"} & set(found)
    assert capsys.readouterr().err == (
        "HF_TOKEN, WANDB_API_KEY may be secret and stays here; `--env HF_TOKEN` passes it on.\n"
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("HF_TOKEN",), {"HF_TOKEN": "s3cret"}),
        (("WANDB_*",), {"WANDB_API_KEY": "s3cret", "WANDB_PROJECT": "p"}),
        (("A=1", "B="), {"A": "1", "B": ""}),
        (("HF_HOME=/other",), {"HF_HOME": "/other"}),
    ],
)
def test_what_is_asked_for_is_passed_on(given: tuple[str, ...], expected: dict[str, str]):
    assert environment.chosen(given).items() >= expected.items()


def test_export_passes_everything_or_nothing():
    assert environment.chosen((), export="all").items() >= {"OTHER": "o", "HF_TOKEN": "s3cret"}.items()
    assert environment.chosen(("A=1",), export="none") == {"A": "1"}


def test_what_no_yard_keeps_is_left_out_in_a_word_unless_it_was_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("LESS_TERMCAP_md", "\x1b[01;31m")
    monkeypatch.setenv("WANDB_NOTES", "half \udcff a character")
    found = environment.chosen((), export="all")
    assert "OTHER" in found
    assert not {"LESS_TERMCAP_md", "WANDB_NOTES"} & set(found)
    assert capsys.readouterr().err == (
        "LESS_TERMCAP_md, WANDB_NOTES stay here: a variable's value must be text without control characters, "
        "of at most 128 KiB.\n"
    )
    assert "WANDB_NOTES" not in environment.chosen(())
    assert "WANDB_NOTES" not in environment.chosen(("WANDB_*",))
    assert environment.chosen(("LESS_TERMCAP_md",))["LESS_TERMCAP_md"] == "\x1b[01;31m"  # named: refused by the yard


def test_a_file_of_variables(tmp_path: Path):
    path = tmp_path / "vars"
    path.write_text("# mine\n\nA=1\nexport B='two words'\nOTHER\nC=x=y\n")
    found = environment.chosen((), [str(path)], "none")
    assert found == {"A": "1", "B": "two words", "OTHER": "o", "C": "x=y"}


@pytest.mark.parametrize("line", ["1A=1", "just words", "=x", "NOBODY_HAS_THIS"])
def test_a_line_that_is_none_is_told_with_its_number(tmp_path: Path, line: str):
    path = tmp_path / "vars"
    path.write_text(f"A=1\n{line}\n")
    with pytest.raises(click.UsageError, match="vars:2"):
        environment.chosen((), [str(path)])


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path):
    with pytest.raises(click.UsageError, match="cannot be read: No such file"):
        environment.chosen((), [str(tmp_path / "none")])


def test_whoever_only_looks_sees_names_of_variables_and_no_values():
    assert Run(("x",), (("TOKEN", "s3cret"),)).kept_back().env == (("TOKEN", "(kept back)"),)


def test_bare_numbers_are_asked_what_they_mean():
    with pytest.raises(click.UsageError, match=r"30s, 30m or 30h\?"):
        job_document.duration("30", "--time-limit")
    with pytest.raises(click.UsageError, match=r"64Gi or 64Mi\?"):
        job_document.size("64", "--memory")


def test_a_yard_in_the_background_finds_modules_that_were_named_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"src{os.pathsep}/opt/more")
    assert up.environment()["PYTHONPATH"] == f"{tmp_path}/src{os.pathsep}/opt/more"
    monkeypatch.delenv("PYTHONPATH")
    assert "PYTHONPATH" not in up.environment()
