"""The first day with a yard, by the commands a new user and an operator type: nothing is lost, no word is untrue."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import PATIENCE_S, Shell

pytestmark = pytest.mark.slow

TEAMS = """\
apiVersion: gpuyard.dev/v1
kind: Snapshot
nodes: [{name: n0, gpus: 4, model: H100-SXM5-80GB}, {name: n1, gpus: 4, model: H100-SXM5-80GB}]
queues: [{name: prod, quota: 4}, {name: research, quota: 4}]
"""


def test_a_yard_remembers_its_fleet_and_its_queues(shell: Shell, tmp_path: Path):
    """The attack: up with a fleet, down, up: KeyError, the loop dead, and yet "Up." with exit code 0."""
    path = tmp_path / "fleet.yaml"
    path.write_text(TEAMS)
    shell.up("--fleet", str(path))
    shell("queues", "set", "night", "--quota", "2", "--yes")
    shell("run", "--detach", "--name", "a", "--queue", "prod", "--gpus", "4", "--", "sleep", "600")
    shell("run", "--detach", "--name", "b", "--queue", "night", "--gpus", "2", "--", "sleep", "600")
    shell("wait", "a", "b", "--for", "running", "--timeout", "120s")
    shell("queues", "set", "research", "--limit", "2", "--yes")
    shell("down")
    told = shell.up()
    assert "8 GPUs on 2 nodes, as last given with --fleet" in told
    assert "Queues:    research as last set by command, and not as in the fleet's file\n" in told
    assert shell("nodes", "-o", "name").stdout == "n0\nn1\n"
    assert shell("queues", "-o", "name").stdout == "night\nprod\nresearch\n"
    jobs = json.loads(shell("jobs", "-o", "json").stdout)
    assert [(job["phase"], job["attempts"]) for job in jobs] == [("running", 1), ("running", 1)]
    shell("down")
    for changed, told in (
        (TEAMS.replace("prod", "serve"), "there is no queue prod any more, where a stands"),
        (TEAMS.replace("n1", "n2").replace("n0", "n3"), "any more, on which"),
    ):
        path.write_text(changed)
        assert told in shell("up", "--detach", "--port", "0", "--fleet", str(path), code=2).stderr
    assert "any more" in shell("up", "--detach", "--port", "0", "--fleet", "machine", code=2).stderr
    shell.up()
    assert json.loads(shell("jobs", "-o", "json").stdout)[0]["attempts"] == 1


# --- terminals, and what is asked of one yard ----------------------------------------------------


@pytest.fixture(scope="module")
def open_yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """One yard for all that only ask something of it."""
    shell = Shell(tmp_path_factory.mktemp("open") / "s")
    try:
        shell.up()
        yield shell
    finally:
        shell("down", "--jobs", code=None)


AGAIN_S = 3


class Typist:
    """Somebody at a terminal of their own, in front of one command."""

    def __init__(self, shell: Shell, *args: str) -> None:
        env = {**os.environ, "GPUYARD_STATE": str(shell.state), "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
        self.pid, self.line = pty.fork()
        if self.pid == 0:
            os.execve(sys.executable, [sys.executable, "-m", "gpuyard", *args], env)
        self.seen = b""

    def until(self, words: bytes) -> None:
        while words not in self.seen:
            self.seen += self._more()

    def type(self, keys: bytes) -> None:
        os.write(self.line, keys)

    def end(self, insisting: bytes = b"") -> tuple[int, str]:
        """Exit code and all that was shown; some keys are typed again where nothing comes of them.

        A signal that comes in the instant between a prompt and its read is seen after the next one: nobody is so fast.
        """
        with contextlib.suppress(OSError):
            while more := self._more(insisting):
                self.seen += more
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.line)
        return code, self.seen.decode(errors="replace").replace("\r", "")

    def _more(self, insisting: bytes = b"") -> bytes:
        for _ in range(PATIENCE_S // AGAIN_S):
            if select.select([self.line], [], [], AGAIN_S)[0]:
                return os.read(self.line, 65536)
            self.type(insisting)
        raise AssertionError(f"nothing more after {self.seen!r}")


def test_a_short_command_at_a_terminal_loses_nothing(open_yard: Shell):
    """The attack: it had ended before its terminal was found, and what it wrote was never shown."""
    for number in range(3):
        code, seen = Typist(open_yard, "run", "-it", "--", "sh", "-c", f"echo short-{number}; exit 3").end()
        assert (code, seen.count(f"short-{number}\n")) == (3, 1)
        assert "will not be running" not in seen


def test_leaving_a_terminal_leaves_and_says_that_the_job_goes_on(open_yard: Shell):
    """The attack: Ctrl-] hung until the job ended."""
    typist = Typist(open_yard, "run", "-it", "--name", "bash", "--", "sh", "-c", "echo ready; sleep 600")
    typist.until(b"ready")
    typist.type(b"\x1d")
    code, seen = typist.end()
    assert code == 0
    assert "bash goes on. `yard logs bash -f` shows its output, `yard cancel bash` ends it." in seen
    jobs = {job["name"]: job["phase"] for job in json.loads(open_yard("jobs", "-o", "json").stdout)}
    assert jobs["bash"] == "running"
    open_yard("cancel", "bash")


def test_what_is_piped_in_comes_out_once(open_yard: Shell):
    """The attack: the terminal echoed it, so it came twice; an end without a line end never came."""
    for given in ("x\n", "no line end", "y" * 2_000 + "\nz\x03\n"):
        done = subprocess.run(
            [sys.executable, "-m", "gpuyard", "run", "-i", "--", "cat"], input=given.encode(), timeout=PATIENCE_S,
            env={**os.environ, "GPUYARD_STATE": str(open_yard.state)}, capture_output=True, check=True,
        )  # fmt: skip
        assert done.stdout.decode() == given


def test_a_second_interrupt_says_that_the_job_goes_on(open_yard: Shell):
    typist = Typist(open_yard, "run", "--name", "steady", "--", "sh", "-c", "echo ready; sleep 600")
    typist.until(b"ready")
    typist.type(b"\x03")
    typist.until(b"Cancel steady too?")
    typist.type(b"\x03")
    code, seen = typist.end(insisting=b"\x03")
    assert (code, "steady goes on. `yard logs steady -f`" in seen) == (130, True)
    open_yard("cancel", "steady")


def test_a_job_that_ran_into_its_limit_does_not_leave_with_success(open_yard: Shell):
    script = "trap 'exit 0' TERM; while :; do sleep 0.05; done"
    done = open_yard("run", "--name", "late", "--time-limit", "1s", "--", "sh", "-c", script, code=1)
    assert "ran into its time limit of 1" in done.stderr


def test_a_task_that_a_job_has_not_has_no_output(open_yard: Shell):
    open_yard("run", "--name", "one", "--", "echo", "hello")
    assert open_yard("logs", "one", "--task", "0").stdout == "hello\n"
    refused = open_yard("logs", "one", "--task", "4", code=3)
    assert refused.stderr == "error: one has no task 4; it has 1, counted from 0\n"


def test_nothing_is_closed_or_set_without_a_word_of_agreement(open_yard: Shell):
    """The attack: without a terminal to ask at, both acted all the same."""
    node = json.loads(open_yard("nodes", "-o", "json").stdout)[0]["name"]
    for words in (("drain", f"{node}:3"), ("queues", "set", "q", "--quota", "2")):
        refused = open_yard(*words, code=2).stderr
        assert "Add --yes" in refused
    assert open_yard("queues", "-o", "name").stdout == "default\n"
    assert json.loads(open_yard("nodes", "-o", "json").stdout)[0]["devices"][3].get("phase") is None


def test_what_is_drained_is_not_called_sick(open_yard: Shell):
    node = json.loads(open_yard("nodes", "-o", "json").stdout)[0]["name"]
    open_yard("drain", f"{node}:3", "--reason", "fan", "--yes")
    open_yard("run", "--detach", "--name", "whole", "--gpus", "8", "--", "true")
    told = open_yard("why", "whole").stdout + open_yard("health").stdout + open_yard("nodes").stdout
    assert "sick" not in told.replace("0 sick", "")
    assert "drained" in told
    open_yard("undrain", f"{node}:3")
    open_yard("wait", "whole", "--for", "succeeded", "--timeout", "120s")


def test_defragmentation_of_a_running_yard_speaks_of_it(open_yard: Shell):
    """The attack: it spoke of a snapshot that nobody had given."""
    refused = open_yard("defrag", code=2).stderr
    assert "snapshot" not in refused.lower()
    assert "--dry-run" in refused
    open_yard("defrag", "--dry-run")


def test_a_page_beyond_this_machine_needs_a_certificate_and_is_told_so(shell: Shell):
    for detach in ((), ("--detach",)):
        refused = shell("up", *detach, "--host", "0.0.0.0", "--port", "0", code=2).stderr
        assert refused.startswith("error: 0.0.0.0 can be reached from other machines, so it needs TLS")
