"""The baseline of `yard demo`, and the work it is measured on."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpuyard import files
from gpuyard.cli.learning import demo_summary, demo_work, fifo
from gpuyard.cli.learning.fifo import FifoNode, Ran
from gpuyard.files import parse_snapshot, read_submission
from gpuyard.model.policy import DefragRule
from gpuyard.runtime.clock import SystemClock
from gpuyard.runtime.simulating import simulation
from gpuyard.worlds.sim.traces.reading import Source
from gpuyard.worlds.sim.traces.trace import Arrival, Trace, Window, by_time

TWO = [FifoNode("H100", 8), FifoNode("A100", 8)]


def test_nobody_overtakes():
    jobs = [Ran("a", 0, 1, 8, 10), Ran("b", 1, 2, 8, 5), Ran("c", 2, 1, 8, 1)]
    waits, end = fifo.replay(jobs, TWO)
    assert waits == {"a": 0, "b": 9, "c": 13}
    assert end == 16


def test_models_are_kept_and_what_fits_nowhere_is_left_out():
    waits, _ = fifo.replay(
        [Ran("a", 0, 1, 8, 4, ("A100",)), Ran("b", 0, 1, 1, 1, ("A100",)), Ran("x", 1, 1, 9, 1)], TWO
    )
    assert waits == {"a": 0, "b": 4}


def test_the_demo_s_work_is_what_it_says_it_is():
    snapshot, faults = files.parse_fleet(demo_work.fleet_text(), "fleet", 0.0)
    assert (len(snapshot.nodes), sum(len(node.gpus) for node in snapshot.nodes)) == (32, 256)
    assert len({node.model for node in snapshot.nodes}) == 3
    assert [fault.node for fault in faults] == ["r1-n2"]
    arrivals = demo_work.arrivals()
    assert 180 <= len(arrivals) <= 220
    assert {arrival.job["class"] for arrival in arrivals} == {"training", "batch", "interactive", "inference"}
    assert {arrival.job["queue"] for arrival in arrivals} == {"research", "vision", "serve"}
    assert max(arrival.at for arrival in arrivals) <= demo_work.LAST_ARRIVAL_S
    for arrival in arrivals:
        files.read_submission(arrival.job, 0.0)


def job(name: str, submitted: int, *starts: tuple[int, int], phase: str = "succeeded", gpus: int = 4) -> dict[str, Any]:
    history = [{"started": moment(began), "ended": moment(ended), "tasks": [{"node": "n0"}]} for began, ended in starts]
    asked = {"name": name, "class": "batch", "gpus": gpus, "phase": phase}
    return asked | {"submitted": moment(submitted), "history": history}


def moment(second: int) -> str:
    return f"2026-01-01T00:00:{second:02d}Z"


NODES = [{"name": "n0", "model": demo_work.H100, "gpus": 8}]


def test_a_summary_of_one_job():
    record = demo_summary.as_recorded(job("a", 0, (2, 4)))
    assert record is not None
    ours = demo_summary.measured([record], 8)
    assert (ours.waits["batch"], ours.utilisation, ours.again, ours.lost_gpu_s) == ([2.0], 0.25, 0, 0.0)
    assert demo_summary.spread([1.0, 2.0, 3.0]) == "2.0 / 3.0 s"


def test_every_wait_counts_work_done_twice_is_no_use_and_fifo_replays_what_the_work_takes():
    """It ran 3 s, was stopped, waited 2 s and ran its 4 s: 3 s of waiting, 4 s of use, 12 GPU-seconds done twice."""
    found = [demo_summary.as_recorded(each, NODES) for each in (job("a", 0, (1, 4), (6, 10)), job("b", 0, (0, 10)))]
    records = [record for record in found if record is not None]
    ours, theirs = demo_summary.measured(records, 8), demo_summary.baseline(records, NODES, 8)
    assert ours.waits["batch"] == [3.0, 0.0]
    assert ours.utilisation == (4 * 4 + 4 * 10) / 80
    assert (ours.again, ours.lost_gpu_s) == (1, 12.0)
    assert ours.lost_money > 0
    assert theirs.waits["batch"] == [0.0, 0.0]
    assert (theirs.seconds, theirs.again, theirs.lost_gpu_s) == (10.0, 0, 0.0)


def test_time_of_a_job_that_failed_is_of_no_use_in_the_end():
    record = demo_summary.as_recorded(job("a", 0, (0, 4), phase="failed"))
    assert record is not None
    assert demo_summary.measured([record], 4).utilisation == 0


def test_what_made_room_is_told_and_what_was_only_proposed():
    kinds = ["evicted", "moved", "evicted", "started"]
    told: list[dict[str, Any]] = [*({"kind": kind} for kind in kinds), {"kind": "proposed", "moves": 3}]
    room = demo_summary.MadeRoom().after(told).after([{"kind": "proposed", "moves": 1}])
    done, tidied = demo_summary.stories([], [], room)
    assert "evictions 2, moves 1, none of them in a job's first 2 s" in done
    assert tidied.endswith("(policy `defragment`): 4.")


class DemoTrace(Source):
    """The demo's own work, in virtual time."""

    def trace(self, seed: int, capacity: int) -> Trace:
        found = []
        for each in demo_work.arrivals():
            job = replace(read_submission(each.job, 0.0).job, submitted=each.at, run=None)
            if each.job["name"] != demo_work.OVER_LIMIT:
                found.append(Arrival(each.at, job, float(each.job["run"]["command"][1]), 0.3))
        return Trace("demo", by_time(found))


@pytest.mark.slow
def test_leaving_alone_who_has_just_begun_halves_what_is_disturbed_in_the_demo_and_nobody_waits_longer_for_it():
    document = {key: value for key, value in json.loads(demo_work.fleet_text()).items() if key != "faults"}
    fleet = parse_snapshot(json.dumps(document), "demo", 0.0)
    setting = simulation.Setting(DemoTrace("demo", "", (), None, Window()), fleet)
    bare, scaled = (
        simulation.run(setting, ("", policy), 0, SystemClock()).figures
        for policy in (fleet.policy, replace(demo_work.scaled(fleet.policy), defragment=DefragRule.OFF))
    )
    assert scaled.finished == bare.finished == 197
    assert 2 * (scaled.preemptions + scaled.moves) <= bare.preemptions + bare.moves
    assert scaled.wait_p95_s <= bare.wait_p95_s
    assert scaled.jct_mean_s <= bare.jct_mean_s
