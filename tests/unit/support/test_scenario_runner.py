"""The judges judged: shorthands write out what they say, wrong scenarios are refused, and broken promises are seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuyard.files import parse_snapshot
from gpuyard.model.actions import Evict, Running, Start
from gpuyard.model.answers.outlook import Fragmentation, Outlook
from gpuyard.model.job import Placement
from gpuyard.model.reasons import Code, Explanation, Reason
from gpuyard.model.resources import WHOLE
from gpuyard.model.snapshot import Snapshot
from tests.support.expectations import Result, differences
from tests.support.invariants import restless, violations
from tests.support.scenario import Scenario, ScenarioError, expand, indices, read
from tests.support.telling import told

FITS = Reason(Code.FITS)
EMPTY = Outlook((), (), (), (), Fragmentation(0.0, 64 * WHOLE, 0, (), (), ()), (), 1)


def moment(**document: Any) -> Snapshot:
    scenario = read({"name": "x", "rule": 1, "snapshot": document, "expect": {}}, "x.yaml")
    return parse_snapshot(scenario.text(), "x.yaml", scenario.now)


def started(*placed: tuple[str, list[Placement]], waiting: tuple[str, ...] = ()) -> Outlook:
    """An outlook in which these jobs were started there, by a scheduler without scruples."""
    return replace(
        EMPTY,
        actions=tuple(Start(job, tuple(places), FITS) for job, places in placed),
        running=tuple(Running(job, tuple(places)) for job, places in placed),
        waiting=tuple(Explanation(job, Reason(Code.NOT_ENOUGH_GPUS)) for job in waiting),
    )


def at(node: str, *gpus: int, task: int = 0, group: str = "main") -> Placement:
    return Placement(node, gpus, group, task)


# --- shorthands ----------------------------------------------------------------------------------


def test_ranges_of_gpus_are_counted_out():
    assert indices("0-2+5") == [0, 1, 2, 5]


def test_times_repeats_an_entry_with_its_number():
    nodes = expand({"nodes": [{"name": "n", "times": 2, "gpus": 8, "domains": {"rack": "r{i}"}}]})["nodes"]
    assert nodes == [
        {"name": "n0", "gpus": 8, "domains": {"rack": "r0"}},
        {"name": "n1", "gpus": 8, "domains": {"rack": "r1"}},
    ]


def test_at_counts_tasks_and_gpus():
    job = expand({"jobs": [{"name": "j", "at": ["n0:0-1", "n1:2+3"]}]})["jobs"][0]
    assert (job["tasks"], job["gpus"]) == (2, 2)
    assert job["placements"] == [{"node": "n0", "gpus": [0, 1]}, {"node": "n1", "gpus": [2, 3]}]


def test_times_are_told_from_now():
    assert expand({"jobs": [{"name": "j", "submitted": "-1h"}]})["jobs"][0]["submitted"] == "2025-12-31T23:00:00Z"


# --- wrong scenarios -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "x", "rule": 1, "snapshot": {}, "expect": {}, "expects": {}},
        {"name": "x", "rule": 1, "snapshot": {}},
        {"name": "x", "rule": 1, "snapshot": {"busy": {"n0": "0"}, "queues": []}, "expect": {}},
    ],
)
def test_a_wrong_entry_is_refused(entry: dict[str, Any]):
    with pytest.raises(ScenarioError):
        read(entry, "x.yaml")


@pytest.mark.parametrize(
    "expect",
    [
        {"start": ["j"]},
        {"started": ["nobody"]},
        {"started": {"j": {"node": "n0"}}},
        {"started": {"j": {"nodes": ["n9"]}}},
        {"waiting": {"w": {"reason": "Fragmented"}}},
        {"waiting": {"w": {"ladder": {"luck": 1}}}},
        {"waiting": {"w": {"suggests": ["prayer"]}}},
    ],
)
def test_a_wrong_expectation_is_an_error_of_the_scenario(expect: dict[str, Any]):
    snapshot = moment(nodes=[{"name": "n0", "gpus": 1}], jobs=[{"name": "j", "gpus": 1}, {"name": "w", "gpus": 1}])
    outlook = started(("j", [at("n0", 0)]), waiting=("w",))
    with pytest.raises(ScenarioError):
        differences(expect, Result(snapshot, outlook))


def test_a_difference_is_one_sentence():
    snapshot = moment(nodes=[{"name": "n0", "gpus": 2}], jobs=[{"name": "j", "gpus": 1}])
    result = Result(snapshot, started(("j", [at("n0", 0)])))
    assert differences({"started": {"j": {"gpus_on": {"n0": [1]}}}}, result) == [
        "j, started: `gpus_on` should be {'n0': [1]}, is {'n0': [0]}; tasks: j/main/0 on n0:0"
    ]


# --- broken promises -----------------------------------------------------------------------------

RACKS = [{"name": f"n{i}", "gpus": 2, "domains": {"rack": f"r{i}"}} for i in range(2)]

BROKEN = {
    "over-used": (
        {"nodes": [{"name": "n0", "gpus": 1}], "jobs": [{"name": "a", "gpus": 1}, {"name": "b", "fraction": 0.1}]},
        started(("a", [at("n0", 0)]), ("b", [at("n0", 0)])),
    ),
    "below its minimum": (
        {"nodes": [{"name": "n0", "gpus": 2}], "jobs": [{"name": "a", "tasks": 2, "gpus": 1}]},
        started(("a", [at("n0", 0)]), waiting=("a",)),
    ),
    "is sick": (
        {"nodes": [{"name": "n0", "gpus": 1, "unhealthy": [0]}], "jobs": [{"name": "a", "gpus": 1}]},
        started(("a", [at("n0", 0)])),
    ),
    "requires one rack": (
        {
            "topology": ["rack"],
            "nodes": RACKS,
            "jobs": [{"name": "a", "tasks": 2, "gpus": 2, "topology": {"required": "rack"}}],
        },
        started(("a", [at("n0", 0, 1), at("n1", 0, 1, task=1)])),
    ),
    "passes its limit": (
        {
            "nodes": [{"name": "n0", "gpus": 2}],
            "queues": [{"name": "q", "limit": 1}],
            "jobs": [{"name": "a", "queue": "q", "gpus": 2}],
        },
        started(("a", [at("n0", 0, 1)])),
    ),
    "pass queue q's quota": (
        {
            "nodes": [{"name": "n0", "gpus": 2}],
            "queues": [{"name": "q", "quota": 1}],
            "jobs": [{"name": "a", "queue": "q", "gpus": 2, "preemptible": False}],
        },
        started(("a", [at("n0", 0, 1)])),
    ),
    "is not tolerated": (
        {
            "nodes": [{"name": "n0", "gpus": 1, "taints": [{"key": "x", "effect": "NoSchedule"}]}],
            "jobs": [{"name": "a", "gpus": 1}],
        },
        started(("a", [at("n0", 0)])),
    ),
    "not listed as waiting": (
        {"nodes": [{"name": "n0", "gpus": 1}], "jobs": [{"name": "a", "gpus": 2}]},
        EMPTY,
    ),
    "several models": (
        {
            "nodes": [{"name": "n0", "gpus": 1, "model": "T4"}, {"name": "n1", "gpus": 1, "model": "A10"}],
            "jobs": [{"name": "a", "tasks": 2, "gpus": 1}],
        },
        started(("a", [at("n0", 0), at("n1", 0, task=1)])),
    ),
    "not preemptible and was disturbed": (
        {"nodes": [{"name": "n0", "gpus": 1}], "jobs": [{"name": "a", "preemptible": False, "at": "n0:0"}]},
        replace(
            EMPTY,
            actions=(Evict("a", Reason(Code.PREEMPTED)),),
            waiting=(Explanation("a", Reason(Code.NOT_ENOUGH_GPUS)),),
        ),
    ),
}


@pytest.mark.parametrize(("words", "case"), BROKEN.items(), ids=list(BROKEN))
def test_a_broken_promise_is_seen(words: str, case: tuple[dict[str, Any], Outlook]):
    found = violations(moment(**case[0]), case[1])
    assert any(words in sentence for sentence in found), found


def test_a_good_plan_breaks_nothing():
    snapshot = moment(nodes=[{"name": "n0", "gpus": 2}], jobs=[{"name": "a", "tasks": 2, "gpus": 1}])
    assert violations(snapshot, started(("a", [at("n0", 0), at("n0", 1, task=1)]))) == []


def test_a_plan_that_does_not_rest_is_seen():
    snapshot = moment(nodes=[{"name": "n0", "gpus": 1}], jobs=[{"name": "a", "gpus": 1}])
    outlook = started(("a", [at("n0", 0)]))
    assert len(restless(snapshot, outlook, lambda _: outlook)) == 1
    assert restless(snapshot, outlook, lambda _: EMPTY) == []


def test_an_outlook_is_told_in_words():
    assert "start a on n0:0" in told(started(("a", [at("n0", 0)]), waiting=("b",)))


def test_the_same_moment_can_be_written_backwards():
    scenario = Scenario("x", (1,), expand({"jobs": [{"name": "a"}, {"name": "b"}]}), {}, None, "x.yaml")
    assert scenario.text(turned=True).index('"b"') < scenario.text(turned=True).index('"a"')
