"""The baseline of `yard demo`, and the work it is measured on."""

from __future__ import annotations

from gpuyard import files
from gpuyard.cli.learning import demo_summary, demo_work, fifo
from gpuyard.cli.learning.fifo import FifoNode, Ran

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


def test_a_summary_of_one_job():
    job = {
        "name": "a", "class": "batch", "gpus": 4, "phase": "succeeded", "submitted": "2026-01-01T00:00:00Z",
        "started": "2026-01-01T00:00:02Z", "ended": "2026-01-01T00:00:04Z",
    }  # fmt: skip
    recorded = demo_summary.as_recorded(job)
    assert recorded is not None
    ours = demo_summary.measured([recorded], [job], 8)
    assert ours.waits["batch"] == [2.0]
    assert ours.utilisation == 0.25
    assert demo_summary.spread([1.0, 2.0, 3.0]) == "2.0 / 3.0 s"
