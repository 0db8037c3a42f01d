"""What a kubelet hears of the scheduler of a cluster, and that nobody can keep it from hearing."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpuyard.runtime.clustered.readiness import ClusterReadiness
from gpuyard.server.cluster_probes import HEARD_S, MOST_AT_ONCE, ProbeDoor
from tests.support.kube.cluster import until

pytestmark = pytest.mark.slow

WELL = ClusterReadiness(leads=True, synced=True, heard_s=1.25, turns=True)


class Probed:
    """A door whose answers can be changed."""

    def __init__(self) -> None:
        self.now = WELL
        self.door = ProbeDoor("127.0.0.1", 0, lambda: self.now)
        self.door.start()

    def ask(self, path: str) -> tuple[int, str]:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://127.0.0.1:{self.door.port}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture
def probed() -> Iterator[Probed]:
    probed = Probed()
    yield probed
    probed.door.stop()


def test_ready_is_who_knows_the_cluster_and_leader_sync_and_age_are_told(probed: Probed):
    assert probed.ask("/readyz") == (200, "leads: yes\nsynced: yes\nheard: 1.2 s ago\nturns: yes\n")


def test_who_stands_by_is_ready_and_who_has_not_read_the_cluster_is_not(probed: Probed):
    probed.now = replace(WELL, leads=False)
    assert probed.ask("/readyz")[0] == 200
    probed.now = replace(WELL, leads=False, synced=False)
    assert probed.ask("/readyz?verbose") == (503, "leads: no\nsynced: no\nheard: never all of it\nturns: yes\n")
    assert probed.ask("/livez")[0] == 200
    probed.now = replace(WELL, heard_s=HEARD_S + 1)
    assert probed.ask("/readyz")[0] == 503


def test_a_turn_that_hangs_is_neither_ready_nor_alive(probed: Probed):
    probed.now = replace(WELL, turns=False)
    assert (probed.ask("/readyz")[0], probed.ask("/livez")[0]) == (503, 503)


def test_turns_that_fail_and_go_on_are_not_ready_and_alive(probed: Probed):
    probed.now = replace(WELL, fails=True)
    assert probed.ask("/readyz") == (503, "leads: yes\nsynced: yes\nheard: 1.2 s ago\nturns: fail\n")
    assert probed.ask("/livez")[0] == 200


def test_nothing_else_is_answered(probed: Probed):
    assert probed.ask("/") == (404, "not found\n")
    assert probed.ask("/api/v1/snapshot")[0] == 404


def answers(probed: Probed) -> bool:
    try:
        return probed.ask("/livez")[0] == 200
    except OSError:
        return False


def test_who_keeps_connections_open_and_says_nothing_does_not_keep_a_kubelet_from_hearing_for_long(probed: Probed):
    silent = [socket.create_connection(("127.0.0.1", probed.door.port)) for _ in range(3 * MOST_AT_ONCE)]
    try:
        until(lambda: answers(probed), 60, "a kubelet is answered")
    finally:
        for each in silent:
            each.close()
