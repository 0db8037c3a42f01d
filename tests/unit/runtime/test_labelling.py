"""What agents found as labels and a condition of a Node, and which labels are somebody else's."""

from __future__ import annotations

import asyncio

import pytest

from gpuyard.kube.definitions.gpu_nodes import GpuNodeObject, GpuNodeSpec, GpuNodeStatus, NodeGpu, NodeGpuHealth
from gpuyard.kube.objects import Condition
from gpuyard.model.errors import Refused
from gpuyard.model.node import Gpu, Health, Node
from gpuyard.runtime.clock import SystemClock, SystemDice
from gpuyard.runtime.clustered.labelling import LabelWish, condition_of, label_nodes, labels_of, owned_by_others
from gpuyard.worlds.kubernetes.nodes import with_agent
from tests.support.kube.fake_server import FakeServer, status

READY = Condition("Ready", "True", "Seen")


def found(*health: str, **spec: object) -> GpuNodeObject:
    gpus = [
        NodeGpu(
            uuid=f"GPU-{n}", index=n, model="H100-80GB-HBM3", memory=80 << 30, compute_capability="9.0", island=n // 2
        )
        for n in range(len(health))
    ]
    told = [NodeGpuHealth(uuid=f"GPU-{n}", health=word, why="why") for n, word in enumerate(health)]  # type: ignore[arg-type]
    return GpuNodeObject(
        spec=GpuNodeSpec(gpus=gpus, driver="570.133.20", **spec),  # type: ignore[arg-type]
        status=GpuNodeStatus(gpus=told, conditions=[READY]),
    )


def test_labels_are_those_of_the_vendors_discovery():
    labels = labels_of(found("healthy", "healthy"))
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert labels["nvidia.com/gpu.memory"] == "81920"
    assert (labels["nvidia.com/gpu.compute.major"], labels["nvidia.com/gpu.compute.minor"]) == ("9", "0")
    assert set(labels_of(found("healthy"), "example.com/")) == {key.replace("nvidia", "example") for key in labels}


def test_a_label_is_always_one_that_an_api_server_takes():
    odd = GpuNodeObject(spec=GpuNodeSpec(gpus=[NodeGpu(uuid="u", model="Ünïted GPU (rev. 2)" * 9)], driver="-_."))
    for value in labels_of(odd).values():
        assert 0 < len(value) <= 63
        assert value[0].isalnum()
        assert value[-1].isalnum()


def test_a_label_that_another_has_set_is_theirs():
    node = {
        "metadata": {
            "managedFields": [
                {
                    "manager": "gfd",
                    "operation": "Update",
                    "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:a/b": {}}}},
                },
                {
                    "manager": "gpuyard-nodes",
                    "operation": "Apply",
                    "fieldsV1": {"f:metadata": {"f:labels": {"f:c": {}}}},
                },
            ]
        }
    }
    assert owned_by_others(node) == {"a/b"}


def test_the_condition_names_who_is_unwell_and_never_says_healthy_of_what_is_not_known():
    assert condition_of(found("healthy"))["status"] == "True"
    sick = condition_of(found("healthy", "sick"))
    assert (sick["status"], sick["message"]) == ("False", "GPU-1 is sick: why")
    assert condition_of(found("healthy", "unknown"))["status"] == "Unknown"
    assert condition_of(GpuNodeObject())["status"] == "Unknown"


def test_an_agent_names_the_very_devices_and_what_it_does_not_know_is_used_last():
    node = Node("n0", gpus=tuple(map(Gpu, range(3))))
    told = with_agent(node, found("healthy", "sick", "unknown")).gpus
    assert [gpu.uuid for gpu in told] == ["GPU-0", "GPU-1", "GPU-2"]
    assert [gpu.health for gpu in told] == [Health.HEALTHY, Health.SICK, Health.SUSPECT]
    assert [gpu.island for gpu in told] == [0, 0, 1]


def test_devices_that_the_kubelet_holds_back_stay_out_though_the_agent_vouches_for_them():
    node = Node("n0", gpus=(Gpu(0), Gpu(1, health=Health.SICK)))
    assert [gpu.sick for gpu in with_agent(node, found("healthy", "healthy")).gpus] == [False, True]
    assert [gpu.sick for gpu in with_agent(node, found("sick", "healthy")).gpus] == [True, False]


def test_an_agent_that_counts_otherwise_than_the_kubelet_is_not_believed():
    node = Node("n0", gpus=(Gpu(0), Gpu(1)))
    assert with_agent(node, found("healthy")) == node


def labelling(code: int) -> list[str]:
    """What is said where the server answers so, until something is."""
    said: list[str] = []

    async def live() -> None:
        over = asyncio.Event()

        def say(words: str) -> None:
            said.append(words)
            over.set()

        async with asyncio.timeout(60), FakeServer(status(code, "no")) as fake:
            await label_nodes(fake.access, LabelWish(), SystemClock(), SystemDice(), say, over)

    asyncio.run(live())
    return said


def test_why_nodes_are_not_followed_is_told():
    assert labelling(403) == ["Trouble: watching /apis/gpuyard.dev/v1/gpunodes: no"]


def test_whom_the_server_does_not_know_is_told_so_and_it_ends():
    with pytest.raises(Refused, match=r"the cluster could not be read: the API server .* does not know who you are"):
        labelling(401)
