"""A real Prometheus scrapes the agent of a replayed machine; `promtool` reads what it tells."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from tests.support import prometheus, records
from tests.support.kube.cluster import until
from tests.support.kube.ports import free_ports
from tests.unit.agent.test_exporting import BOARD_12239, LABELS

pytestmark = pytest.mark.slow
WAIT_S = 300.0


def _agent(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "gpuyard", "--state", str(folder), "agent", *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


@pytest.fixture
def agent(tmp_path: Path):
    machine = str(records.path("synthetic-h100x8"))
    process = _agent(tmp_path / "state", "--nvml-replay", machine, "--port", "0", "--every", "1s", "--dcgm", "always")
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        said = re.search(r"Metrics: http://(\S+)/metrics, .* token in (\S+)", line)
        assert said, line
        yield said[1], said[2]
    finally:
        process.terminate()
        process.wait(WAIT_S)
        assert process.stderr is not None
        process.stderr.close()


def _asked(port: int, query: str) -> list[dict]:
    url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return list(json.load(answer)["data"]["result"])
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return []


def test_a_real_prometheus_scrapes_the_six_series_of_the_dcgm_board(agent, tmp_path: Path):
    address, token = agent
    (port,) = free_ports(1)
    (tmp_path / "prometheus.yml").write_text(
        f"""
scrape_configs:
  - job_name: gpuyard
    scrape_interval: 3s
    scrape_timeout: 3s
    authorization: {{credentials_file: {token}}}
    static_configs: [{{targets: ["{address}"]}}]
"""
    )
    server = subprocess.Popen(
        [prometheus.binary("prometheus"), f"--config.file={tmp_path / 'prometheus.yml'}",
         f"--storage.tsdb.path={tmp_path / 'data'}", f"--web.listen-address=127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for name in BOARD_12239:
            until(lambda name=name: len(_asked(port, name)) == 8, WAIT_S, f"{name} is there of every GPU")  # type: ignore[misc]
        first = until(lambda: _asked(port, 'DCGM_FI_DEV_GPU_UTIL{gpu="0"}'), WAIT_S, "one is asked for")[0]["metric"]
        # an empty label is no label to Prometheus
        assert {"gpu", "instance", "UUID", "modelName"} <= set(first) <= LABELS | {"__name__", "instance", "job"}
        healthy = "sum(gpuyard_gpu_health{health='healthy'})"
        assert until(lambda: _asked(port, healthy), WAIT_S, "sums are told")[0]["value"][1] == "8"
    finally:
        server.terminate()
        server.wait(WAIT_S)


def test_promtool_reads_the_metrics_and_minds_only_dcgms_own_names():
    told = subprocess.run(
        [sys.executable, "-m", "gpuyard", "agent", "--once", "--dcgm", "always",
         "--nvml-replay", str(records.path("synthetic-mixed"))],
        capture_output=True, text=True, timeout=WAIT_S, check=True,
    )  # fmt: skip
    checked = subprocess.run(
        [prometheus.binary("promtool"), "check", "metrics"],
        input=told.stdout, capture_output=True, text=True, timeout=WAIT_S, check=False,
    )  # fmt: skip
    assert checked.returncode in (0, 3), checked.stderr  # 3: it reads them, and has remarks on style
    assert [line for line in checked.stderr.splitlines() if not line.startswith("DCGM_FI_")] == []
