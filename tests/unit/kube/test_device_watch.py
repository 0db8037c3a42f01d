"""What kubelets tell of the GPUs that pods hold is held against what they were granted, and told once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuyard.kube.objects import GRANTED_GPUS, PodObject
from gpuyard.worlds.kubernetes.acting.device_watch import DeviceWatch
from gpuyard.worlds.kubernetes.cache import Cache
from tests.support.kube.fake_kubelet import pod

GPU = "nvidia.com/gpu"


class Watched:
    """One pod as its kubelet tells of it, and what is said about it."""

    def __init__(self) -> None:
        self.cache = Cache()
        self.watch = DeviceWatch(self.cache)

    def tell(self, granted: str, *containers: dict[str, str] | None, phase: str = "Running", name: str = GPU) -> None:
        """Each container's devices with their health; None: its kubelet tells nothing."""
        document = pod("p", 1, nodeName="n0")
        document["metadata"] |= {
            "namespace": "d",
            "uid": "u",
            "annotations": {GRANTED_GPUS: granted} if granted else {},
        }
        document["status"] = {"phase": phase, "containerStatuses": [_status(each, name) for each in containers]}
        self.cache.pods.put(msgspec.convert(document, PodObject))

    def told(self) -> list[tuple[str, str]]:
        return [(reason, words) for _, reason, words in self.watch.look()]


def _status(held: dict[str, str] | None, name: str) -> dict[str, Any]:
    if held is None:
        return {"name": "c"}
    resources = [{"resourceID": gpu, "health": health} for gpu, health in held.items()]
    return {"name": "c", "allocatedResourcesStatus": [{"name": name, "resources": resources}]}


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_pod_that_holds_what_it_was_granted_is_not_told_of(watched: Watched):
    watched.tell("GPU-b,GPU-a", {"GPU-a": "Healthy"}, {"GPU-b": "Unknown"})
    assert watched.told() == []


def test_a_kubelet_that_tells_nothing_is_not_said_to_have_given_other_gpus(watched: Watched):
    watched.tell("GPU-a", None)
    watched.tell("GPU-a")
    assert watched.told() == []
    watched.tell("GPU-a", {}, phase="Pending")
    assert watched.told() == []


def test_other_gpus_than_were_granted_are_told_once_in_the_agents_words(watched: Watched):
    watched.tell("GPU-a,GPU-b", {"GPU-a": "Healthy", "GPU-c": "Healthy"})
    told = [("OtherGpus", "bound to GPU-a, GPU-b; the kubelet gave GPU-a, GPU-c")]
    assert watched.told() == told
    watched.tell("GPU-a,GPU-b", {"GPU-a": "Healthy", "GPU-c": "Unknown"})
    assert watched.told() == []
    watched.tell("GPU-a,GPU-b", {"GPU-a": "Healthy", "GPU-b": "Healthy"})
    assert watched.told() == []
    watched.tell("GPU-a,GPU-b", {"GPU-a": "Healthy", "GPU-c": "Healthy"})
    assert watched.told() == told


def test_a_pod_that_was_granted_no_gpus_by_name_may_hold_any(watched: Watched):
    watched.tell("", {"GPU-c": "Healthy"})
    assert watched.told() == []


def test_an_unhealthy_gpu_is_told_while_its_pod_runs_and_again_when_it_fails_again(watched: Watched):
    sick = [("UnhealthyGpu", "the kubelet calls GPU-a, which it holds, unhealthy")]
    watched.tell("", {"GPU-a": "Unhealthy", "GPU-b": "Healthy"})
    assert watched.told() == sick
    watched.tell("", {"GPU-a": "Healthy", "GPU-b": "Healthy"})
    assert watched.told() == []
    watched.tell("", {"GPU-a": "Unhealthy", "GPU-b": "Healthy"})
    assert watched.told() == sick
    watched.cache.pods.drop("d/p")
    watched.tell("", {"GPU-a": "Unhealthy"}, phase="Failed")
    assert watched.told() == []


def test_devices_of_other_kinds_are_nobodys_gpus(watched: Watched):
    watched.tell("GPU-a", {"nic-0": "Unhealthy"}, name="example.com/nic")
    assert watched.told() == []


def test_whatever_somebody_wrote_as_granted_is_told_short_and_without_control_characters(watched: Watched):
    watched.tell("\x1b[31mGPU\n" + "x" * 5000 + "," + ",".join(f"g{i}" for i in range(500)), {"GPU-a": "Healthy"})
    ((_, words),) = watched.told()
    assert words.isprintable()
    assert words.startswith(r"bound to \x1b[31mGPU\nxxxx")
    assert words.endswith("g14, 485 more; the kubelet gave GPU-a")
    assert len(words) < 300
