"""Which nodes a task could ever use, and how many of it an empty node holds: constraint by constraint."""

from __future__ import annotations

from typing import Any

import pytest

from gpuyard.brain.engine.nodes import requests
from gpuyard.brain.engine.nodes.feasibility import room_when_empty
from gpuyard.brain.engine.nodes.requests import TaskRequest
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.model.job import whole_number
from gpuyard.model.node import Node
from gpuyard.model.resources import WHOLE
from tests.support.moments import moment

NODE = "name: n0, gpus: 4, cpu: 16, memory: 64Gi, model: A100-SXM4-40GB"
SLICED = "name: n0, gpus: 3, model: A100-SXM4-40GB, mig: {0: [3g.20gb, 3g.20gb], 1: [2g.10gb, 1g.5gb, 1g.5gb]}"


def pair(node: str, job: str) -> tuple[TaskRequest, Node]:
    fleet = Fleet(moment(f"{{nodes: [{{{node}}}], jobs: [{{name: j, {job}}}]}}"))
    return fleet.jobs["j"].requests[0], fleet.columns.nodes[0]


@pytest.mark.parametrize(
    ("node", "job", "room"),
    [
        (NODE, "gpus: 1", 4),
        (NODE, "gpus: 3", 1),
        (NODE, "gpus: 5", 0),
        (NODE + ", unhealthy: [0]", "gpus: 1", 3),
        (NODE, "fraction: 0.3", 12),
        (NODE + ", unhealthy: [0]", "fraction: 0.5", 6),
        (NODE, "gpu_memory: 10Gi", 16),
        (NODE, "gpu_memory: 40Gi", 4),
        (NODE, "gpu_memory: 41Gi", 0),
        (NODE, "gpus: 1, cpu: 5", 3),
        (NODE, "gpus: 1, memory: 30Gi", 2),
        (NODE, "fraction: 0.5, cpu: 3, memory: 16Gi", 4),
        (NODE, "cpu: 3", 5),
        (NODE, "memory: 9Gi", 7),
        (SLICED, "mig: 3g.20gb", 2),
        (SLICED, "mig: {1g.5gb: 2}", 1),
        (SLICED, "mig: {1g.5gb: 1, 2g.10gb: 1}", 1),
        (SLICED, "mig: {3g.20gb: 1, 2g.10gb: 2}", 0),
        (SLICED + ", unhealthy: [1]", "mig: 1g.5gb", 0),
        (SLICED, "gpus: 1", 1),
        (SLICED, "fraction: 0.5", 2),
    ],
)
def test_an_empty_node_holds_so_many(node: str, job: str, room: int):
    request, there = pair(node, job)
    assert room_when_empty(request, there) == room
    shaped = requests.has_shape(request, pair(node.partition(", unhealthy")[0], job)[1])
    assert shaped or room == 0


@pytest.mark.parametrize(
    ("node", "job", "fits"),
    [
        (NODE, "gpus: 4", True),
        (NODE, "gpus: 5", False),
        (NODE + ", unhealthy: [0, 1]", "gpus: 4", True),  # well again, it would have them
        (NODE, "gpu_memory: 40Gi", True),
        (NODE, "gpu_memory: 41Gi", False),
        (SLICED, "gpus: 1", True),
        (SLICED, "gpus: 2", False),
        (SLICED, "mig: {1g.5gb: 2}", True),
        (SLICED, "mig: {1g.5gb: 3}", False),
        (SLICED, "mig: {3g.20gb: 1, 2g.10gb: 2}", False),
        ("name: n0, gpus: 1, model: A100-SXM4-40GB, mig: {0: [3g.20gb]}", "fraction: 0.5", False),
        ("name: n0, cpu: 4", "fraction: 0.5", False),
        ("name: n0, cpu: 4", "cpu: 4", True),
    ],
)
def test_a_node_has_the_shape_or_not(node: str, job: str, fits: bool):
    request, there = pair(node, job)
    assert requests.has_shape(request, there) is fits


@pytest.mark.parametrize(
    ("job", "fits"),
    [("cpu: 16", True), ("cpu: 16.001", False), ("memory: 64Gi", True), ("cpu: 1, memory: 65Gi", False)],
)
def test_cores_and_memory_suffice_or_not(job: str, fits: bool):
    assert requests.has_cpu(*pair(NODE, job)) is fits


@pytest.mark.parametrize(("job", "share"), [("fraction: 0.25", 0.25), ("gpu_memory: 10Gi", 0.25), ("gpus: 2", 0)])
def test_a_part_of_a_device_is_its_share_of_the_memory(job: str, share: float):
    request, node = pair(NODE, job)
    assert request.share_on(node) == share * WHOLE
    assert request.cost_on(node) == (share or 2) * WHOLE


@pytest.mark.parametrize(
    ("job", "fits"),
    [
        ("gpus: 1, models: [A100]", True),
        ("gpus: 1, models: [H100, A100]", True),
        ("gpus: 1, models: [H100]", False),
        ("cpu: 1, models: [H100]", True),  # no card, no model
        ("gpus: 1, min_gpu_memory: 40Gi", True),
        ("gpus: 1, min_gpu_memory: 41Gi", False),
        ("gpus: 1, min_architecture: ampere", True),
        ("gpus: 1, min_architecture: volta", True),
        ("gpus: 1, min_architecture: hopper", False),
        ("gpus: 1, architecture: ampere", True),
        ("gpus: 1, architecture: volta", False),
        ("gpus: 1, architecture: hopper", False),
        ("gpus: 1, architecture: ampere, min_architecture: hopper", False),
    ],
)
def test_the_card_suits_or_not(job: str, fits: bool):
    assert requests.has_model(*pair(NODE, job)) is fits


@pytest.mark.parametrize(
    ("term", "fits"),
    [
        ({"operator": "In", "values": ["ssd", "nvme"]}, True),
        ({"operator": "In", "values": ["hdd"]}, False),
        ({"operator": "NotIn", "values": ["hdd"]}, True),
        ({"operator": "NotIn", "values": ["ssd"]}, False),
        ({"operator": "Exists"}, True),
        ({"key": "other", "operator": "Exists"}, False),
        ({"operator": "DoesNotExist"}, False),
        ({"key": "other", "operator": "DoesNotExist"}, True),
        ({"key": "bays", "operator": "Gt", "values": ["7"]}, True),
        ({"key": "bays", "operator": "Gt", "values": ["8"]}, False),
        ({"key": "bays", "operator": "Lt", "values": ["9"]}, True),
        ({"key": "bays", "operator": "Lt", "values": ["8"]}, False),
        ({"key": "disk", "operator": "Gt", "values": ["0"]}, False),
        ({"key": "other", "operator": "Lt", "values": ["9"]}, False),
    ],
)
def test_an_expression_of_affinity_holds_or_not(term: dict[str, Any], fits: bool):
    node = NODE + ', labels: {disk: ssd, bays: "8"}'
    assert (
        requests.has_labels(*pair(node, f"gpus: 1, affinity: [{{matchExpressions: [{ {'key': 'disk', **term} }]}}]"))
        is fits
    )


def test_a_number_is_as_long_as_64_bits_whoever_writes_thousands_of_digits():
    assert [whole_number(text) for text in ("0" * 5000 + "7", "-9223372036854775808", "9223372036854775807")] == [
        7, -(1 << 63), (1 << 63) - 1,
    ]  # fmt: skip
    assert [whole_number(text) for text in ("9" * 5000, "9223372036854775808", "-", "", "٣")] == [None] * 5


@pytest.mark.parametrize(
    ("toleration", "borne"),
    [
        ("{key: team, value: x}", True),
        ("{key: team, value: y}", False),
        ("{key: other, value: x}", False),
        ("{key: team, operator: Exists}", True),
        ("{key: other, operator: Exists}", False),
        ("{operator: Exists}", True),
        ("{key: team, value: x, effect: NoExecute}", False),
        ("{key: team, value: x, effect: EFFECT}", True),
    ],
)
@pytest.mark.parametrize("effect", ["NoSchedule", "PreferNoSchedule"])
def test_a_taint_is_borne_or_not_and_a_soft_one_is_only_disliked(toleration: str, borne: bool, effect: str):
    node = NODE + f", taints: [{{key: team, value: x, effect: {effect}}}]"
    request, there = pair(node, f"gpus: 1, tolerations: [{toleration.replace('EFFECT', effect)}]")
    soft = effect == "PreferNoSchedule"
    assert requests.bears_taints(request, there) is (soft or borne)
    assert requests.dislikes(request, there) is (soft and not borne)
