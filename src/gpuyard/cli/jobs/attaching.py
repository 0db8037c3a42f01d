"""`yard attach`: this terminal connected to a job's. Called by `root`, and by `run -it`.

The job's supervisor owns its terminal and speaks at a socket of its own, so this goes on while the yard restarts.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from typing import Any

import click

from gpuyard.cli.console import options, terminal
from gpuyard.cli.console.completing import names
from gpuyard.cli.jobs.following import is_own
from gpuyard.client import Client
from gpuyard.model.errors import Conflict, Refused

INPUT, SIZE = 0, 1
LEAVE = b"\x1d"
"""Ctrl-]: leaves the job running, as with telnet."""

TRIES = 50
LOOK_S = 0.1


@options.command(
    "attach",
    """
    yard attach notebook
    yard run -it --name notebook --gpus 1 -- bash
    """,
)
@click.argument("job", shell_complete=names("jobs"))
@click.option("--task", type=click.IntRange(min=0), default=0, help="Which task's terminal.")
@click.option("--raw", is_flag=True, help="Also another user's, whose output this terminal then obeys.")
def attach(job: str, task: int, raw: bool) -> None:
    """Connect this terminal to that of a job started with `yard run -it`. Ctrl-] leaves, the job goes on."""
    with Client() as client:
        known = client.job(job)
        if not raw and not is_own(known):
            told = f"{job} is {known.get('user')}'s, and your terminal would obey what it writes"
            raise Refused(f"{told}; --raw does it all the same.")
        path = client.attach(job, task)
    terminal.say(f"Connected to {job}; Ctrl-] leaves it running.")
    connect(path)


def connect_when_open(client: Client, name: str) -> None:
    """Connect to a job that is just starting: its terminal opens a moment later."""
    pause = threading.Event()
    for left in range(TRIES, 0, -1):
        try:
            path = client.attach(name)
            connect(path)
            return
        except (Conflict, Refused):
            if left == 1 or client.job(name)["phase"] not in ("starting", "running"):
                return
            pause.wait(LOOK_S)


def connect(path: str) -> None:
    """Until the task ends, or the user leaves."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        line.connect(path)
    except OSError as error:
        line.close()
        raise Refused(f"The job's terminal cannot be reached: {error.strerror}.") from None
    with line, _raw(), _resizing(line):
        _pump(line)


def frame(kind: int, content: bytes) -> bytes:
    """What is sent to the task's supervisor."""
    return struct.pack(">BI", kind, len(content)) + content


def _pump(line: socket.socket) -> None:
    keyboard = sys.stdin.fileno()
    listening = [line.fileno(), keyboard]
    while True:
        ready, _, _ = select.select(listening, [], [])
        if line.fileno() in ready:
            shown = line.recv(65536)
            if not shown:
                return
            os.write(sys.stdout.fileno(), shown)
        if keyboard in ready:
            typed = os.read(keyboard, 4096)
            if LEAVE in typed:
                return
            if not typed:  # a pipe that ended: the task sees the end of its input
                listening = [line.fileno()]
                typed = b"\x04"
            line.sendall(frame(INPUT, typed))


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """The terminal hands every key on, Ctrl-C included; afterwards it is as before."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setraw(sys.stdin, termios.TCSADRAIN)  # what was typed ahead is kept
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _resizing(line: socket.socket) -> Iterator[None]:
    """The task's terminal is as large as ours, also after ours has changed."""

    def tell(*_: Any) -> None:
        size = shutil.get_terminal_size((80, 24))
        with contextlib.suppress(OSError):
            line.sendall(frame(SIZE, struct.pack(">HH", size.lines, size.columns)))

    tell()
    before = signal.signal(signal.SIGWINCH, tell)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
