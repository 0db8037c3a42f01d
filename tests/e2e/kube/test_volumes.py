"""Claims that wait for their first consumer, bound on the node that was chosen by the real controller of volumes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.kube.conftest import Schedulers, bound, condition, wait_for
from tests.support.kube.cluster import ApiError, Cluster
from tests.support.kube.fake_kubelet import FakeKubelets, FakeNode, pod

pytestmark = pytest.mark.slow

CLAIMS, VOLUMES = "/api/v1/namespaces/default/persistentvolumeclaims", "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"
SELECTED = "volume.kubernetes.io/selected-node"


@pytest.fixture
def storage(cluster: Cluster) -> Iterator[Cluster]:
    """Nothing of it is left afterwards, whoever would protect it."""
    yield cluster
    cluster.delete("/api/v1/namespaces/default/pods?gracePeriodSeconds=0", 0)
    for folder in (CLAIMS, VOLUMES, CLASSES, CSI_NODES):
        for each in cluster.get(folder)["items"]:
            with contextlib.suppress(ApiError):
                cluster.merge(f"{folder}/{each['metadata']['name']}", {"metadata": {"finalizers": None}})
                cluster.delete(f"{folder}/{each['metadata']['name']}")


def storage_class(name: str, provisioner: str) -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def claim(name: str, made: str) -> dict[str, Any]:
    spec = {
        "storageClassName": made,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def volume(name: str, made: str, node: str, **spec: Any) -> dict[str, Any]:
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "storageClassName": made,
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": "/disk"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [here]}},
            **spec,
        },
    }


def with_claim(name: str, claimed: str, gpus: int = 1, **more: Any) -> dict[str, Any]:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claimed}}]
    return pod(name, gpus, volumes=volumes, **more)


def selected(cluster: Cluster, name: str) -> str:
    return str(cluster.get(f"{CLAIMS}/{name}")["metadata"].get("annotations", {}).get(SELECTED, ""))


def test_a_pod_is_bound_once_its_volume_was_made_on_the_node_that_was_chosen_for_it(
    storage: Cluster, kubelets: FakeKubelets, schedulers: Schedulers
):
    kubelets.add(FakeNode("n0"), FakeNode("n1"))
    schedulers()
    storage.create(storage_class("made", "disks.test/maker"))
    storage.create(claim("data", "made"))
    storage.create(with_claim("train", "data"))
    node = wait_for(lambda: selected(storage, "data"), "the node is written on the claim")
    assert bound(storage) == {}
    words = f"its place on {node} is kept until the volume claim default/data is bound there"
    wait_for(lambda: condition(storage.pods()[0]).get("message") == words, "it is told what it waits for")
    told = storage.get(f"{CLAIMS}/data")["metadata"]
    meant = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "data", "uid": told["uid"]}
    storage.create(volume("disk", "made", node, claimRef=meant))  # whoever makes volumes does this
    wait_for(lambda: bound(storage) == {"train": node}, "the pod is bound where its volume is")
    assert storage.get(f"{CLAIMS}/data")["status"]["phase"] == "Bound"


def test_a_gang_gets_the_volumes_that_are_free_on_its_nodes_and_who_comes_later_goes_where_its_volume_is(
    storage: Cluster, kubelets: FakeKubelets, schedulers: Schedulers
):
    kubelets.add(*(FakeNode(f"n{index}", gpus=2) for index in range(3)))
    storage.create(storage_class("local", "kubernetes.io/no-provisioner"))
    for index in (1, 2):
        storage.create(volume(f"disk{index}", "local", f"n{index}"))
    schedulers()
    for index in range(2):
        storage.create(claim(f"data{index}", "local"))
        member = with_claim(f"m{index}", f"data{index}", gpus=2)
        member["metadata"]["annotations"] |= {"gpuyard.dev/gang": "ours", "gpuyard.dev/gang-tasks": "2"}
        storage.create(member)
    wait_for(lambda: len(bound(storage)) == 2, "the gang is bound whole")
    assert set(bound(storage).values()) == {"n1", "n2"}
    where = bound(storage)["m0"]
    storage.delete("/api/v1/namespaces/default/pods/m0", 0)
    storage.create(with_claim("again", "data0"))
    wait_for(lambda: bound(storage).get("again") == where, "it goes back to its volume")
    storage.create(claim("late", "local"))
    storage.create(with_claim("none", "late"))

    def told() -> dict[str, Any]:
        return condition(next(each for each in storage.pods() if each["metadata"]["name"] == "none"))

    wait_for(lambda: told().get("reason") == "VolumeUnbound", "who finds no free volume is told so")
    assert "no free volume of the class local" in told()["message"]


def test_a_node_attaches_as_many_volumes_as_its_driver_says_and_who_comes_then_waits_for_it(
    storage: Cluster, kubelets: FakeKubelets, schedulers: Schedulers
):
    kubelets.add(FakeNode("n0"))
    drivers = [{"name": "disks.test", "nodeID": "n0", "allocatable": {"count": 1}}]
    csi_node = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n0"}}
    storage.call("POST", CSI_NODES, csi_node | {"spec": {"drivers": drivers}})
    storage.create(storage_class("local", "kubernetes.io/no-provisioner"))
    for index in range(2):
        source = {"local": None, "csi": {"driver": "disks.test", "volumeHandle": f"disk{index}"}}
        storage.create(volume(f"disk{index}", "local", "n0", **source))
        storage.create(claim(f"data{index}", "local"))
    schedulers()
    storage.create(with_claim("first", "data0"))
    wait_for(lambda: bound(storage) == {"first": "n0"}, "the first is bound")
    storage.create(with_claim("second", "data1"))

    def told() -> dict[str, Any]:
        return condition(next(each for each in storage.pods() if each["metadata"]["name"] == "second"))

    wait_for(
        lambda: "attachable-volumes-csi-disks.test" in told().get("message", ""), "the second is told why it waits"
    )
    assert told()["reason"] == "NotEnoughExtra"
    storage.delete("/api/v1/namespaces/default/pods/first", 0)
    wait_for(lambda: bound(storage) == {"second": "n0"}, "it is bound once the first is gone")
