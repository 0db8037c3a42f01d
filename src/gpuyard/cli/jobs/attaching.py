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
from dataclasses import dataclass
from typing import Any

import click

from gpuyard.cli.console import options, terminal
from gpuyard.cli.console.completing import names
from gpuyard.cli.jobs import on_cluster
from gpuyard.cli.jobs.following import is_own
from gpuyard.client import Client
from gpuyard.model.errors import Conflict, Refused

INPUT, SIZE, PIPED, ENDED = range(4)
LEAVE = b"\x1d"
"""Ctrl-]: leaves the job running, as with telnet."""

TRIES = 50
ENDED_AGAIN_S = 0.2
"""A terminal tells of the end of its input once; whoever reads on is told again."""
LOOK_S = 0.1


@dataclass(frozen=True)
class Visit:
    """How a connection to a task's terminal went: whether the user left, and how many bytes were shown."""

    left: bool = False
    shown: int = 0


@options.command(
    "attach",
    """
    yard attach notebook
    yard run -it --name notebook --gpus 1 -- bash
    yard attach --kube team-a/train
    """,
)
@click.argument("job", shell_complete=names("jobs"))
@click.option("--task", type=click.IntRange(min=0), help="Which task's terminal.  [default: 0; on a cluster all]")
@on_cluster.option("Follow a Job of")
@click.option("--raw", is_flag=True, help="Also another user's, whose output this terminal then obeys.")
@click.pass_context
def attach(ctx: click.Context, /, job: str, task: int | None, kube: bool, raw: bool) -> None:
    """Connect this terminal to that of a job started with `yard run -it`. Ctrl-] leaves, the job goes on.

    On a cluster: what a Job's tasks write from now on, until it ends. Ctrl-C leaves, the job goes on.
    """
    if kube:
        ctx.exit(on_cluster.attach(job, task))
    task = task or 0
    with Client() as client:
        known = client.job(job)
        if not raw and not is_own(known):
            told = f"{job} is {known.get('user')}'s, and your terminal would obey what it writes"
            raise Refused(f"{told}; --raw does it all the same.")
        path = client.attach(job, task)
    terminal.say(f"Connected to {job}; Ctrl-] leaves it running.")
    if connect(path).left:
        terminal.say(f"\n{job} goes on.")


def connect_when_open(client: Client, name: str) -> Visit:
    """Connect to a job that is just starting: its terminal opens a moment later, and may be gone before we come."""
    pause = threading.Event()
    for left in range(TRIES, 0, -1):
        try:
            return connect(client.attach(name))
        except (Conflict, Refused):
            if left == 1 or client.job(name)["phase"] not in ("starting", "running"):
                break
            pause.wait(LOOK_S)
    return Visit()


def connect(path: str) -> Visit:
    """Until the task ends, or the user leaves."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        line.connect(path)
    except OSError as error:
        line.close()
        raise Refused(f"The job's terminal cannot be reached: {error.strerror}.") from None
    with line, _raw(), _resizing(line):
        return _pump(line)


def frame(kind: int, content: bytes) -> bytes:
    """What is sent to the task's supervisor."""
    return struct.pack(">BI", kind, len(content)) + content


def _pump(line: socket.socket) -> Visit:
    keyboard, piped = sys.stdin.fileno(), not sys.stdin.isatty()
    listening, shown, patience = [line.fileno(), keyboard], 0, None
    try:
        if piped:
            line.sendall(frame(PIPED, b""))
        while True:
            ready, _, _ = select.select(listening, [], [], patience)
            if not ready:  # a pipe that has ended stays so, whenever it is read
                line.sendall(frame(ENDED, b""))
            if line.fileno() in ready:
                content = line.recv(65536)
                if not content:
                    return Visit(shown=shown)
                shown += os.write(sys.stdout.fileno(), content)
            if keyboard in ready:
                typed = os.read(keyboard, 4096)
                if LEAVE in typed and not piped:
                    return Visit(left=True, shown=shown)
                if not typed:  # a pipe that ended: the task sees the end of its input
                    listening, patience = [line.fileno()], ENDED_AGAIN_S
                line.sendall(frame(INPUT, typed) if typed else frame(ENDED, b""))
    except ConnectionError:  # the task ended while we spoke
        return Visit(shown=shown)


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
