"""What somebody who is not the yard's owner sees of others."""

from __future__ import annotations

from gpuyard.runtime.service import Caller
from gpuyard.server import privacy
from tests.support.fake_yard import FakeYard

ME, OWNER = Caller("me", 1000), Caller("root", 0, admin=True)


class Mine(FakeYard):
    """A yard in which only `mine` is mine."""

    def jobs(self, caller: Caller, all_ended: bool = False, fields: object = ()):
        return [{"name": "mine"}]


def test_a_snapshot_shows_others_jobs_as_shapes_alone():
    whole = {
        "kind": "Snapshot", "memory": {"x": 1},
        "jobs": [{"name": "mine", "user": "me", "gpus": 1}, {"name": "secret", "user": "you", "gpus": 2, "run": {}}],
        "reservations": [{"job": "secret"}],
    }  # fmt: skip
    assert privacy.snapshot(whole, ME) == {
        "kind": "Snapshot",
        "jobs": [{"name": "mine", "user": "me", "gpus": 1}, {"name": "other-1", "gpus": 2}],
        "reservations": [{"job": "other-1"}],
    }
    assert privacy.snapshot(whole, OWNER) is whole


def test_nodes_and_events_name_only_my_jobs():
    nodes = [{"name": "n0", "jobs": ["mine", "secret"], "devices": [{"index": 0, "jobs": ["secret"]}]}]
    shown = privacy.nodes(nodes, Mine(), ME)[0]
    assert shown["jobs"] == ["mine", "other"]
    assert shown["devices"][0]["jobs"] == ["other"]
    happened = [
        {"id": 1, "kind": "started", "job": "secret", "message": "x"},
        {"id": 2, "kind": "ended", "job": "mine"},
    ]
    assert privacy.events(happened, Mine(), ME) == [{"id": 1, "kind": "started"}, happened[1]]
    assert privacy.events(happened, Mine(), OWNER) is happened
