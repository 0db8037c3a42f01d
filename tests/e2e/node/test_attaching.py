"""`yard attach --kube` on a real kubelet: what a Job's containers write is shown until it ends, as it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.kube.cluster import Cluster, environment
from tests.support.kube.commands import yard
from tests.support.kube.real_machine import PATIENCE_S
from tests.support.kube.real_node import RealNode, real_job

pytestmark = pytest.mark.slow


def test_whoever_attaches_sees_what_both_tasks_write_and_ends_as_the_job_ends(
    cluster: Cluster, node: RealNode, scheduler: Path
):
    held = {"backoffLimit": 1, "suspend": True}
    cluster.create(real_job("work", "say", "hello", "exit", "5", tasks=2, gpus=2, job=held))
    command = [sys.executable, "-m", "gpuyard", "attach", "--kube", "work"]
    env = environment(KUBECONFIG=cluster.kubeconfig(), NO_COLOR="1")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as attached:
        assert attached.stderr is not None
        assert "Ctrl-C leaves it running" in attached.stderr.readline()
        cluster.merge("/apis/batch/v1/namespaces/default/jobs/work", {"spec": {"suspend": False}})
        said, told = attached.communicate(timeout=PATIENCE_S)
    assert {"0: hello", "1: hello"} & set(said.splitlines())
    assert "work failed with exit code 5" in told
    assert attached.returncode == 5
    assert "work has ended" in yard(cluster.kubeconfig(), "attach", "--kube", "work", code=2)
