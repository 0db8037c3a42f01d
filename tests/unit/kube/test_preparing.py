"""Volumes made ready before their pods are bound: given, asked for, waited for, and given up with the cause named."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gpuyard.kube.client import ApiReply
from gpuyard.kube.objects import DeviceClaimObject, NodeObject, PodObject
from gpuyard.kube.storage import CsiNodeObject, StorageClassObject, VolumeClaimObject, VolumeObject
from gpuyard.model.job import Placement
from gpuyard.worlds.kubernetes.acting.preparing import LIMIT_S, STOPPED, Unprepared, VolumePreparer
from gpuyard.worlds.kubernetes.asking.marks import DEFAULTS
from gpuyard.worlds.kubernetes.cache import Cache
from gpuyard.worlds.kubernetes.observe import ClusterObserver
from tests.support.kube.fake_kubelet import pod
from tests.support.pretend import StillClock

SELECTED = "volume.kubernetes.io/selected-node"


DISKS = "attachable-volumes-csi-disks.example"


class Ground:
    """A cluster's storage by hand; `answer` plays the API server and whoever acts on what is written."""

    def __init__(self, provisioner: str = "disks.test") -> None:
        self.cache = Cache()
        self.observer = ClusterObserver(self.cache, DEFAULTS, StillClock(0.0))
        self.storage = self.observer.storage
        self.clock = StillClock(0.0)
        self.written: list[tuple[str, dict[str, Any]]] = []
        self.answer: Callable[[str, dict[str, Any]], int] = lambda _path, _body: 200
        self.leads = True
        self.preparer = VolumePreparer(self, self.cache, self.storage, self.clock, lambda: self.leads)  # type: ignore[arg-type]
        self.storage.classes.put(
            msgspec.convert(
                {
                    "metadata": {"name": "late", "uid": "late"},
                    "provisioner": provisioner,
                    "volumeBindingMode": "WaitForFirstConsumer",
                },
                StorageClassObject,
            )
        )
        for name in ("n0", "n1"):
            labels = {"kubernetes.io/hostname": name}
            self.cache.nodes.put(
                msgspec.convert({"metadata": {"name": name, "uid": name, "labels": labels}}, NodeObject)
            )

    async def patch(self, path: str, body: bytes, kind: str = "") -> ApiReply:
        told = msgspec.json.decode(body)
        self.written.append((path, told))
        return ApiReply(self.answer(path, told))

    def claim(self, name: str, volume: str = "", selected: str = "", mode: str = "ReadWriteOnce") -> None:
        document = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "annotations": {SELECTED: selected} if selected else None,
            },
            "spec": {"storageClassName": "late", "volumeName": volume, "accessModes": [mode]},
            "status": {"phase": "Bound" if volume else "Pending"},
        }
        self.storage.claims.put(msgspec.convert(document, VolumeClaimObject))

    def volume(self, name: str, node: str) -> None:
        here = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]
        spec = {
            "storageClassName": "late",
            "accessModes": ["ReadWriteOnce"],
            "nodeAffinity": {"required": {"nodeSelectorTerms": here}},
            "csi": {"driver": "disks.example"},
        }
        self.storage.volumes.put(msgspec.convert({"metadata": {"name": name, "uid": name}, "spec": spec}, VolumeObject))

    def csi_node(self, name: str, count: int) -> None:
        drivers = [{"name": "disks.example", "allocatable": {"count": count}}, {"name": "files.example"}]
        self.storage.nodes.put(
            msgspec.convert({"metadata": {"name": name, "uid": name}, "spec": {"drivers": drivers}}, CsiNodeObject)
        )

    def pod(self, name: str, claim: str, node: str = "") -> PodObject:
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
        document = pod(name, 1, volumes=volumes, **({"nodeName": node} if node else {}))
        document["metadata"] |= {"namespace": "default", "uid": name}
        made = msgspec.convert(document, PodObject)
        self.cache.pods.put(made)
        return made

    def prepared(self, *placed: tuple[PodObject, str]) -> Unprepared | None:
        self.storage.watch()
        for each, _ in placed:
            self.cache.assumed.put(Placement("n1", uid=each.metadata.uid), each.metadata.key)
        return asyncio.run(self.preparer.prepare(placed))


def selects(body: dict[str, Any]) -> object:
    return body["metadata"]["annotations"].get(SELECTED)


def test_the_node_is_written_on_the_claim_and_the_pod_waits_until_its_volume_is_there():
    ground = Ground()
    ground.claim("data")

    def make(path: str, body: dict[str, Any]) -> int:
        ground.volume("disk", "n1")
        ground.claim("data", "disk", selected=str(selects(body)))
        return 200

    ground.answer = make
    wants = ground.pod("p", "data")
    assert ground.preparer.wants(wants)
    assert ground.prepared((wants, "n1")) is None
    assert [(path, selects(body)) for path, body in ground.written] == [
        ("/api/v1/namespaces/default/persistentvolumeclaims/data", "n1")
    ]
    assert not ground.preparer.wants(wants)


def test_two_claims_are_never_given_one_volume():
    ground = Ground("kubernetes.io/no-provisioner")
    ground.volume("disk", "n0")
    ground.claim("one")
    ground.claim("two")
    unprepared = ground.prepared((ground.pod("p", "one"), "n0"), (ground.pod("q", "two"), "n0"))
    assert unprepared == Unprepared("n0", "the volume claim default/two: no volume that n0 reaches is free")
    assert [body["spec"]["claimRef"]["uid"] for _, body in ground.written] == ["one"]


def test_a_claim_that_is_not_bound_in_time_is_named_and_may_be_made_elsewhere():
    ground = Ground()
    ground.claim("data")

    def take(path: str, body: dict[str, Any]) -> int:
        ground.claim("data", selected=str(selects(body) or ""))
        return 200

    ground.answer = take
    unprepared = ground.prepared((ground.pod("p", "data"), "n0"))
    assert unprepared is not None
    assert unprepared.why.startswith("the volume claim default/data was not bound on n0 within 60 s; kubectl describe")
    assert ground.clock.at == pytest.approx(LIMIT_S, abs=1.0)
    assert [selects(body) for _, body in ground.written] == ["n0", None]


def test_whoever_makes_volumes_may_give_up_and_nobody_waits_any_longer():
    ground = Ground()
    ground.claim("data")
    wants = ground.pod("p", "data")

    async def give_up_after(seconds: float) -> None:
        ground.clock.at += seconds
        if ground.clock.at > 1.0:
            ground.claim("data")

    def take(path: str, body: dict[str, Any]) -> int:
        ground.claim("data", selected=str(selects(body)))
        return 200

    ground.answer = take
    ground.clock.sleep = give_up_after  # type: ignore[method-assign]
    assert ground.prepared((wants, "n0")) == Unprepared(
        "n0", "no volume could be made on n0 for the claim default/data"
    )
    assert ground.clock.at < 3.0


def test_a_volume_that_was_made_out_of_reach_binds_nobody():
    ground = Ground()
    ground.claim("data")

    def make(path: str, body: dict[str, Any]) -> int:
        ground.volume("disk", "n1")
        ground.claim("data", "disk")
        return 200

    ground.answer = make
    unprepared = ground.prepared((ground.pod("p", "data"), "n0"))
    assert unprepared == Unprepared("n0", "the volume disk of the claim default/data cannot be reached from n0")


def test_who_leads_no_more_writes_nothing_and_blames_no_node():
    ground = Ground()
    ground.claim("data")
    ground.leads = False
    assert ground.prepared((ground.pod("p", "data"), "n0")) == STOPPED
    assert ground.written == []


def test_a_claim_for_one_pod_at_a_time_is_not_started_with_twice():
    ground = Ground()
    ground.claim("data", "disk", mode="ReadWriteOncePod")
    one, two = ground.pod("p", "data"), ground.pod("q", "data")
    assert ground.storage.wanted_twice([one]) == ""
    assert ground.storage.wanted_twice([one, two]) == "default/data"
    ground.pod("p", "data", node="n0")
    assert ground.storage.wanted_twice([two]) == "default/data"
    ground.cache.pods.drop("default/p")
    assert ground.storage.wanted_twice([two]) == ""


def test_storage_is_followed_from_the_first_pod_of_ours_that_needs_it_and_once():
    ground = Ground()
    asked: list[int] = []
    ground.storage.needed = lambda: asked.append(1)
    ground.cache.pods.put(msgspec.convert(pod("none", 1) | {"status": {}}, PodObject))
    assert asked == []
    ground.pod("p", "data")
    ground.cache.pods.drop("default/p")
    ground.pod("q", "data")
    assert asked == [1]


def test_limits_of_attaching_are_followed_for_those_who_wait_and_for_pods_of_others():
    ground = Ground()
    labels = {"gpuyard.dev/pool": "disks", "kubernetes.io/hostname": "n0"}
    ground.cache.nodes.put(msgspec.convert({"metadata": {"name": "n0", "uid": "n0", "labels": labels}}, NodeObject))
    ground.volume("disk", "n0")
    ground.claim("data", "disk")
    ground.pod("p", "data")
    theirs = pod("theirs", 0, scheduler="default-scheduler", nodeName="n0")
    theirs["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    theirs["metadata"] |= {"namespace": "default", "uid": "theirs"}
    ground.cache.others.put(msgspec.convert(theirs | {"status": {"phase": "Running"}}, PodObject))
    ground.storage.watch()
    list(ground.observer.events())

    def asked() -> dict[str, int]:
        list(ground.observer.events())
        return dict(ground.observer.jobs["default/p"].task_groups()[0].request.extras)

    def taken() -> dict[str, int]:
        return dict(ground.observer.nodes["n0"].taken.extras)

    assert DISKS not in asked()
    ground.csi_node("n0", 3)
    assert asked()[DISKS] == taken()[DISKS] == 1
    assert ground.observer.nodes["n0"].extra(DISKS) == 3
    ground.csi_node("n0", 2)
    list(ground.observer.events())
    assert ground.observer.nodes["n0"].extra(DISKS) == 2
    ground.storage.nodes.drop("n0")
    assert DISKS not in asked()
    assert DISKS not in taken()


def test_a_claim_on_devices_is_followed_from_the_first_pod_that_names_one_and_binds_it_where_they_are():
    ground = Ground()
    asked: list[int] = []
    ground.storage.devices_needed = lambda: asked.append(1)
    document = pod("p", 0, resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}])
    document["metadata"] |= {"namespace": "default", "uid": "p"}
    ground.cache.pods.put(msgspec.convert(document | {"status": {}}, PodObject))
    assert asked == [1]

    def claim(**status: Any) -> None:
        document = {"metadata": {"name": "mine", "namespace": "default", "uid": "mine"}, "status": status}
        ground.storage.devices.put(msgspec.convert(document, DeviceClaimObject))

    def terms() -> object:
        list(ground.observer.events())
        job = ground.observer.jobs.get("default/p")
        return job.task_groups()[0].terms if job is not None else ground.observer.refused["default/p"].reason.value

    assert terms() == "ClaimUnsupported"
    claim()
    ground.storage.watch_devices()
    assert terms() == "ClaimUnsupported"
    here = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}
    claim(allocation={"nodeSelector": here})
    assert "n1" in str(terms())
    ground.storage.devices.drop("default/mine")
    assert terms() == "ClaimUnsupported"
