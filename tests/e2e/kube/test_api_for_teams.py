"""The yard's API on a cluster, with TLS: whichever scheduler is asked answers, also one that stands by."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.kube.conftest import PATIENCE_S, Scheduler, Schedulers, bound, leads, wait_for
from tests.support.kube.cluster import Cluster, environment
from tests.support.kube.fake_kubelet import FakeKubelets, FakeNode, indexed_job
from tests.support.kube.ports import free_ports

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl, for a certificate"),
]


def certificate(folder: Path) -> tuple[str, str]:
    paths = str(folder / "tls.crt"), str(folder / "tls.key")
    made = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=yard -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*made.split(), "-out", paths[0], "-keyout", paths[1]], check=True, capture_output=True)
    return paths


def asked(cluster: Cluster, url: str, trusted: str) -> subprocess.CompletedProcess[str]:
    env = environment(KUBECONFIG=cluster.kubeconfig(), GPUYARD_URL=url, GPUYARD_CERTIFICATE=trusted, NO_COLOR="1")
    command = [sys.executable, "-m", "gpuyard", "jobs", "--kube", "-o", "name"]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=PATIENCE_S, check=False)


def is_told(cluster: Cluster, scheduler: Scheduler, url: str, trusted: str) -> bool:
    return "Callers are answered" in scheduler.text() and asked(cluster, url, trusted).stdout == "default/gang\n"


def test_leader_and_standby_both_answer_over_tls_and_are_known_by_their_certificate(
    cluster: Cluster, kubelets: FakeKubelets, schedulers: Schedulers, tmp_path: Path
):
    shown, key = certificate(tmp_path)
    ports = free_ports(2)
    kubelets.add(FakeNode("n0", gpus=4))
    serving = [("--listen", f"0.0.0.0:{port}", "--certificate", shown, "--key", key) for port in ports]
    first = schedulers(*serving[0])
    wait_for(lambda: leads(cluster, first), "the first leads")
    second = schedulers(*serving[1])
    cluster.create(indexed_job("gang", 2))
    wait_for(lambda: len(bound(cluster)) == 2, "the gang is bound")
    for port, each in zip(ports, (first, second), strict=True):
        wait_for(partial(is_told, cluster, each, f"https://127.0.0.1:{port}", shown), "its door is open, the job told")
    assert leads(cluster, first)
    distrusted = asked(cluster, f"https://127.0.0.1:{ports[0]}", str(cluster.ca))
    assert (distrusted.returncode, distrusted.stdout) != (0, "default/gang\n")
    assert "cannot be trusted" in distrusted.stderr
    assert "GPUYARD_CERTIFICATE" in distrusted.stderr
