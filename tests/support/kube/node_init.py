"""The first process of a test's node, in mount and process namespaces of its own: `python node_init.py ROOT`.

A kubelet and its runtime use fixed places (/var/lib, /run, /var/log); here those lie in ROOT. Whoever started it
says on standard input what to start and to end, a JSON object a line, and gets a line for each. When that input ends,
so does this process, and with the first process of a namespace the kernel ends all others: containers too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PLACES = ("var/lib", "var/log", "run")
ENDS_S = 60.0
ENDED: dict[int, int] = {}


def main(root: Path) -> None:
    signal.signal(signal.SIGCHLD, reap)
    subprocess.run(["mount", "--make-rshared", "/"], check=True)
    for place in PLACES:
        here = root / "ns" / place
        here.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "--bind", str(here), f"/{place}"], check=True)
    started: dict[str, subprocess.Popen[bytes]] = {}
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(done(json.loads(line), started)), flush=True)


def reap(*_: Any) -> None:
    """Everybody whose parent has gone is a child of the first process."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        ENDED[pid] = os.waitstatus_to_exitcode(status)


def done(wish: dict[str, Any], started: dict[str, subprocess.Popen[bytes]]) -> Any:
    name = wish["name"]
    if wish["do"] == "start":
        with Path(wish["log"]).open("ab") as log:
            started[name] = subprocess.Popen(
                wish["command"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=wish["env"],
                start_new_session=True,
            )  # fmt: skip
        return started[name].pid
    pid = started[name].pid
    if wish["do"] == "end" and pid not in ENDED:
        os.kill(pid, wish["signal"])
        until = time.monotonic() + ENDS_S
        while pid not in ENDED and time.monotonic() < until:
            time.sleep(0.01)
    return ENDED.get(pid)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
