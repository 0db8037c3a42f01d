"""What the agent costs: memory and CPU of its two processes on replayed machines of 8 and 16 GPUs, scraped each look.

Run by `make bench-agent`; `python -m bench.agent --real` measures the GPUs of this machine and keeps nothing. A replay
leaves NVML's own cost out: reading a record is cheaper than asking a driver. Looks come each second here, so that there
are enough of them; what is told is the share of a core at a look each ten seconds.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "bench" / "results" / "agent.json"
LOOKS = 30
EVERY_S = 10.0
MEMORY_MIB, SHARE = 80.0, 0.01
"""The most it may take: memory of both processes, and its part of one core."""


@dataclass(frozen=True)
class AgentCost:
    """One machine's."""

    gpus: int
    looks: int
    memory_mib: float
    cpu_per_look_ms: float
    share_of_a_core: float
    exposition_kib: float


def measured(record: Path | None) -> AgentCost:
    """Start it, let it warm up, look and scrape, stop it; without a record it asks this machine's NVML."""
    replay = ["--nvml-replay", str(record)] if record is not None else []
    with tempfile.TemporaryDirectory() as state:
        process = subprocess.Popen(
            [sys.executable, "-m", "gpuyard", "--state", state, "agent", *replay, "--port", "0", "--every", "1s",
             "--dcgm", "always"],
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert process.stderr is not None
            said = re.search(r"Metrics: (\S+), .* token in (\S+)", process.stderr.readline())
            assert said is not None
            return _cost(process.pid, said[1], Path(said[2]).read_text().strip())
        finally:
            process.terminate()
            process.wait(30)


def _cost(pid: int, url: str, token: str) -> AgentCost:
    text = _until(url, token, 2)
    before, first = _cpu(pid), _looks(text)
    while _looks(text) - first < LOOKS:
        time.sleep(1.0)
        text = _scraped(url, token)
    looks = _looks(text) - first
    cpu = (_cpu(pid) - before) / looks
    gpus = len(re.findall(r"^DCGM_FI_DEV_GPU_TEMP\{", text, re.MULTILINE))
    return AgentCost(gpus, looks, round(_memory(pid), 1), round(cpu * 1000, 2), round(cpu / EVERY_S, 5), _kib(text))


def _until(url: str, token: str, looks: int) -> str:
    while _looks(text := _scraped(url, token)) < looks:
        time.sleep(0.2)
    return text


def _scraped(url: str, token: str) -> str:
    asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return str(answer.read().decode())


def _looks(text: str) -> int:
    found = re.search(r"^gpuyard_agent_looks_total (\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0


def _kib(text: str) -> float:
    return round(len(text.encode()) / 1024, 1)


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(int(child) for child in children)]


def _cpu(pid: int) -> float:
    """Seconds that both processes have worked."""
    ticks = 0
    for each in _family(pid):
        fields = Path(f"/proc/{each}/stat").read_bytes().rpartition(b")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> float:
    """MiB that both have of their own, and their part of what they share."""
    kib = 0
    for each in _family(pid):
        lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        kib += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kib / 1024


def main() -> None:
    """Measure, tell, keep; leaves with 1 if it takes more than it may."""
    replayed = [ROOT / "tests" / "records" / f"synthetic-h100x{gpus}.json" for gpus in (8, 16)]
    costs = [measured(record) for record in ([None] if "--real" in sys.argv else replayed)]
    for cost in costs:
        print(
            f"{cost.gpus:3} GPUs  {cost.memory_mib:6.1f} MiB  {cost.cpu_per_look_ms:6.2f} ms a look and scrape  "
            f"{100 * cost.share_of_a_core:.2f} % of a core at {EVERY_S:g} s"
        )
    if "--real" in sys.argv:
        return
    RESULT.write_text(json.dumps([asdict(cost) for cost in costs], indent=1) + "\n")
    if any(cost.memory_mib > MEMORY_MIB or cost.share_of_a_core > SHARE for cost in costs):
        sys.exit(f"More than {MEMORY_MIB:g} MiB or {100 * SHARE:g} % of a core.")


if __name__ == "__main__":
    main()
