"""Where a command's input comes from: what is sent to whom, and what is not."""

from __future__ import annotations

import pytest

from gpuyard.cli.console import sources
from gpuyard.kube.credentials import KubeAccess
from gpuyard.model.errors import Refused


@pytest.mark.parametrize(
    "url", ["http://yard.example:8443", "http://10.0.0.1", "http://127.0.0.1.example", "yard.example"]
)
def test_a_token_of_a_cluster_is_not_sent_where_others_could_read_it(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GPUYARD_URL", url)
    monkeypatch.setattr("gpuyard.runtime.clustered.scheduler.found", lambda: KubeAccess("https://x", token="secret"))
    with pytest.raises(Refused, match="is not sent to") as told:
        sources.cluster_snapshot(0.0)
    assert "secret" not in str(told.value)
