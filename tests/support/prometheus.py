"""A real Prometheus: the one on this machine, else Debian's package, unpacked beside the tests' own cache.

`binary` gives the path of `prometheus` or `promtool`. Where neither can be had the test is skipped with the reason;
under CI it fails instead, if a package index is there that has it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpuyard-tests" / "prometheus"
FETCH_S = 180


def binary(name: str) -> str:
    found = shutil.which(name) or _unpacked(name)
    if found is None:
        pytest.skip(_why_not())
    return found


def _unpacked(name: str) -> str | None:
    path = CACHE / "usr" / "bin" / name
    if not path.exists():
        _fetch()
    return str(path) if path.exists() else None


def _fetch() -> None:
    if not _is_offered():
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (CACHE / "usr").exists():
            return
        fetch = ["apt-get", "download", "prometheus"]
        ran = subprocess.run(fetch, cwd=CACHE, capture_output=True, timeout=FETCH_S, check=False)
        for package in CACHE.glob("prometheus_*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(package), str(CACHE)], check=True, timeout=FETCH_S)
            package.unlink()
        if ran.returncode and os.environ.get("CI") == "true":
            pytest.fail(f"Debian's prometheus could not be fetched: {ran.stderr.decode(errors='replace')[-300:]}")


@cache
def _is_offered() -> bool:
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        return False
    policy = ["apt-cache", "policy", "prometheus"]
    asked = subprocess.run(policy, capture_output=True, text=True, timeout=60, check=False)
    return "Candidate:" in asked.stdout and "Candidate: (none)" not in asked.stdout


def _why_not() -> str:
    if not _is_offered():
        return "no Prometheus here, and no Debian package of it is offered"
    return "Debian's package of Prometheus could not be fetched"
