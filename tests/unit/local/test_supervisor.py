"""The supervisor as a program: quick to start, one claim, output in segments, a terminal where asked for."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuyard.runtime.clock import SystemClock
from gpuyard.worlds.local.launching.launch import BOOT, Supervisors
from gpuyard.worlds.local.ports import Report, TaskKey, TaskOrder
from gpuyard.worlds.local.supervising import output as outputs
from gpuyard.worlds.local.supervising import stopping
from gpuyard.worlds.local.supervising.notes import ENV, read_pairs, write_pairs
from tests.support.yards import ME, TestYard, sh

pytestmark = pytest.mark.slow

PATIENCE_S = 300


def order(folder: Path, *command: str, **keys: str) -> Path:
    folder.mkdir(parents=True)
    pairs = {"key": "1 1 0", "log": str(folder / "log"), "notify": str(folder / "fifo"), "term": "1", **keys}
    env = {"PATH": "/usr/bin:/bin", "GPUYARD_MARK": f"test-{folder}"}
    args = [*pairs.items(), *(("arg", word) for word in command), *((ENV + name, env[name]) for name in env)]
    write_pairs(str(folder / "order"), args)
    return folder


def run(folder: Path) -> dict[str, str]:
    subprocess.run([sys.executable, "-I", "-S", "-c", BOOT, str(folder)], check=True, timeout=PATIENCE_S)
    return dict(read_pairs(str(folder / "exit")))


def output(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((folder / "log").iterdir()))


def test_it_imports_nothing_heavy():
    """A gang of a thousand has a thousand of them. What one costs is measured by `python -m bench supervisor`."""
    program = BOOT.replace("sys.exit(supervisor.main(sys.argv[1]))", "print(*sorted(sys.modules))")
    assert program != BOOT
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    assert not {"json", "socket", "subprocess", "typing", "numpy", "re", "gpuyard.model"} & set(done.stdout.split())


def test_a_task_is_claimed_once(tmp_path: Path):
    folder = order(tmp_path / "t", "sh", "-c", "echo once")
    assert run(folder)["outcome"] == "succeeded"
    run(folder)
    assert output(folder) == b"once\n"


def test_it_reports_how_the_command_ended(tmp_path: Path):
    assert run(order(tmp_path / "a", "sh", "-c", "exit 5"))["exit"] == "5"
    assert run(order(tmp_path / "b", "sh", "-c", "kill -15 $$"))["exit"] == "-15"
    missing = run(order(tmp_path / "c", "true", workdir=str(tmp_path / "none")))
    assert missing["told"] == f"cannot use the working folder {tmp_path}/none: No such file or directory"


def test_a_time_limit_warns_waits_and_kills(tmp_path: Path):
    script = "trap 'echo warned' USR1; trap 'echo asked' TERM; while :; do sleep 0.05; done"
    said = run(order(tmp_path / "t", "sh", "-c", script, limit="3", warn="SIGUSR1", grace="1", term="1"))
    assert said["outcome"] == "timeout"
    lines = [line for line in output(tmp_path / "t").split(b"\n") if line in (b"warned", b"asked")]
    assert lines == [b"warned", b"asked"]


def test_a_stop_that_comes_after_the_end_changes_nothing(tmp_path: Path):
    left_behind = "touch left; while kill -0 $0; do sleep 0.01; done; mv later stop; echo told; sleep 5"
    script = f"setsid sh -c '{left_behind}' $$ & while [ ! -e left ]; do sleep 0.01; done"
    folder = order(tmp_path / "t", "sh", "-c", script)
    write_pairs(str(folder / "later"), [("why", "preempted"), ("term", "1")])
    assert run(folder)["outcome"] == "succeeded"
    assert (folder / "stop").exists()


def test_output_is_kept_in_segments_and_only_the_last_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(outputs, "SEGMENT_BYTES", 10)
    log = outputs.Log(str(tmp_path / "log"))
    for number in range(20):
        log.write(b"%04d\n" % number)
    os.close(log.file)
    kept = sorted((tmp_path / "log").iterdir())
    assert len(kept) == outputs.SEGMENTS
    assert int(kept[0].name) == 60
    assert b"".join(path.read_bytes() for path in kept).endswith(b"0019\n")
    again = outputs.Log(str(tmp_path / "log"))
    assert again.at == 100


def test_a_terminal_can_be_attached_to(yard: TestYard):
    yard.put({"name": "t", "run": {"command": ["sh", "-c", "stty size; read x; echo got $x; stty size"], "tty": True}})
    yard.until("t", "running")
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE_S)
        client.connect(yard.attach(ME, "t", 0))
        client.sendall(frame(1, struct.pack(">HH", 33, 99)) + frame(0, b"hello\n"))
        seen = b""
        while part := client.recv(4096):
            seen += part
    assert b"got hello" in seen
    assert b"33 99" in seen
    assert yard.until("t")["phase"] == "succeeded"


def frame(kind: int, content: bytes) -> bytes:
    return struct.pack(">BI", kind, len(content)) + content


def test_a_full_order_survives_odd_words(yard: TestYard):
    words = ["printf", "%s|", "a b", "new\nline", "quo'te\"", "ünï", "$HOME"]
    yard.put({"name": "t", "run": {"command": words, "env": {"X": "a=b\nc"}}})
    yard.until("t")
    assert yard.output("t") == "a b|new\nline|quo'te\"|ünï|$HOME|"


def test_a_gang_waits_for_its_word(tmp_path: Path):
    folder = order(tmp_path / "t", "echo", "gone", gang="1", go=str(tmp_path / "go"))
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", BOOT, str(folder)])
    end = time.monotonic() + PATIENCE_S
    while not (folder / "ready").exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert not (folder / "running").exists()
    (tmp_path / "go").write_text("")
    assert process.wait(PATIENCE_S) == 0
    assert output(folder) == b"gone\n"


def test_shell_jobs_are_told_apart_from_programs(yard: TestYard):
    yard.put(sh("echo $0", name="s"), {"name": "p", "run": {"command": ["echo", "$0"]}})
    assert (yard.until("s")["phase"], yard.until("p")["phase"]) == ("succeeded", "succeeded")
    assert yard.output("p") == "$0\n"


def test_a_word_that_comes_before_it_listens_does_not_end_it(tmp_path: Path):
    launcher = Supervisors(tmp_path, SystemClock())
    key = TaskKey(1, 1, 0)
    launcher.prepare([TaskOrder(key, 0, 0, ("true",), (("PATH", os.environ["PATH"]),), "", False)])
    for _ in range(50):
        launcher._poke(key)
    ends: list[Report] = []
    while not ends:
        launcher.wait(5.0)
        ends = [report for report in launcher.reports() if report.kind == "ended"]
    assert [report.outcome for report in ends] == ["succeeded"]
    launcher.close()


@pytest.mark.slow
def test_a_terminal_whose_task_does_not_read_is_stopped_when_told_and_when_its_time_is_up(yard: TestYard):
    deaf = {"command": ["sh", "-c", "stty raw -echo; echo deaf; sleep 600"], "tty": True}
    for job in ({"name": "told"}, {"name": "timed", "time_limit": "5s"}):
        yard.put({**job, "run": deaf})
        yard.until(job["name"], "running")
        with attached(yard, job["name"]) as line:
            type_until_full(line)
            if job["name"] == "told":
                yard.act(ME, "told", "cancel")
            yard.until(job["name"])
    assert yard.job(ME, "told")["phase"] == "cancelled"
    assert yard.job(ME, "timed")["message"] == "ran into its time limit of 5 s"


def attached(yard: TestYard, name: str) -> socket.socket:
    """Somebody attached, who has seen that the task is there."""
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(PATIENCE_S)
    line.connect(yard.attach(ME, name, 0))
    seen = b""
    while b"deaf" not in seen:
        seen += line.recv(4096)
    return line


def type_until_full(line: socket.socket) -> None:
    """Nobody takes more: the terminal is full, the supervisor's buffer, and the socket."""
    line.settimeout(0.5)
    with pytest.raises(TimeoutError):
        line.sendall(frame(0, b"x" * 4096) * 10_000)


def test_a_viewer_who_does_not_look_holds_nothing_up(yard: TestYard):
    script = "echo deaf; read x; seq 200000; echo last"
    yard.put({"name": "t", "run": {"command": ["sh", "-c", script], "tty": True}})
    yard.until("t", "running")
    blind, typist = attached(yard, "t"), attached(yard, "t")
    typist.sendall(frame(0, b"go\n"))
    seen = b""
    while part := typist.recv(65536):
        seen += part
    assert yard.until("t")["phase"] == "succeeded"
    assert b"last" in seen
    blind.close()
    typist.close()


def test_a_control_plane_that_does_not_listen_for_a_while_is_told_later(tmp_path: Path):
    os.mkfifo(tmp_path / "fifo")
    ears = os.open(tmp_path / "fifo", os.O_RDWR | os.O_NONBLOCK)
    while select.select([], [ears], [], 0)[1]:
        os.write(ears, b"-" * 4096)
    folder = order(tmp_path / "t", "sleep", "600", notify=str(tmp_path / "fifo"))
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", BOOT, str(folder)])
    while not (folder / "running").exists():
        time.sleep(0.01)
    heard = b""
    end = time.monotonic() + PATIENCE_S
    while b"1 1 0 running\n" not in heard and time.monotonic() < end:
        try:
            heard += os.read(ears, 65536)
        except BlockingIOError:
            time.sleep(0.05)
    assert heard.endswith(b"1 1 0 running\n")
    process.send_signal(stopping.STOP_NOW)
    assert process.wait(PATIENCE_S) == 0
    assert dict(read_pairs(str(folder / "exit")))["outcome"] == "stopped"
    os.close(ears)


def test_a_task_is_warned_in_its_own_output_and_by_the_signal_it_knows_and_goes_on(tmp_path: Path):
    waits = "i=0; while ! [ -e stop-now ] && [ $i -lt 2000 ]; do i=$((i+1)); sleep 0.05; done"
    folder = order(tmp_path / "t", "sh", "-c", f"trap 'echo saved' USR1; printf half; {waits}", workdir=str(tmp_path))
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", BOOT, str(folder)])

    def said(word: bytes) -> None:
        until = time.monotonic() + PATIENCE_S
        while not (folder / "log").exists() or word not in output(folder):
            assert time.monotonic() < until
            time.sleep(0.02)

    try:
        said(b"half")  # from now on both listen
        write_pairs(str(folder / "warning"), [("told", "6m left of its time limit of 1h"), ("signal", "SIGUSR1")])
        process.send_signal(signal.SIGUSR1)
        said(b"saved")
        (tmp_path / "stop-now").touch()
        process.wait(timeout=PATIENCE_S)
    finally:
        process.kill()
    lines = output(folder).decode().splitlines()
    assert lines[:2] == ["half", "[yard] 6m left of its time limit of 1h"]
    assert lines.count("saved") == 1
    assert dict(read_pairs(str(folder / "exit")))["outcome"] == "succeeded"


def test_what_is_told_to_a_task_stands_on_a_line_of_its_own(tmp_path: Path):
    log = outputs.Log(str(tmp_path / "log"))
    log.write(b"half")
    log.write(log.line("soon"))
    log.write(b"whole\n")
    log.write(log.line("now", b"\r\n"))
    assert output(tmp_path) == b"half\n[yard] soon\nwhole\n[yard] now\r\n"


def test_a_task_that_dies_of_the_warning_ran_into_its_time_limit(tmp_path: Path):
    folder = order(tmp_path / "t", "sh", "-c", "echo up; sleep 100", workdir=str(tmp_path))
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", BOOT, str(folder)])
    try:
        until = time.monotonic() + PATIENCE_S
        while not (folder / "log").exists() or b"up" not in output(folder):
            assert time.monotonic() < until
            time.sleep(0.02)
        write_pairs(str(folder / "warning"), [("told", "soon"), ("signal", "SIGUSR1")])
        process.send_signal(signal.SIGUSR1)
        process.wait(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert dict(read_pairs(str(folder / "exit")))["outcome"] == "timeout"


def test_a_program_that_closes_its_terminal_before_it_ends_is_not_hung_up_on(tmp_path: Path):
    """As `cat` does: whether it was hung up on hung on who was quicker."""
    script = "exec 0<&- 1>&- 2>&-; sleep 0.3; echo again >/dev/tty; exit 3"
    folder = order(tmp_path / "t", "sh", "-c", script, tty=str(tmp_path / "tty"))
    assert (run(folder)["exit"], output(folder)) == ("3", b"again\r\n")
