"""An embedded yard for tests: a small virtual fleet, quick graces, and waiting without sleeping."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from gpuyard import files
from gpuyard.model.outside.ports import Clock
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.clock import SystemClock
from gpuyard.runtime.embedded.yard import EmbeddedYard, Settings
from gpuyard.runtime.service import Caller

ME = Caller("me")
ADMIN = Caller("admin", admin=True)
OVER = ("succeeded", "failed", "cancelled")
FLEET = """
nodes:
  - {name: n0, gpus: 8, model: H100-SXM5-80GB}
  - {name: n1, gpus: 8, model: H100-SXM5-80GB}
"""


def fleet(text: str = FLEET) -> Snapshot:
    """A fleet file without its header."""
    return files.parse_snapshot(f"apiVersion: gpuyard.dev/v1\nkind: Snapshot\n{text}", "fleet", time.time())


def sh(script: str, **job: Any) -> dict[str, Any]:
    """A job that runs a line of shell."""
    run = {"command": ["sh", "-c", script], **job.pop("run", {})}
    return {**job, "run": run}


def gated(gate: Path, then: str = "true") -> str:
    """A line of shell that goes on when the file is there: tests wait for what happens, never for how long."""
    return f"until [ -e {gate} ]; do sleep 0.02; done; {then}"


def once_gated(gate: Path) -> str:
    """A line of shell that stays for good unless the file is there when it begins."""
    return f"[ -e {gate} ] || sleep 600"


class TestYard(EmbeddedYard):
    """Waits for what it is told to wait for, and leaves nothing behind."""

    __test__ = False

    def __init__(self, folder: Path, fleet_text: str = FLEET, clock: Clock | None = None, **settings: Any) -> None:
        settings = {"term_grace": 0.5, "backoff": 0.05} | settings
        super().__init__(Settings(folder, fleet(fleet_text), **settings), clock or SystemClock())

    def put(self, *jobs: dict[str, Any], caller: Caller = ME, **options: Any) -> list[str]:
        """Submit, and tell the names."""
        return [document["name"] for document in self.submit(caller, jobs, **options)]

    def until(self, name: str, *phases: str, seconds: float = 300.0) -> dict[str, Any]:
        """Wait until a job is in one of the phases."""
        end = time.monotonic() + seconds
        while True:
            seen = self.store.last_event
            document = self.job(ADMIN, name)
            if document["phase"] in (phases or OVER):
                return document
            if time.monotonic() > end:
                raise AssertionError(f"{name} is {document['phase']}, not {' or '.join(phases or OVER)}: {document}")
            self.wait_events(seen, 0.5)

    def output(self, name: str, task: int = 0) -> str:
        """All a task wrote."""
        return self.logs(ADMIN, name, task, 0)[0].decode()

    def until_said(self, name: str, words: str, task: int = 0) -> None:
        """Wait until a task wrote this: a job runs a moment before its program has done anything."""
        while words not in self.output(name, task):
            self.wait_events(self.store.last_event, 0.02)

    def stop(self) -> None:
        """Down, with everything that runs."""
        self.close(jobs=True)
