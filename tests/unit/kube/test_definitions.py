"""Kinds of our own: their schemas are the tables that read them, and what they hold is read as files are."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import jsonschema
import msgspec
import pytest
import yaml

from gpuyard.files.format.entries import QueueEntry
from gpuyard.kube import manifests
from gpuyard.kube.definitions import gpu_nodes, structural
from gpuyard.kube.objects import Metadata
from gpuyard.model.queue import Queue
from gpuyard.model.resources import UNLIMITED, WHOLE
from gpuyard.worlds.kubernetes import following, kinds, queues
from gpuyard.worlds.kubernetes.asking.marks import SCHEDULERS_OWN
from gpuyard.worlds.kubernetes.gathering.controllers import KUBEFLOW
from gpuyard.worlds.kubernetes.queues import QueueObject, camel

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "kubernetes.md"
ROLES = [
    (name, document)
    for name in ("scheduler.yaml", "agent.yaml", "nodes.yaml", "tenants.yaml")
    for document in manifests.documents(name)
    if document["kind"] in ("Role", "ClusterRole")
]


def queue(name: str, **spec: object) -> QueueObject:
    return QueueObject(metadata=Metadata(name=name), spec=spec)


def test_a_queue_of_a_cluster_has_the_fields_of_a_queue_of_a_file():
    fields = {camel(field.name) for field in dataclasses.fields(QueueEntry)} - {"name", "users", "groups"}
    assert set(queues.spec_schema()["properties"]) == fields | {"namespaces"}


def test_the_queues_of_the_guide_keep_to_the_schema():
    blocks = re.findall(
        r"^```yaml\n(apiVersion: gpuyard\.dev/v1\nkind: Queue\n.*?)^```", GUIDE.read_text(), re.M | re.S
    )
    shown = [each for block in blocks for each in yaml.safe_load_all(block)]
    assert len(shown) >= 3
    for each in shown:
        assert set(each["spec"]) <= set(queues.spec_schema()["properties"])
        jsonschema.validate(each["spec"], queues.spec_schema())


def test_a_gpu_node_has_the_fields_that_agents_write():
    spec = gpu_nodes.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    assert set(spec["spec"]["properties"]) == set(gpu_nodes.GpuNodeSpec.__struct_encode_fields__)
    assert set(spec["status"]["properties"]) == set(gpu_nodes.GpuNodeStatus.__struct_encode_fields__)
    gpu = spec["spec"]["properties"]["gpus"]["items"]["properties"]
    assert set(gpu) == set(gpu_nodes.NodeGpu.__struct_encode_fields__)


def test_schemas_are_structural():
    def walk(schema: dict[str, object], inside_choice: bool = False) -> None:
        assert "$ref" not in schema
        if not inside_choice and not schema.get("x-kubernetes-int-or-string"):
            assert "type" in schema, schema
        for part in dict(schema.get("properties", {})).values():  # type: ignore[call-overload]
            walk(part)
        for key in ("items", "additionalProperties"):
            if isinstance(schema.get(key), dict):
                walk(schema[key])  # type: ignore[arg-type]

    for kind in (queues.definition(), gpu_nodes.definition()):
        walk(kind["spec"]["versions"][0]["schema"]["openAPIV3Schema"])


def test_a_choice_that_an_api_server_cannot_make_is_a_mistake_of_ours():
    with pytest.raises(structural.NotStructural):
        structural.structural({"anyOf": [{"type": "object"}, {"type": "string"}]}, {})


def test_a_queue_is_read_as_a_file_would_be():
    spec = {"quota": {"gpu": "1.5", "models": {"H100": 1}, "memory": "2Ti"}, "limit": {"gpu": "unlimited"}}
    found = queues.read_queue(queue("a", **spec, maxTimeLimit="2h", namespaces=["team-a"]))
    assert isinstance(found, Queue)
    assert found.quota.gpu == WHOLE + WHOLE // 2
    assert found.quota.models == (("H100", WHOLE),)
    assert found.quota.memory == 2 << 40
    assert found.limit.gpu == UNLIMITED
    assert (found.max_time_limit, found.users) == (7200.0, ("team-a",))


def test_a_queue_that_hangs_on_nothing_is_left_aside_and_told_and_the_rest_stands():
    tree = queues.tree_of(
        [
            queue("a", parent="above"),
            queue("above"),
            queue("lost", parent="nobody"),
            queue("x", parent="y"),
            queue("y", parent="x"),
            queue("odd", quota={"gpu": "many"}),
            queue("below", parent="lost"),
        ]
    )
    assert [each.name for each in tree.queues] == ["a", "above"]
    assert dict(tree.namespaces) == {"a": frozenset()}
    assert tree.wrong["lost"] == "its parent nobody does not exist"
    assert tree.wrong["below"] == "nobody, above it, does not exist"
    assert "cycle" in tree.wrong["x"]
    assert "must be a number of GPUs" in tree.wrong["odd"]


def test_a_namespace_that_several_queues_name_has_no_queue_by_itself():
    tree = queues.tree_of([queue("a", namespaces=["n", "m"]), queue("b", namespaces=["n"])])
    assert tree.by_namespace == {"m": "a"}


@pytest.mark.parametrize(("name", "role"), ROLES, ids=lambda each: each if isinstance(each, str) else each["kind"])
def test_no_account_of_ours_has_a_wildcard_or_reads_secrets(name: str, role: dict):
    for rule in role["rules"]:
        said = [*rule.get("apiGroups", ()), *rule.get("resources", ()), *rule["verbs"]]
        assert not any("*" in word for word in said)
        assert "secrets" not in said
        assert not {"impersonate", "escalate", "bind"} & set(said)


WRITES = {
    "pods": {"get", "delete"},
    "pods/binding": {"create"},
    "pods/status": {"patch"},
    "pods/eviction": {"create"},
    "persistentvolumeclaims": {"patch"},
    "persistentvolumes": {"patch"},
    "events.events.k8s.io": {"create"},
    "queues/status.gpuyard.dev": {"patch"},
    "tokenreviews.authentication.k8s.io": {"create"},
    "subjectaccessreviews.authorization.k8s.io": {"create"},
    "leases.coordination.k8s.io": {"get", "create", "update"},
    "configmaps": {"get", "create", "update"},
}
"""What the scheduler does beside following; the tests on a real API server run with these rights and no others."""


def granted(name: str) -> dict[str, set[str]]:
    """Verbs by resource, over all roles of one file."""
    found: dict[str, set[str]] = {}
    for rule in [rule for file, role in ROLES if file == name for rule in role["rules"]]:
        for resource in [f"{one}.{group}".rstrip(".") for group in rule["apiGroups"] for one in rule["resources"]]:
            found.setdefault(resource, set()).update(rule["verbs"])
    return found


def test_the_scheduler_may_follow_what_it_follows_write_what_it_writes_and_nothing_else():
    """Kinds are those of the code, so that one that is followed no more loses its right."""
    wanted = {resource: set(verbs) for resource, verbs in WRITES.items()}
    suspended = {"Job.batch", "JobSet.jobset.x-k8s.io", "RayCluster.ray.io", *KUBEFLOW}
    followed = [plural(kind) for kind in (*kinds.SHAPES, following.DEVICE_CLAIM)]
    always = re.findall(r"ObjectKind\(\"/apis?/([^\"]+)\"", inspect.getsource(following))
    followed += [_resource(path) for path in always]
    for resource in followed:
        wanted.setdefault(resource, set()).update(("list", "watch"))
    for kind in suspended:
        wanted[plural(kind)].update(("get", "patch"))
    assert granted("scheduler.yaml") == wanted


def plural(kind: str) -> str:
    """`PodGroup.scheduling.k8s.io` → `podgroups.scheduling.k8s.io`."""
    name, _, group = kind.partition(".")
    return f"{name.lower()}s.{group}"


def _resource(path: str) -> str:
    """`policy/v1/poddisruptionbudgets` → `poddisruptionbudgets.policy`; of the core there is no group."""
    *group, _version, plural = path.split("/")
    return ".".join((plural, *group))


def test_the_schedulers_account_changes_no_node():
    for role in [role for name, role in ROLES if name in ("scheduler.yaml", "agent.yaml", "tenants.yaml")]:
        for rule in role["rules"]:
            if any(resource.startswith("nodes") for resource in rule["resources"]):
                assert set(rule["verbs"]) <= {"get", "list", "watch"}


def test_whatever_the_scheduler_reads_back_as_its_own_is_guarded():
    policy = next(each for each in manifests.documents("policies.yaml") if each["metadata"]["name"] == "gpuyard-marks")
    (kept,) = (each["expression"] for each in policy["spec"]["variables"] if each["name"] == "kept")
    assert set(re.findall("'([^']+)'", kept)) == set(SCHEDULERS_OWN)


def test_what_an_agent_writes_is_read_back():
    seen = gpu_nodes.GpuNodeObject(spec=gpu_nodes.GpuNodeSpec(gpus=[gpu_nodes.NodeGpu(uuid="GPU-1", memory=80 << 30)]))
    assert msgspec.json.decode(msgspec.json.encode(seen), type=gpu_nodes.GpuNodeObject) == seen
