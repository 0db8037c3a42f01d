"""Benchmarks of what people wait for: a large file, and the first line of help."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import workloads
from bench.measuring import Case, Sample, timed, worked
from gpuyard.files import read_snapshot, snapshot_document


class BigFile:
    """A snapshot of 10,000 nodes and 50,000 jobs as JSON, written once, read in every run."""

    def __init__(self) -> None:
        self._text = ""

    def __call__(self) -> Sample:
        self._text = self._text or json.dumps(snapshot_document(workloads.motley_jobs(10_000, 50_000)))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "snapshot.json")
            path.write_text(self._text, encoding="utf-8")
            seconds, snapshot = worked(lambda: read_snapshot(path, workloads.NOW))
        notes = {"nodes": len(snapshot.nodes), "jobs": len(snapshot.jobs), "file_mib": len(self._text) / 2**20}
        return Sample(seconds, seconds, notes)


def first_help() -> Sample:
    """`yard --help` from the shell's point of view."""
    yard = Path(sys.executable).with_name("yard")
    seconds, _ = timed(lambda: subprocess.run([yard, "--help"], check=True, capture_output=True))
    return Sample(seconds, seconds * 1e3)


CASES = (
    Case("read", "read 10,000 nodes and 50,000 jobs from JSON", "s", BigFile(), aim=10, runs=3),
    Case("help", "yard --help", "ms", first_help, aim=150, runs=15),
)
