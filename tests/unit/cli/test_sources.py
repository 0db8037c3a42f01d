"""Where a command's input comes from: what is sent to whom, and what is not."""

from __future__ import annotations

import pytest

from gpuyard.cli.console import sources
from gpuyard.cli.console.options import KUBE
from gpuyard.kube.credentials import KubeAccess
from gpuyard.model.errors import NotFound, Refused
from gpuyard.model.snapshot import Snapshot


@pytest.mark.parametrize(
    "url", ["http://yard.example:8443", "http://10.0.0.1", "http://127.0.0.1.example", "yard.example"]
)
def test_a_token_of_a_cluster_is_not_sent_where_others_could_read_it(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GPUYARD_URL", url)
    monkeypatch.setattr("gpuyard.runtime.clustered.scheduler.found", lambda: KubeAccess("https://x", token="secret"))
    with pytest.raises(Refused, match="is not sent to") as told:
        sources.cluster_snapshot(0.0)
    assert "secret" not in str(told.value)


def test_a_job_that_is_not_on_the_cluster_is_looked_for_with_the_command_that_asks_the_cluster():
    with pytest.raises(NotFound, match=r"^There is no job 'x' on the cluster\. `yard jobs --kube` lists them\.$"):
        sources.job_named(Snapshot(0.0), "x", KUBE)
