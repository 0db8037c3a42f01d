"""The door to a cluster's moment: what it says where something goes wrong."""

from __future__ import annotations

from typing import Any

from starlette.testclient import TestClient

from gpuyard.model.errors import Busy
from gpuyard.runtime.clustered.tenants import KnownTenant
from gpuyard.server import clustered

SHOWN = {"Authorization": "Bearer somebody"}


class BrokenAnswers:
    """Stumbles over a job of somebody else."""

    def admit(self, token: str, source: str) -> None:
        if token == "one-too-many":
            raise Busy("too many")

    def tenant(self, token: str) -> KnownTenant:
        return KnownTenant("ann")

    def snapshot(self, tenant: KnownTenant) -> Any:
        raise KeyError("team-b/secret")


def test_a_mistake_of_ours_names_nobodys_jobs():
    client = TestClient(clustered.build(BrokenAnswers()), raise_server_exceptions=False)  # type: ignore[arg-type]
    told = client.get("/api/v1/snapshot", headers=SHOWN)
    assert told.status_code == 500
    assert "KeyError" in told.text
    assert "secret" not in told.text


def test_who_shows_no_token_is_told_so_before_anybody_is_asked():
    client = TestClient(clustered.build(BrokenAnswers()))  # type: ignore[arg-type]
    assert client.get("/api/v1/snapshot").status_code == 401


def test_who_comes_after_too_many_tokens_of_nobody_is_told_to_ask_again():
    client = TestClient(clustered.build(BrokenAnswers()))  # type: ignore[arg-type]
    assert client.get("/api/v1/snapshot", headers={"Authorization": "Bearer one-too-many"}).status_code == 429
