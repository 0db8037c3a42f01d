"""Pods that are alike are read and kept once, and nobody can tell: each is what it would be if it were alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuyard.kube.objects import NodeObject, PodObject
from gpuyard.kube.sharing import SharedParts
from gpuyard.model.job import Placement
from gpuyard.worlds.kubernetes import gangs, nodes, pods
from gpuyard.worlds.kubernetes.asking.marks import JOB, ReadingSettings
from gpuyard.worlds.kubernetes.gathering.layouts import Owners
from gpuyard.worlds.kubernetes.keeping.alike import Alike
from tests.support.kube.fake_kubelet import pod as document

OWNERS = Owners()
SETTINGS = ReadingSettings(queues={"default": frozenset(), "theirs": frozenset({"elsewhere"})})
ANTI = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
REPLICA = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-abc", "uid": "r", "controller": True}

SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "picky": {"nodeSelector": {"zone": "a"}, "tolerations": [{"key": "k", "operator": "Exists"}]},
    "gated": {"schedulingGates": [{"name": "wait"}]},
    "apart": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [ANTI]}}},
    "refused": {"tolerations": [{"key": "k", "operator": "Almost"}]},
    "bound": {"nodeName": "n1"},
    "with an account": {"volumes": [{"name": "kube-api-access-@", "projected": {}}]},
    "with a claim": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
    "with a claim of its own": {"volumes": [{"name": "v", "ephemeral": {}}]},
}
MARKS: dict[str, dict[str, Any]] = {
    "unmarked": {},
    "numbered by us": {"annotations": {JOB: "default/@", "gpuyard.dev/task": "0"}},
    "in a queue": {"annotations": {"gpuyard.dev/queue": "default", "gpuyard.dev/class": "inference"}},
    "in a queue of others": {"annotations": {"gpuyard.dev/queue": "theirs"}},
    "a replica": {"labels": {"app": "x", "pod-template-hash": "abc"}, "ownerReferences": [REPLICA]},
    "a part": {"annotations": {"gpuyard.dev/gpu-fraction": "0.5"}},
}


def made(name: str, spec: dict[str, Any], marks: dict[str, Any], phase: str = "Pending") -> PodObject:
    """One of many: whatever bears its name has another in each."""
    whole = document(name, 1, **spec)
    stamp = f"2026-01-01T00:00:{len(name):02d}Z"
    whole["metadata"] |= {"namespace": "default", "uid": f"u-{name}", "creationTimestamp": stamp, **marks}
    status = {"phase": phase, "startTime": stamp} if phase == "Running" else {"phase": phase}
    text = msgspec.json.encode(whole | {"status": status}).replace(b"@", name.encode())
    return msgspec.json.decode(text, type=PodObject)


@pytest.mark.parametrize("marks", MARKS.values(), ids=MARKS)
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_each_of_many_alike_is_read_as_if_it_were_the_only_one(spec: dict[str, Any], marks: dict[str, Any]) -> None:
    alike, shared = Alike(), SharedParts((JOB,))
    for name in ("a", "bb", "ccc"):
        for phase in ("Pending", "Running", "Succeeded"):
            seen = made(name, spec, marks, phase)
            places = {seen.metadata.uid: Placement("n1", (3,), uid=seen.metadata.uid)}
            for where in ({}, places):
                kept = shared.pod(seen)
                expected = gangs.gather([kept], OWNERS, SETTINGS, where)
                assert alike.gather([kept], OWNERS, SETTINGS, where) == expected
                job = alike.job(kept, OWNERS, SETTINGS, where.get(seen.metadata.uid))
                assert job is None or job == getattr(expected, "job", None)
                told = gangs.gather([seen], OWNERS, SETTINGS, where)
                assert (getattr(told, "job", None), getattr(told, "refusal", None)) == (
                    getattr(expected, "job", None),
                    getattr(expected, "refusal", None),
                )


def test_other_settings_read_the_same_pod_anew() -> None:
    alike, seen = Alike(), made("a", {}, MARKS["in a queue of others"])
    without = alike.gather([seen], OWNERS, SETTINGS, {})
    given = ReadingSettings(queues={"theirs": frozenset()})
    assert alike.gather([seen], OWNERS, given, {}) == gangs.gather([seen], OWNERS, given, {}) != without


def test_pods_of_one_template_share_all_but_their_names() -> None:
    shared = SharedParts((JOB,))
    one, other = (
        shared.pod(made(name, SPECS["with an account"], {**MARKS["a replica"], **MARKS["numbered by us"]}))
        for name in ("a", "bb")
    )
    assert one.spec is other.spec
    assert one.status is other.status
    assert one.metadata.labels is other.metadata.labels
    assert one.metadata.annotations is other.metadata.annotations
    assert one.metadata.owner_references is other.metadata.owner_references
    assert (one.metadata.key, other.metadata.key) == ("default/a", "default/bb")


def test_what_a_pod_waits_for_and_its_claims_are_kept() -> None:
    waiting = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}
    seen = msgspec.convert(
        {
            "metadata": {"name": "a", "namespace": "d", "uid": "u"},
            "spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "w"}]},
            "status": {"conditions": [waiting, {"type": "Ready", "status": "False"}]},
        },
        PodObject,
    )
    kept = SharedParts().pod(seen)
    assert [each.name for each in kept.spec.volumes or ()] == ["v"]
    assert [each.reason for each in kept.status.conditions or ()] == ["Unschedulable"]


def test_what_pods_ask_for_is_counted_once_and_a_resize_is_seen() -> None:
    seen = made("a", {"nodeName": "n1"}, {}, "Running")
    before = pods.load_of([seen])
    given = {"name": "main", "allocatedResources": {"cpu": "64"}}
    resized = msgspec.convert(msgspec.to_builtins(seen) | {"status": {"containerStatuses": [given]}}, PodObject)
    assert pods.load_of([resized]).cpu == 64_000 > before.cpu
    assert pods.load_of([seen]) == before


def test_of_a_node_all_is_kept_that_says_what_can_run_there() -> None:
    amounts = {"cpu": "8", "memory": "1Gi", "nvidia.com/gpu": "8", "pods": "10"}
    heard = [{"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "no network"}]
    documents = [
        {
            "metadata": {
                "name": name,
                "uid": name,
                "resourceVersion": name,
                "labels": {"nvidia.com/gpu.product": "H100"},
            },
            "status": {"capacity": amounts | {"memory": f"{name}Gi"}, "allocatable": amounts, "conditions": heard},
        }
        for name in ("1", "2")
    ]
    whole = [msgspec.convert(each, NodeObject) for each in documents]
    shared = SharedParts()
    one, other = map(shared.node, whole)
    assert [nodes.node_of(each) for each in (one, other)] == [nodes.node_of(each) for each in whole]
    assert one.status.conditions is other.status.conditions
    assert one.status.capacity is other.status.capacity
