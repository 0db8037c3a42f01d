"""A `podman` for tests: it records its words and runs the command as a process that outlives its client.

Executed as a program, not imported. Signals reach the command through the client; killing the client leaves it running;
`rm --force NAME` ends it; that is what the world relies on, and what the real one does. It hangs or fails instead as
long as a file `hangs` or `fails` is there.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SPY = Path(__file__).resolve().parents[1] / "spy"
"""Beside the folder of the program: nothing of a job's environment reaches `rm`, so nothing there can say it."""


def main(words: list[str]) -> int:
    """`run` or `rm`."""
    with (SPY / "words").open("a") as file:
        file.write(json.dumps({"words": words, "env": dict(os.environ), "uid": os.getuid()}) + "\n")
    return run(words[1:]) if words[0] == "run" else remove(words[-1])


def run(words: list[str]) -> int:
    options = list(itertools.takewhile(lambda word: word.startswith("-"), words))
    image, *command = words[len(options) :]
    if image == "no-such-image":
        print("Error: short-name resolution: no such image", file=sys.stderr)
        return 125
    name = next(word.removeprefix("--name=") for word in options if word.startswith("--name="))
    folder = next((word.removeprefix("--workdir=") for word in options if word.startswith("--workdir=")), None)
    given = {word.removeprefix("--env=") for word in options if word.startswith("--env=")}
    env = {key: value for key, value in os.environ.items() if key in given} | {"PATH": os.environ["PATH"]}
    process = subprocess.Popen(command, env=env, cwd=folder, start_new_session=True)
    (SPY / name).write_text(str(process.pid))
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda number, _frame: process.send_signal(number))
    code = process.wait()
    return 128 - code if code < 0 else code


def remove(name: str) -> int:
    while (SPY / "hangs").exists():
        time.sleep(0.02)
    if (SPY / "fails").exists():
        print("Error: cannot connect to the daemon", file=sys.stderr)
        return 1
    if (SPY / name).exists():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int((SPY / name).read_text()), signal.SIGKILL)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
