"""Who is told that new nodes would help: whoever would start on them, and nobody else; in the words of `yard why`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuyard.brain import foresee, new_nodes
from gpuyard.files import parse_snapshot

NODE = {"name": "n0", "gpus": 4, "cpu": 32, "memory": "128Gi"}


def told(jobs: list[dict[str, Any]], nodes: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    document = {"apiVersion": "gpuyard.dev/v1", "kind": "Snapshot", "jobs": jobs, **more}
    document["nodes"] = [NODE] if nodes is None else nodes
    snapshot = parse_snapshot(json.dumps(document), "here", 0.0)
    found = new_nodes.told(snapshot)
    for name, each in found.items():
        explanation = foresee.why(snapshot, name)
        assert explanation is not None
        assert each.reason == explanation.reason
    return found


RUNS = {"name": "runs", "tasks": 1, "gpus": 3, "placements": [{"node": "n0", "gpus": [0, 1, 2]}]}


@pytest.mark.parametrize(
    ("job", "helps"),
    [
        ({"gpus": 2}, True),
        ({"tasks": 3, "gpus": 4}, True),
        ({"gpus": 5}, False),
        ({"gpus": 1, "cpu": 64}, False),
        ({"gpus": 2, "held": True}, False),
        ({"tasks": 2, "gpus": 4, "topology": {"required": "rack"}}, True),
        ({"gpus": 2, "node_selector": {"disk": "fast"}}, True),
        ({"gpus": 2, "models": ["H100-SXM5-80GB"]}, True),
        ({"gpus": 2, "models": ["A100"]}, True),
        ({"mig": "1g.10gb"}, False),
    ],
)
def test_new_nodes_help_whoever_would_start_on_some_like_those_there_are(job: dict[str, Any], helps: bool):
    nodes = [NODE | {"domains": {"rack": "r0"}, "model": "H100-SXM5-80GB"}]
    found = told([RUNS, {"name": "waits", **job}], nodes, topology=["rack"])
    assert found["waits"].new_nodes is helps, found["waits"].reason


def test_who_is_over_the_limit_of_its_queue_is_helped_by_no_node():
    queues = [{"name": "a", "quota": 3, "limit": 3}, {"name": "b"}]
    found = told([RUNS | {"queue": "a"}, {"name": "waits", "gpus": 1, "queue": "a"}], queues=queues)
    assert not found["waits"].new_nodes
    assert found["waits"].reason.code.value == "OverLimit"


def test_a_cluster_without_nodes_may_get_some():
    assert told([{"name": "waits", "gpus": 1}], nodes=[])["waits"].new_nodes


def test_many_alike_are_told_each_in_its_own_name():
    found = told([RUNS, *({"name": f"w{index}", "gpus": 2} for index in range(20))])
    assert len(found) == 20
    assert all(each.new_nodes for each in found.values())


def test_a_node_that_is_closed_or_sick_says_nothing_about_new_ones():
    found = told([{"name": "waits", "gpus": 4}], nodes=[NODE | {"unhealthy": [1], "cordoned": True}])
    assert found["waits"].new_nodes
