"""Nodes whose devices become fewer, more or others while pods hold them: nothing falls, no device is given twice."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.files import parse_snapshot, snapshot_document
from gpuyard.files.reading.fleet import ONLY_QUEUE
from gpuyard.kube.objects import Metadata
from gpuyard.model.job import Placement
from gpuyard.model.snapshot import Snapshot
from gpuyard.worlds.kubernetes.queues import KIND, QueueObject
from tests.unit.kube.test_observing import Seen

AS_GANG = {"gpuyard.dev/gang": "web"}


class Followed(Seen):
    """A brain that hears every event, as the one that schedules does."""

    def __init__(self) -> None:
        super().__init__()
        self.node()
        self.observer.settled.site_queues = (ONLY_QUEUE,)
        self.fleet = Fleet(Snapshot(now=0.0, topology=("zone", "rack"), queues=(ONLY_QUEUE,)))

    def free(self) -> int:
        """GPUs that the brain would give out now: those that one who begins now would, too."""
        observer = self.observer
        self.fleet.apply(self.told())
        nodes, jobs = tuple(observer.nodes.values()), tuple(observer.jobs.values())
        levels = tuple(level for level, _ in observer.settled.settings.levels)
        later = Fleet(Snapshot(now=0.0, topology=levels, queues=observer.settled.queues, nodes=nodes, jobs=jobs))
        assert int(self.fleet.columns.whole.sum()) == int(later.columns.whole.sum())
        return int(self.fleet.columns.whole.sum())


@pytest.fixture
def followed() -> Followed:
    return Followed()


def test_a_node_that_lost_gpus_under_its_pods_is_followed_and_gives_nobody_what_is_held(followed: Followed):
    for index in range(8):
        followed.pod(f"web-{index}")
    assert followed.free() == 0
    followed.cache.pods.drop("default/web-0")
    assert followed.free() == 1
    followed.node(gpus=7)  # the last device fell off its bus, and who held it runs on
    assert followed.free() == 0
    followed.cache.pods.drop("default/web-1")
    assert followed.free() == 1


def test_whoever_had_no_device_left_has_one_again_as_soon_as_there_is_one(followed: Followed):
    for index in range(4):
        followed.pod(f"web-{index}")
    followed.node(gpus=2)
    assert followed.free() == 0
    followed.cache.pods.drop("default/web-0")
    followed.cache.pods.drop("default/web-1")
    assert followed.free() == 0  # the two that are left hold both
    followed.pod("web-4")
    assert followed.free() == 0
    followed.node(gpus=8)
    assert followed.free() == 5


def test_a_node_that_comes_back_smaller_under_its_name_is_followed(followed: Followed):
    for index in range(6):
        followed.pod(f"web-{index}")
    assert followed.free() == 2
    followed.cache.nodes.drop("n0")
    followed.free()
    followed.node(gpus=2)
    assert followed.free() == 0
    followed.cache.nodes.drop("n0")
    followed.node(gpus=4)  # both within one look
    assert followed.free() == 0


def test_who_is_on_its_way_to_a_node_that_shrinks_holds_what_is_there(followed: Followed):
    followed.pod("ours", node="")
    followed.free()
    place = Placement("n0", (7,), uid="ours", assigned=True)
    followed.cache.assumed.put(place, "default/ours")
    followed.cache.devices["ours"] = ((7,), ())
    followed.cache.look_at("default/ours")
    assert followed.free() == 7
    followed.node(gpus=4)
    assert followed.free() == 3
    assert followed.cache.assumed.get("ours") is place  # the binding is under way, and is known by it
    followed.pod("ours")
    assert followed.free() == 3


def test_a_place_that_was_promised_on_a_node_that_shrinks_is_promised_no_more(followed: Followed):
    followed.pod("ours", node="")
    followed.free()
    followed.observer.promises.make("default/ours", [Placement("n0", (7,))], {}, 60.0)
    followed.cache.look_at("default/ours")
    assert followed.free() == 7
    followed.node(gpus=4)
    assert followed.free() == 4
    assert "default/ours" not in followed.observer.promises


def test_one_who_leads_again_knows_nothing_of_devices_that_are_gone(followed: Followed):
    for index in range(4):
        followed.pod(f"web-{index}")
    followed.free()
    followed.node(gpus=2)
    followed.observer.forget()
    followed.fleet = Fleet(replace(Snapshot(now=0.0), topology=("zone",), queues=(ONLY_QUEUE,)))
    assert followed.free() == 0


def test_a_cluster_whose_pods_hold_devices_that_are_gone_is_read_from_its_own_snapshot(followed: Followed):
    for index in range(3):
        followed.pod(f"web-{index}", notes=AS_GANG)
    slices = {"requests": {"nvidia.com/mig-1g.10gb": "2"}}
    followed.pod("sliced", notes=AS_GANG, containers=[{"name": "main", "resources": slices}])
    followed.node(gpus=2)
    assert followed.free() == 0
    nodes, jobs = tuple(followed.observer.nodes.values()), tuple(followed.observer.jobs.values())
    assert sorted(len(place.gpus) for job in jobs for place in job.placements) == [0, 0, 1, 1]
    moment = Snapshot(now=0.0, topology=("zone",), queues=(ONLY_QUEUE,), nodes=nodes, jobs=jobs)
    assert parse_snapshot(json.dumps(snapshot_document(moment)), "cluster", 0.0) == moment


def test_a_device_that_the_kubelet_holds_back_is_given_to_nobody_when_its_holder_leaves(followed: Followed):
    for index in range(8):
        followed.pod(f"web-{index}")
    assert followed.free() == 0
    followed.node(gpus=8, offered=7)  # one of them is sick, and whoever has it runs on
    assert followed.free() == 0
    followed.cache.pods.drop("default/web-3")
    assert followed.free() == 0
    followed.cache.pods.drop("default/web-4")
    assert followed.free() == 1
    followed.pod("web-8")
    assert followed.free() == 0
    followed.node(gpus=8)
    assert followed.free() == 1


def test_a_node_that_shrinks_while_the_queue_of_its_pods_goes_is_followed(followed: Followed):
    queues = followed.cache.sink_of(KIND)
    for name in ("default", "other"):
        queues.put(QueueObject(Metadata(name=name, uid=name)))
    for index in range(2):
        followed.pod(f"web-{index}")
    assert followed.free() == 6
    queues.drop("default")
    followed.node(gpus=1)
    assert followed.free() == 0
    followed.node(gpus=8)
    assert followed.free() == 6


def test_who_is_on_its_way_to_a_node_that_goes_and_comes_back_has_its_place_again(followed: Followed):
    followed.pod("ours", node="")
    assert followed.free() == 8
    followed.cache.assumed.put(Placement("n0", (0,), uid="ours", assigned=True), "default/ours")
    followed.cache.devices["ours"] = ((0,), ())
    followed.cache.look_at("default/ours")
    assert followed.free() == 7
    followed.cache.nodes.drop("n0")
    assert followed.free() == 0
    followed.node()
    assert followed.free() == 7
    followed.pod("ours")
    assert followed.free() == 7
