"""Benchmarks of the embedded yard as a user meets it, by command and by API: 256 virtual GPUs, half of them held, and
10,000 jobs in the queue.

Each runs in a process of its own, which starts a yard as a user would and takes it down at its end.
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

from bench.measuring import Case, Sample, timed
from gpuyard.client import Client
from gpuyard.worlds.local.launching.launch import BOOT
from gpuyard.worlds.local.supervising.notes import write_pairs

YARD = str(Path(sys.executable).with_name("yard"))
NODES, QUEUED = 32, 10_000
FLEET = {
    "apiVersion": "gpuyard.dev/v1",
    "kind": "Snapshot",
    "nodes": [{"name": f"n{n}", "gpus": 8, "model": "H100"} for n in range(NODES)],
    "queues": [{"name": "open", "quota": 256}, {"name": "parked", "limit": 1}],
}
SETTLE_S = 5.0
IDLE_S = 10.0


class Running:
    """One yard, filled."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gpuyard-bench-"))
        self.env = {**os.environ, "GPUYARD_STATE": str(self.folder / "s")}
        fleet = self.folder / "fleet.json"
        fleet.write_text(json.dumps(FLEET))
        atexit.register(self.close)
        self.call("up", "--detach", "--port", "0", "--fleet", str(fleet))
        self.client = Client.at_state(self.folder / "s")
        self.numbers = itertools.count()
        self.fill()
        self.pid = int(self.client.status()["pid"])

    def fill(self) -> None:
        held = {"name": "held", "queue": "open", "gpus": 8, "array": f"0-{NODES // 2 - 1}"}
        self.client.submit([held | {"class": "inference", "run": {"command": ["sleep", "3600"]}}])
        queued = {"name": "q", "queue": "parked", "gpus": 1, "array": f"0-{QUEUED - 1}"}
        self.client.submit([queued | {"run": {"command": ["sleep", "3600"]}}])
        time.sleep(SETTLE_S)

    def job(self) -> dict:
        return {"name": f"j{next(self.numbers)}", "queue": "open", "gpus": 1, "run": {"command": ["true"]}}

    def parked(self) -> dict:
        return self.job() | {"queue": "parked"}

    def call(self, *args: str) -> str:
        done = subprocess.run([YARD, *args], env=self.env, capture_output=True, text=True, check=True)
        return done.stdout

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mib(self) -> float:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024

    def close(self) -> None:
        subprocess.run([YARD, "down", "--jobs"], env=self.env, capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


@cache
def running() -> Running:
    return Running()


def list_jobs() -> Sample:
    """`yard jobs` from the shell's point of view."""
    yard = running()
    before = yard.cpu_s()
    seconds, out = timed(lambda: yard.call("jobs"))
    return Sample(seconds, seconds * 1e3, {"lines": out.count("\n"), "server_cpu_ms": (yard.cpu_s() - before) * 1e3})


def one_submit() -> Sample:
    """One job accepted, durably, by the API."""
    yard = running()
    seconds, _ = timed(lambda: yard.client.submit([yard.parked()]))
    return Sample(seconds, seconds * 1e3)


def thousand_submits() -> Sample:
    """A thousand calls, one after the other."""
    yard = running()
    jobs = [yard.parked() for _ in range(1000)]
    seconds, _ = timed(lambda: [yard.client.submit([job]) for job in jobs])
    return Sample(seconds, seconds)


def idle() -> Sample:
    """What the control plane costs when nothing happens."""
    yard = running()
    time.sleep(SETTLE_S)
    before = yard.cpu_s()
    time.sleep(IDLE_S)
    return Sample(IDLE_S, (yard.cpu_s() - before) / IDLE_S * 100)


def memory() -> Sample:
    """What it holds."""
    return Sample(0.0, running().rss_mib())


def submit_to_running() -> Sample:
    """From the call of submit to the event that says the job runs."""
    yard = running()
    took = []
    for _ in range(20):
        job = yard.job()
        after = yard.client.events(-2, 1)[-1]["id"]
        begun = time.perf_counter()
        yard.client.submit([job])
        started = False
        while not started:
            events = yard.client.events(after, wait_s=1.0)
            started = any(event.get("job") == job["name"] and event["kind"] == "started" for event in events)
            after = events[-1]["id"] if events else after
        took.append((time.perf_counter() - begun) * 1e3)
    return Sample(sum(took) / 1e3, statistics.median(took), {"p95_ms": sorted(took)[18]})


def supervise_one() -> Sample:
    """Processor time from the start of a task's supervisor to its end, of a task that does nothing; beside it what the
    interpreter alone takes to start that task."""
    folder = Path(tempfile.mkdtemp(prefix="gpuyard-bench-"))
    words = {"key": "1 1 0", "log": str(folder / "log"), "notify": str(folder / "none"), "term": "1", "arg": "true"}
    write_pairs(str(folder / "order"), [*words.items()])
    told = _children_s(BOOT, str(folder))
    bare = _children_s("import os; os.posix_spawnp('true', ['true'], os.environ); os.wait()")
    shutil.rmtree(folder)
    return Sample(told, told * 1e3, {"bare_ms": bare * 1e3})


def _children_s(program: str, *args: str) -> float:
    """Processor time of an interpreter that runs it, and of what it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-I", "-S", "-c", program, *args], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


CASES = (
    Case("served-jobs", "yard jobs, 10,000 queued", "ms", list_jobs, aim=300, runs=7),
    Case("served-submit", "an API submit, 10,000 queued", "ms", one_submit, aim=50, runs=50),
    Case("served-submits", "1,000 API submits", "s", thousand_submits, aim=5, runs=1),
    Case("served-start", "submit to running, p50", "ms", submit_to_running, aim=100, runs=3),
    Case("served-idle", "idle CPU of a core", "%", idle, aim=2, runs=1),
    Case("supervisor", "one task's supervisor, start to end (CPU)", "ms", supervise_one, aim=50, runs=20),
    Case("served-rss", "RSS of the control plane", "MiB", memory, aim=200, runs=1),
)
