"""The process that asks NVML: reads questions from its standard input, writes answers to its standard output.

Started by `caller` as a program of its own, so that it can be killed whenever NVML does not come back. It ends when
nobody asks any more. A frame is four bytes of length, big-endian, and so much JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import signal
import struct
import sys
from typing import BinaryIO

import msgspec

from gpuyard.agent.nvml.facts import Answer, Question, Trouble
from gpuyard.agent.nvml.library import Library, Unopened
from gpuyard.model.errors import Refused

LENGTH = struct.Struct(">I")
FRAME_MAX = 16 << 20
PR_SET_PDEATHSIG = 1
ASKER = "GPUYARD_NVML_ASKER"
"""The variable that says who started us."""


def main() -> None:
    """Answer until the questions end."""
    _die_with_the_parent()
    answerer = _answerer(sys.argv[1:])
    questions, answers = sys.stdin.buffer, sys.stdout.buffer
    while (frame := _frame(questions)) is not None:
        body = msgspec.json.encode(answerer.answer(msgspec.json.decode(frame, type=Question)))
        answers.write(LENGTH.pack(len(body)) + body)
        answers.flush()


def _die_with_the_parent() -> None:
    """Whoever asked may be killed while NVML holds us, and then nobody is left to kill us."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.environ.get(ASKER) not in (None, str(os.getppid())):  # it was killed before that
        sys.exit()


class Answerer:
    """NVML itself, opened at the first question; where that fails it is tried anew at each."""

    def __init__(self) -> None:
        self._library: Library | None = None

    def answer(self, question: Question) -> Answer:
        """What it tells, or why it tells nothing."""
        try:
            if self._library is None:
                self._library = Library()
            return self._library.machine() if question.ask == "machine" else self._library.sample()
        except Unopened as error:
            return error.trouble
        except Exception as error:  # noqa: BLE001 -- whatever it is, the agent lives and says so
            self._library = None
            return Trouble("failed", f"{type(error).__name__}: {error}")


class Replaying:
    """A record in NVML's place; its faults are read anew whenever their file is another."""

    def __init__(self, paths: list[str]) -> None:
        from gpuyard.agent.nvml import record
        from gpuyard.agent.nvml.replay import Replay

        self._faults = pathlib.Path(paths[1]) if len(paths) > 1 else None
        self._read_at = 0
        self._replay = Replay(record.read(pathlib.Path(paths[0])))

    def answer(self, question: Question) -> Answer:
        """As it was told then."""
        self._read()
        return self._replay.machine(question) if question.ask == "machine" else self._replay.sample(question)

    def _read(self) -> None:
        from gpuyard.agent.nvml import faults

        with contextlib.suppress(OSError, Refused):  # half written: the next question finds it whole
            written = self._faults.stat().st_mtime_ns if self._faults is not None else 0
            if self._faults is not None and written != self._read_at:
                self._replay.faults = faults.read(self._faults)
                self._read_at = written


def _answerer(paths: list[str]) -> Answerer | Replaying:
    return Replaying(paths) if paths else Answerer()


def _frame(source: BinaryIO) -> bytes | None:
    head = source.read(LENGTH.size)
    return source.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else None


if __name__ == "__main__":
    main()
