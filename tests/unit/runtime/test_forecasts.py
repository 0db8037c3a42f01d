"""What a preview tells: sizes that do not divide a node, and prices only where they are known."""

from __future__ import annotations

from typing import Any

import pytest

from gpuyard.files import parse_job, parse_snapshot
from gpuyard.runtime.serving.call_limits import Patience
from gpuyard.runtime.serving.prospects import forecast

FLEET = """
apiVersion: gpuyard.dev/v1
kind: Snapshot
pools: [{name: paid, price: 5840}, {name: own}]
nodes:
  - {name: n0, gpus: 8, pool: paid, model: H100-SXM5-80GB}
  - {name: n1, gpus: 8, pool: paid, model: H100-SXM5-80GB}
  - {name: m0, gpus: 8, pool: own, model: V100-SXM2-32GB}
jobs:
  - {name: there, gpus: 4, preemptible: false, placements: [{node: n0, gpus: [0, 1, 2, 3]}]}
  - {name: here, gpus: 6, preemptible: false, placements: [{node: m0, gpus: [0, 1, 2, 3, 4, 5]}]}
"""


def preview(text: str) -> dict[str, Any]:
    now = 1_767_225_600.0
    snapshot = parse_snapshot(FLEET, "here", now)
    return forecast.previews(snapshot, [parse_job(text, "job", now)], Patience(lambda: 0.0, 10.0))[0]


def test_a_size_that_does_not_divide_a_node_is_told_what_its_neighbours_would_find():
    told = preview("{name: odd, gpus: 5}")
    assert told["verdict"] == "starts"
    assert told["sizing"]["places"] == [
        {"gpus": 4, "now": 3, "empty": 6},
        {"gpus": 5, "now": 1, "empty": 3},
        {"gpus": 8, "now": 1, "empty": 3},
    ]
    assert told["sizing"]["message"] == (
        "5 GPUs leave 3 GPUs of a node of 8: places now 3 for 4, 1 for 5, 1 for 8; "
        "on an empty fleet 6 for 4, 3 for 5, 3 for 8"
    )


def test_seven_gpus_are_told_of_four_and_eight_though_the_job_waits():
    told = preview("{name: odd, gpus: 7, tasks: 2}")
    assert told["verdict"] == "waits"
    assert [each["gpus"] for each in told["sizing"]["places"]] == [4, 7, 8]


def test_three_gpus_are_told_of_the_very_next_size_that_divides_a_node():
    assert [each["gpus"] for each in preview("{name: odd, gpus: 3}")["sizing"]["places"]] == [2, 3, 4]


@pytest.mark.parametrize("asked", ["gpus: 1", "gpus: 2", "gpus: 4", "gpus: 8", "fraction: 0.3", "cpu: 4"])
def test_a_size_that_divides_a_node_is_told_nothing(asked: str):
    assert "sizing" not in preview(f"{{name: even, {asked}}}")


def test_a_price_is_told_where_every_place_has_one():
    assert preview("{name: a, gpus: 8, models: [H100]}")["price_per_hour"] == 8.0
    assert preview("{name: b, gpus: 8, tasks: 2, models: [H100]}")["price_per_hour"] == 16.0  # it waits


@pytest.mark.parametrize("asked", ["gpus: 2, models: [V100]", "gpus: 8, tasks: 3", "cpu: 1"])
def test_no_price_is_told_where_a_place_has_none(asked: str):
    assert "price_per_hour" not in preview(f"{{name: a, {asked}}}")
