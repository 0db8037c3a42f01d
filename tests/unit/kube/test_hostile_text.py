"""Whatever an API server takes from a tenant is a snapshot that can be read again and is answered alike."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st

from gpuyard.brain.foresee import Foresight
from gpuyard.files import parse_snapshot
from gpuyard.files.writing import snapshot_document
from gpuyard.kube.objects import PodObject, moment
from gpuyard.model.snapshot import Snapshot
from gpuyard.worlds.kubernetes import gangs, pods
from gpuyard.worlds.kubernetes.gathering.layouts import Parked
from tests.support.cluster_reading import Cluster
from tests.support.laws import law
from tests.support.scenario import NOW

Document = dict[str, Any]
RED, TITLE, TURNED = "\x1b[31mK", "\x1b]0;owned\x07", "\u202egpj.exe"
HOSTILE = (
    "n" * 5_000, RED, TITLE + "n" * 300, TURNED, " blank ", "two\nlines", "ü" * 400, "x" * 253 + " y", "\u3000", "1",
)  # fmt: skip
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def moment_of(*objects: Document, **settings: Any) -> Snapshot:
    """The cluster of these objects as a snapshot has it, gangs that are refused among its jobs."""
    node = {"kind": "Node", "metadata": {"name": "n0"}, "status": {"capacity": {"nvidia.com/gpu": "8", "cpu": "8"}}}
    cluster = Cluster({"settings": settings, "served": ["PodGroup.scheduling.volcano.sh"], "objects": [node, *objects]})
    read = cluster.read()
    snapshot = read.snapshot(moment(NOW))
    members: dict[str, list[PodObject]] = {}
    refused = {name: found.refusal for name, found in read.gathered.items() if found.refusal is not None}
    for pod in cluster.of(PodObject):
        if pods.is_ours(pod, cluster.settings):
            seat = gangs.seat_of(pod, cluster.owners)
            name = pod.metadata.key if isinstance(seat, Parked) else seat.gang
            members.setdefault(name, []).append(pod)
            if isinstance(seat, Parked) and (why := gangs.orphaned(name, seat).refusal) is not None:
                refused[name] = why
    told = [gangs.refused_job(name, members[name], why, "default") for name, why in refused.items()]
    return replace(snapshot, jobs=tuple(sorted((*snapshot.jobs, *told), key=lambda job: job.name)))


def reads_back(snapshot: Snapshot) -> Snapshot:
    """It is written, read, the same, and answered alike; the same again."""
    again = parse_snapshot(json.dumps(snapshot_document(snapshot)), "s.yaml", snapshot.now)
    for mine, other in zip((*again.nodes, *again.jobs), (*snapshot.nodes, *snapshot.jobs), strict=True):
        assert mine == other
    assert again == snapshot
    assert str(Foresight(again).explanations()) == str(Foresight(snapshot).explanations())
    return again


def pod(name: str = "a", annotations: Document | None = None, **given: Any) -> Document:
    metadata = {"name": name, "annotations": annotations or {}, **given.pop("metadata", {})}
    spec = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}], **given}
    return {"kind": "Pod", "metadata": metadata, "spec": spec}


def test_a_level_that_is_unknown_is_told_with_all_that_are_known_and_the_snapshot_can_be_read():
    terms = {"podAffinity": {REQUIRED: [{"topologyKey": "example.com/row", "labelSelector": {}}]}}
    snapshot = reads_back(moment_of(pod("near", affinity=terms), levels=[]))
    (job,) = snapshot.jobs
    assert "example.com/row" in job.held_for
    assert "clique (topology.gpuyard.dev/clique)" in job.held_for, "the whole sentence"


def test_names_that_no_file_would_take_are_cut_and_stay_different():
    made_by = {"apiVersion": "v1", "kind": "K", "uid": "u", "controller": True}
    owners = [{**made_by, "name": "n" * 5_000 + end} for end in "ab"]
    made = [pod(f"p{i}", metadata={"ownerReferences": [owner]}) for i, owner in enumerate((*owners, owners[0]))]
    families = [job.family for job in reads_back(moment_of(*made)).jobs]
    assert families[0] == families[2] != families[1]
    marked = [pod(f"p{i}", {"gpuyard.dev/gang": "A" * 204_800 + end}) for i, end in enumerate("aba")]
    jobs = reads_back(moment_of(*marked)).jobs
    assert sorted(group.tasks for job in jobs for group in job.task_groups()) == [1, 2]
    assert max(len(job.name) for job in jobs) < 350


def test_a_pod_whose_name_is_as_long_as_names_may_be_goes_by_it():
    (job,) = reads_back(moment_of(pod("p" * 253, metadata={"namespace": "n" * 63}))).jobs
    assert job.name == f"{'n' * 63}/{'p' * 253}"


@pytest.mark.parametrize("words", HOSTILE)
def test_no_name_or_sentence_of_a_tenant_makes_a_snapshot_that_cannot_be_read(words: str):
    for objects in _places(words):
        reads_back(moment_of(*objects))


@law(st.integers(0, 2**32), share=0.5)
def test_hostile_text_in_many_places_at_once_makes_no_snapshot_that_cannot_be_read(seed: int):
    dice = Random(seed)
    there = [dice.choice(_places(dice.choice(HOSTILE))) for _ in range(dice.randint(1, 4))]
    objects = {(each["kind"], each["metadata"]["name"]): each for objects in there for each in objects}
    reads_back(moment_of(*objects.values()))


def _places(words: str) -> list[list[Document]]:
    """Wherever a tenant may write these words: annotations, owners, values of affinity, templates of other kinds."""
    owner = {"apiVersion": "v1", "kind": words, "name": words, "uid": "u", "controller": True}
    expression = {"key": "disk", "operator": "In", "values": [words]}
    nodes = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    likes = [{"weight": 5, "preference": {"matchExpressions": [expression]}}]
    peers = [{"topologyKey": "rack", "labelSelector": {"matchExpressions": [expression]}}]
    group = {"scheduling.volcano.sh/group-name": "g"}
    volcano = {"kind": "PodGroup", "apiVersion": "scheduling.volcano.sh/v1beta1", "metadata": {"name": "g"}}
    template = {
        "metadata": {"labels": {"app": words, words: "x"}},
        "spec": {
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1", words: "1"}}}],
            "nodeSelector": {words: words},
            "tolerations": [{"key": words, "operator": "Equal", "value": words, "effect": "NoSchedule"}],
        },
    }
    ray: Document = {
        "kind": "RayCluster", "apiVersion": "ray.io/v1", "metadata": {"name": "r"},
        "spec": {"headGroupSpec": {"template": template},
                 "workerGroupSpecs": [{"groupName": words, "replicas": 2, "template": template}]},
    }  # fmt: skip
    head = {"labels": {"ray.io/cluster": "r", "ray.io/node-type": "head"}}
    return [
        [pod(annotations={"gpuyard.dev/gang": words})],
        [pod(annotations={"gpuyard.dev/queue": words})],
        [pod(annotations={"gpuyard.dev/models": f"{words},H100"})],
        [pod(annotations={"gpuyard.dev/class": words, "gpuyard.dev/time-limit": words})],
        [pod(annotations={"gpuyard.dev/topology-required": words})],
        [pod(annotations={"scheduling.volcano.sh/group-name": words})],
        [volcano, pod(annotations={**group, "volcano.sh/task-spec": words})],
        [{**volcano, "spec": {"minMember": 1, "minTaskMember": {words: 1}}}, pod(annotations=group)],
        [pod(metadata={"ownerReferences": [owner]})],
        [pod(schedulingGates=[{"name": words}])],
        [pod(affinity={"nodeAffinity": {REQUIRED: nodes, PREFERRED: likes}})],
        [pod(affinity={"podAffinity": {REQUIRED: peers}, "podAntiAffinity": {REQUIRED: peers}})],
        [pod(tolerations=[{"key": "k", "operator": words}])],
        [ray, pod("head", metadata=head)],
    ]


def test_keys_as_long_as_kubernetes_lets_them_be_are_keys():
    key = f"{'d' * 253}/{'k' * 63}"
    node: Document = {"kind": "Node", "metadata": {"name": "n1", "labels": {key: "x"}}}
    node |= {"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}, "status": {"capacity": {key: "3"}}}
    asked = pod(nodeSelector={key: "x"}, tolerations=[{"key": key, "operator": "Exists"}])
    asked["spec"]["containers"][0]["resources"]["limits"][key] = "1"
    (job,) = reads_back(moment_of(node, asked)).jobs
    assert dict(job.task_groups()[0].request.extras)[key] == 1
