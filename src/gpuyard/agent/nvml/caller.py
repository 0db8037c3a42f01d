"""Asks NVML through a child that is killed when it does not answer in time. Called by whoever wants facts.

One child lives as long as it answers: opening NVML is dear. A child that cannot be killed, because the kernel holds it,
is waited for: starting another would only hang that one too, and pile processes up on a machine that is ill already.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from gpuyard.agent.nvml.child import ASKER, FRAME_MAX, LENGTH
from gpuyard.agent.nvml.facts import ABSENT, Answer, MachineFacts, Question, Sample, Trouble

DEADLINE_S = 45.0
"""How long NVML may take: three polls of what watches wedged drivers elsewhere (NVSentinel)."""
WORDS_MAX = 1 << 16
CHILD = "gpuyard.agent.nvml.child"


@dataclass(frozen=True, slots=True)
class NvmlSource:
    """Where facts come from: NVML itself, or a record of a machine and what goes wrong with it."""

    replay: pathlib.Path | None = None
    faults: pathlib.Path | None = None
    deadline_s: float = DEADLINE_S
    command: tuple[str, ...] = (sys.executable, "-m", CHILD)

    def arguments(self) -> list[str]:
        """How the child is started."""
        given = [self.replay, self.faults] if self.replay is not None else []
        return [*self.command, *(str(path) for path in given if path is not None)]


class NvmlCaller:
    """One child at a time, and what has become of the last."""

    def __init__(self, source: NvmlSource, monotonic: Callable[[], float]) -> None:
        self._source = source
        self._monotonic = monotonic
        self._begun = monotonic()
        self._answered = -1.0
        self._child: subprocess.Popen[bytes] | None = None
        self._dying: subprocess.Popen[bytes] | None = None
        self._asking = threading.Lock()
        self._closed = False
        self._last_words = tempfile.TemporaryFile()  # noqa: SIM115 -- open as long as we are

    def machine(self) -> MachineFacts | Trouble:
        """What GPUs there are."""
        answer = self._ask(Question("machine", self._monotonic() - self._begun, self._answered))
        return answer if isinstance(answer, MachineFacts | Trouble) else _mixed_up()

    def sample(self) -> Sample | Trouble:
        """What they are like now. Events that were told once are not told again."""
        at = self._monotonic() - self._begun
        answer = self._ask(Question("sample", at, self._answered))
        if isinstance(answer, Sample):
            self._answered = at
        return answer if isinstance(answer, Sample | Trouble) else _mixed_up()

    def close(self) -> None:
        """No more questions. One that is being asked in another thread ends at once, for its child does."""
        self._closed = True
        if (child := self._child) is not None:
            child.kill()
        with self._asking:
            self._kill()
            self._last_words.close()

    @property
    def pid(self) -> int:
        """The child's; 0 if there is none."""
        return self._child.pid if self._child is not None else 0

    # --- one question ----------------------------------------------------------------------------

    def _ask(self, question: Question) -> Answer:
        with self._asking:
            return Trouble("died", "nobody asks any more") if self._closed else self._answer(question)

    def _answer(self, question: Question) -> Answer:
        if self._dying is not None and self._dying.poll() is None:
            return Trouble("hung", f"process {self._dying.pid}, which asks it, cannot even be killed")
        self._dying = None
        try:
            child = self._child = self._child or self._start()
            body = msgspec.json.encode(question)
            assert child.stdin is not None
            child.stdin.write(LENGTH.pack(len(body)) + body)
            child.stdin.flush()
            answer: Answer = msgspec.json.decode(self._frame(child), type=Answer)
            if isinstance(answer, Trouble) and answer.kind not in ABSENT:
                self._kill()  # its library may be an old one, as after the driver was changed; a new child loads anew
            return answer
        except TimeoutError:
            told = Trouble("hung", f"no answer within {self._source.deadline_s:g} s")
        except (EOFError, OSError) as error:
            told = Trouble("died", self._words() or str(error))
        except msgspec.MsgspecError as error:
            told = Trouble("nonsense", str(error))
        self._kill()
        return told

    def _start(self) -> subprocess.Popen[bytes]:
        self._last_words.seek(0)
        self._last_words.truncate()
        return subprocess.Popen(
            self._source.arguments(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._last_words,
            start_new_session=True, env=_environment(),
        )  # fmt: skip

    def _words(self) -> str:
        """The last line that a child said, as Python says why it ends."""
        self._last_words.seek(0)
        lines = self._last_words.read(WORDS_MAX).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def _frame(self, child: subprocess.Popen[bytes]) -> bytes:
        until = self._monotonic() + self._source.deadline_s
        length = LENGTH.unpack(self._bytes(child, LENGTH.size, until))[0]
        if length > FRAME_MAX:
            raise msgspec.DecodeError(f"an answer of {length} bytes")
        return self._bytes(child, length, until)

    def _bytes(self, child: subprocess.Popen[bytes], wanted: int, until: float) -> bytes:
        assert child.stdout is not None
        descriptor, parts, missing = child.stdout.fileno(), list[bytes](), wanted
        while missing:
            left = until - self._monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                raise TimeoutError
            part = os.read(descriptor, missing)
            if not part:
                raise EOFError("it said nothing")
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def _kill(self) -> None:
        """Gone at once, or remembered until it is."""
        child, self._child = self._child, None
        if child is None:
            return
        for pipe in (child.stdin, child.stdout):
            with contextlib.suppress(OSError):
                assert pipe is not None
                pipe.close()
        child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(1.0)
            return
        self._dying = child


def _environment() -> dict[str, str]:
    """The child finds this code where we found it, and nothing of a user's that NVML could stumble over."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
    return kept | {"PYTHONPATH": os.pathsep.join(_code_path()), ASKER: str(os.getpid())}


def _code_path() -> Sequence[str]:
    return [path for path in sys.path if path]


def _mixed_up() -> Trouble:
    return Trouble("nonsense", "an answer to another question")


def machine_once(source: NvmlSource, monotonic: Callable[[], float]) -> MachineFacts | Trouble:
    """One question, and no child afterwards."""
    caller = NvmlCaller(source, monotonic)
    try:
        return caller.machine()
    finally:
        caller.close()
