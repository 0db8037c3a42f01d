"""The door: help, speed, mistakes, exit codes. What every command shares."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import click
import pytest

from gpuyard import __version__
from gpuyard.cli import main, root
from gpuyard.model.errors import Broken, NotFound, Refused
from tests.unit.cli.conftest import Yard

HEAVY = (
    "numpy", "pydantic", "fastapi", "rich", "yaml", "msgspec", "asyncio",
    "gpuyard.brain", "gpuyard.files", "gpuyard.worlds", "gpuyard.server",
)  # fmt: skip


def python(code: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload,no-any-return]


def raising(mistake: BaseException) -> click.Command:
    @click.command("version")
    @click.option("--debug", is_flag=True)
    def fail(debug: bool) -> None:
        raise mistake

    return fail


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch):
    def with_mistake(mistake: BaseException) -> None:
        monkeypatch.setattr(root.LazyGroup, "get_command", lambda *_: raising(mistake))

    return with_mistake


# --- help ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("args", [(), ("--help",), ("-h",)])
def test_help_shows_examples_every_command_and_the_exit_codes(yard: Yard, args: tuple[str, ...]):
    answer = yard(*args)
    assert answer.code == 0
    assert answer.out.index("Examples:") < answer.out.index("Decide and explain:")
    for name in root.ENTRIES:
        assert f"\n  {name} " in answer.out
    for line in root.EXIT_CODES.splitlines():
        assert line in answer.out


@pytest.mark.parametrize("name", sorted(root.ENTRIES))
def test_every_command_has_help_with_examples(yard: Yard, name: str):
    answer = yard(name, "--help")
    assert answer.code == 0
    assert f"Usage: yard {name}" in answer.out
    assert f"  yard {name}" in answer.out[answer.out.index("Examples:") :] or name == "completion"


def test_help_fits_eighty_columns(yard: Yard):
    for args in ((), *((name,) for name in root.ENTRIES)):
        assert max(map(len, yard(*args, "--help").lines)) <= 80


@pytest.mark.parametrize("asked", ["--help", "completion of the first word"])
def test_help_and_completion_import_neither_numpy_nor_pydantic_nor_fastapi_nor_the_engine(asked: str):
    code = (
        "import sys, json, gpuyard.cli.main as m\n"
        "m.run(['--help'])\n"
        "print('\\n' + json.dumps(sorted(sys.modules)), end='')"
    )
    shell = {"_YARD_COMPLETE": "bash_complete", "COMP_WORDS": "yard wh", "COMP_CWORD": "1"}
    environ = os.environ | ({} if asked == "--help" else shell)
    done = python(code, env=environ)
    assert ("Exit codes" in done.stdout, "plain,whatif" in done.stdout) == (asked == "--help", asked != "--help")
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert {name for name in loaded if name.startswith(HEAVY)} == set()
    assert not any(f"gpuyard.cli.{entry.module}" in loaded for entry in root.ENTRIES.values())


def test_no_command_loads_the_engine_or_the_server_before_it_is_called():
    names = sorted({f"gpuyard.cli.{entry.module}" for entry in root.ENTRIES.values()})
    done = python(f"import sys, importlib\nfor name in {names}: importlib.import_module(name)\nprint(*sys.modules)")
    heavy = ("numpy", "pydantic", "fastapi", "gpuyard.brain.engine", "gpuyard.server")
    assert set(names) <= set(done.stdout.split())
    assert [module for module in done.stdout.split() if module.startswith(heavy)] == []


def test_the_version_is_told_in_three_ways(yard: Yard):
    assert yard("version").out == f"yard {__version__}\n" == yard("--version").out
    assert yard("version", "-o", "json").json["version"] == __version__


# --- mistakes of the user ------------------------------------------------------------------------


def test_an_unknown_command_gets_the_nearest_name(yard: Yard):
    answer = yard("pln")
    assert answer.code == main.USAGE
    assert answer.err == "error: There is no command 'pln'. Did you mean 'plan'? Try 'yard --help'.\n"


def test_an_unknown_option_gets_the_nearest_name(yard: Yard):
    answer = yard("plan", "--cycle", "2", "x.yaml")
    assert answer.code == main.USAGE
    assert "--cycles" in answer.err


def test_a_missing_argument_is_one_sentence(yard: Yard):
    answer = yard("why")
    assert answer.code == main.USAGE
    assert len(answer.err.splitlines()) == 1
    assert answer.out == ""


@pytest.mark.parametrize(("mistake", "code"), [(Refused("No."), main.USAGE), (NotFound("Who?"), main.NOT_FOUND)])
def test_a_refusal_is_its_sentence_and_its_exit_code(yard: Yard, failing, mistake: Exception, code: int):
    failing(mistake)
    assert (yard("version").code, yard("version").err) == (code, f"error: {mistake}\n")


# --- mistakes of ours ----------------------------------------------------------------------------


@pytest.mark.parametrize("mistake", [Broken("two jobs hold one GPU"), KeyError("n0"), RecursionError("deep")])
def test_a_bug_is_one_line_that_asks_for_a_report(yard: Yard, failing, mistake: Exception):
    failing(mistake)
    answer = yard("version")
    assert answer.code == main.FAILED
    assert len(answer.err.splitlines()) == 1
    assert "this is a bug" in answer.err
    assert "report it with the snapshot" in answer.err
    assert type(mistake).__name__ in answer.err


@pytest.mark.parametrize("args", [("--debug", "version"), ("version", "--debug")])
def test_debug_shows_the_traceback_wherever_it_stands(yard: Yard, failing, args: tuple[str, ...]):
    failing(Broken("two jobs hold one GPU"))
    assert "Traceback (most recent call last)" in yard(*args).err


# --- the world around ----------------------------------------------------------------------------


def test_an_interrupt_leaves_with_130(yard: Yard, failing):
    failing(KeyboardInterrupt())
    answer = yard("version")
    assert answer.code == main.INTERRUPTED
    assert "Traceback" not in answer.err


def unread(pipe: int) -> int:
    """How many bytes lie in a pipe."""
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0])


def test_a_real_interrupt_ends_a_command_quietly():
    """Ctrl-C while it waits for its input."""
    code = "from gpuyard.cli.main import run; print('up', flush=True); raise SystemExit(run(['plan', '-']))"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # Where these tests run in the background, children would ignore Ctrl-C from the start.
    code = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {code}"
    with subprocess.Popen([sys.executable, "-c", code], text=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == "up\n"
        process.stdin.write("#")
        process.stdin.flush()
        while unread(process.stdin.fileno()):  # until it has taken that, and waits for more
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=300) == main.INTERRUPTED
        assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize("name", ["schema", "plan"])
def test_a_reader_that_has_seen_enough_is_no_error(name: str, tmp_path: Path):
    """A pipe that is closed before the first byte: no words, and the exit code of a tool that died of it."""
    path = tmp_path / "s.yaml"
    path.write_text("apiVersion: gpuyard.dev/v1\nkind: Snapshot\n")
    args = {"schema": ["schema", "snapshot"], "plan": ["plan", str(path)]}[name]
    read, write = os.pipe()
    os.close(read)
    code = f"import sys; sys.argv = ['yard', *{args!r}]; from gpuyard.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert done.stderr == b""
    assert done.returncode == 128 + signal.SIGPIPE


@pytest.mark.parametrize("args", [["version"], ["schema", "snapshot"]])
@pytest.mark.parametrize(("where", "why"), [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")])
def test_output_that_cannot_be_written_is_one_sentence_and_no_bug(args: list[str], where: str, why: str):
    code = f"import sys; sys.argv = ['yard', *{args!r}]; from gpuyard.cli.main import main; main()"
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {where}', "sh", sys.executable, "-c", code],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    told = f"error: the output cannot be written: {why}; what was asked for may be done all the same\n"
    assert (done.stderr, done.returncode) == (told, main.FAILED)


@pytest.mark.parametrize(
    ("program", "name"), [("/x/yard", "yard"), ("kubectl-yard", "kubectl yard"), ("gpuyard", "gpuyard"), ("-c", "yard")]
)
def test_help_speaks_of_the_command_that_was_typed(program: str, name: str):
    assert main._program_name(program) == name


# --- completion ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_each_shell(yard: Yard, shell: str):
    answer = yard("completion", shell)
    assert answer.code == 0
    assert "_YARD_COMPLETE" in answer.out


def test_completion_knows_the_commands():
    env = {**os.environ, "_YARD_COMPLETE": "bash_complete", "COMP_WORDS": "yard pl", "COMP_CWORD": "1"}
    code = "import sys; sys.argv = ['yard']; from gpuyard.cli.main import main; main()"
    assert python(code, env=env).stdout.split() == ["plain,plan"]
