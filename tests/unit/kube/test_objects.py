"""What an API server may send is read, whatever is left out, null, or new."""

from __future__ import annotations

import msgspec
import pytest

from gpuyard.kube import objects, owners

KINDS = [
    kind
    for room in (objects, owners)
    for name, kind in vars(room).items()
    if name.endswith("Object") and issubclass(kind, objects.Projection)
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"metadata": {"name": "x", "creationTimestamp": null, "labels": null, "managedFields": [{"a": 1}]}}',
        '{"metadata": {}, "spec": {"whatIsNew": {"deep": [1]}}, "status": {"whatIsNew": true}, "data": 1}',
    ],
)
def test_a_kind_is_read_from_little_and_past_what_it_does_not_know(kind: type, text: str):
    assert isinstance(msgspec.json.decode(text, type=kind), kind)


def test_a_pod_keeps_the_names_of_the_api():
    pod = msgspec.json.decode(
        b"""{"metadata": {"name": "a", "namespace": "n", "creationTimestamp": "2026-01-01T00:00:01Z",
             "ownerReferences": [{"kind": "Other", "name": "o"}, {"kind": "Job", "name": "j", "controller": true}]},
             "spec": {"nodeSelector": {"k": "v"}, "containers": [{"name": "c",
               "resources": {"limits": {"nvidia.com/gpu": "2"}}, "ports": [{"hostPort": 80, "hostIP": "10.0.0.1"}]}],
               "schedulingGroup": {"podGroupName": "g"}},
             "status": {"containerStatuses": [{"allocatedResourcesStatus":
               [{"name": "nvidia.com/gpu", "resources": [{"resourceID": "GPU-1", "health": "Healthy"}]}]}]}}""",
        type=objects.PodObject,
    )
    assert pod.metadata.key == "n/a"
    assert pod.metadata.controller is not None
    assert pod.metadata.controller.kind == "Job"
    assert objects.moment(pod.metadata.creation_timestamp) == 1767225601.0
    assert pod.spec.node_selector == {"k": "v"}
    assert pod.spec.containers is not None
    assert pod.spec.containers[0].ports == [objects.ContainerPort(host_port=80, host_ip="10.0.0.1")]
    assert pod.spec.scheduling_group == objects.SchedulingGroup("g")
    assert pod.status.container_statuses is not None
    devices = pod.status.container_statuses[0].allocated_resources_status
    assert devices == [objects.DeviceStatus("nvidia.com/gpu", [objects.DeviceHealth("GPU-1", "Healthy")])]


@pytest.mark.parametrize("text", [None, "", "yesterday", "0000-01-01T00:00:00Z", "2026-13-01T00:00:00Z"])
def test_a_time_that_is_none_is_the_epoch(text: str | None):
    assert objects.moment(text) == 0.0
