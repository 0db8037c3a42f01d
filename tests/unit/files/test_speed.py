"""A large fleet is read in a time people wait for."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from gpuyard.files import Unreadable, parse_snapshot

NODES, JOBS = 10_000, 50_000
SECONDS_MAX = 10.0


def large() -> dict[str, Any]:
    """10,000 nodes of 8 GPUs and 50,000 jobs, most of them running."""
    nodes = [
        {"name": f"node-{n:05}", "pool": "h100", "gpus": 8, "model": "H100-SXM5-80GB", "cpu": 96, "memory": "1Ti",
         "domains": {"block": f"b{n // 256}", "rack": f"r{n // 16}"}, "labels": {"zone": f"z{n % 3}"},
         "islands": [[0, 1, 2, 3], [4, 5, 6, 7]]}
        for n in range(NODES)
    ]  # fmt: skip
    jobs = [
        {"name": f"job-{n:06}", "queue": f"q{n % 100}", "user": f"u{n % 500}", "class": ("training", "batch")[n % 2],
         "submitted": "2025-12-31T23:00:00Z", "gpus": 1, "cpu": 4, "memory": "32Gi", "models": ["H100", "A100"],
         "time_limit": "2h", "placements": [{"node": f"node-{n // 8:05}", "gpus": [n % 8]}]}
        for n in range(JOBS)
    ]  # fmt: skip
    queues = [{"name": f"q{n}", "quota": {"gpu": 100, "H100": 50}} for n in range(100)]
    return {
        "apiVersion": "gpuyard.dev/v1", "kind": "Snapshot", "topology": ["block", "rack"],
        "nodes": nodes, "queues": queues, "jobs": jobs,
    }  # fmt: skip


@pytest.mark.slow
def test_ten_thousand_nodes_and_fifty_thousand_jobs_are_read_in_time():
    text = json.dumps(large())
    began = time.perf_counter()
    snapshot = parse_snapshot(text, "large.json", 0.0)
    took = time.perf_counter() - began
    assert (len(snapshot.nodes), len(snapshot.jobs)) == (NODES, JOBS)
    assert took < SECONDS_MAX


@pytest.mark.slow
def test_a_large_file_with_mistakes_everywhere_is_refused_in_time():
    document = large()
    for job in document["jobs"]:
        job["queue"] += "x"
        job["placements"][0]["node"] += "x"
    text = json.dumps(document, indent=1)
    began = time.perf_counter()
    with pytest.raises(Unreadable) as refusal:
        parse_snapshot(text, "large.json", 0.0)
    assert time.perf_counter() - began < 2 * SECONDS_MAX
    assert refusal.value.more == 2 * JOBS - 50
    assert "did you mean q0?" in str(refusal.value)
