"""Small traces end to end through the one loop; every placement file is checked by somebody who does not know us."""

from __future__ import annotations

import csv
import random
from dataclasses import fields, replace
from pathlib import Path

import pytest

from gpuyard.files.reading import presets
from gpuyard.model.policy import DefragRule, OrderBy, Policy, Weights
from gpuyard.runtime.simulating import simulation
from gpuyard.runtime.simulating.simulation import Setting, SimulatedRun
from gpuyard.worlds.sim import fleets
from gpuyard.worlds.sim.faults import Rates
from gpuyard.worlds.sim.traces import reading
from gpuyard.worlds.sim.world import Rules
from tests.support import placement_checker

FLEET = "H100:8x4@2"


class StillClock:
    """Nothing is measured here."""

    def now(self) -> float:
        return 0.0

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps in virtual time")


def trace(folder: Path, jobs: int = 80, seed: int = 1) -> Path:
    dice = random.Random(seed)
    path, at = folder / "trace.csv", 0.0
    with path.open("w") as out:
        rows = csv.writer(out)
        rows.writerow(["job", "submitted", "gpus", "tasks", "duration"])
        for i in range(jobs):
            at += dice.expovariate(1 / 60)
            rows.writerow([f"j{i}", round(at), dice.choice([1, 1, 2, 4, 8, 0.5]), dice.choice([1, 1, 2]),
                           1 + round(dice.expovariate(1 / 2500))])  # fmt: skip
    return path


def setting(folder: Path, rates: Rates | None = None) -> Setting:
    source, rules = reading.read(trace(folder)), Rules(overhead=30.0)
    return Setting(source, fleets.read(FLEET), rules, rates, placements=folder / "p.ndjson")


def simulate(given: Setting, policy: str, seed: int = 42) -> SimulatedRun:
    return simulation.run(given, (policy, presets.read_policy(policy)), seed, StillClock())


def problems(given: Setting, once: bool = False) -> list[str]:
    assert given.placements is not None
    gpus = {node.name: len(node.gpus) for node in given.fleet.nodes}
    cpu = {node.name: node.cpu for node in given.fleet.nodes}
    cores = {job.name: job.task_groups()[0].request.cpu for job in given.source.tasks}
    return placement_checker.check(given.placements.read_text().splitlines(), gpus, cpu, cores, once)


@pytest.mark.parametrize("policy", presets.names())
def test_every_shipped_policy_runs_a_trace_to_its_end(tmp_path: Path, policy: str):
    given = setting(tmp_path)
    run = simulate(given, policy)
    assert (run.figures.jobs, run.figures.finished) == (80, 80)
    assert problems(given) == []


@pytest.mark.parametrize("policy", ["default", "blind", "srsf"])
def test_the_same_seed_gives_the_same_placements(tmp_path: Path, policy: str):
    given = setting(tmp_path)
    texts = []
    for _ in range(2):
        simulate(given, policy)
        texts.append((tmp_path / "p.ndjson").read_text())
    assert texts[0] == texts[1]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("policy", ["default", "blind"])
def test_faults_break_no_law_and_every_job_still_ends(tmp_path: Path, policy: str, seed: int):
    given = setting(tmp_path, Rates(per_gpu_day=2.0, rack_share=0.1))
    run = simulate(given, policy, seed)
    assert run.figures.finished == 80
    assert run.figures.preemptions > 0
    assert problems(given) == []


def test_faults_cost_work(tmp_path: Path):
    calm = simulate(setting(tmp_path), "default")
    rough = simulate(setting(tmp_path, Rates(per_gpu_day=2.0)), "default")
    assert rough.figures.lost_gpu_hours > calm.figures.lost_gpu_hours


def test_whoever_knows_durations_waits_least(tmp_path: Path):
    given = setting(tmp_path)
    means = {policy: simulate(given, policy).figures.jct_mean_s for policy in ("fifo", "blind", "srsf")}
    assert means["srsf"] < means["blind"] < means["fifo"]


def test_nobody_overtakes_under_fifo(tmp_path: Path):
    given = setting(tmp_path)
    simulate(given, "fifo")
    lines = [line for line in (tmp_path / "p.ndjson").read_text().splitlines() if '"place"' in line]
    order = list(dict.fromkeys(line.split('"job":"')[1].split('"')[0] for line in lines))
    assert order == sorted(order, key=lambda name: int(name[1:]))


def test_a_start_costs_its_overhead(tmp_path: Path):
    path = tmp_path / "one.csv"
    path.write_text("job,submitted,gpus,duration\na,0,1,100\n")
    given = Setting(reading.read(path), fleets.read("8x1"), Rules(overhead=30.0))
    assert simulate(given, "default").figures.jct_mean_s == 130.0


SIZES = ((0, 0), (1, 460), (1, 1000), (1, 810), (2, 1000), (8, 1000))
OPENB = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "".join(
    f"t{i:03d},{1000 * (1 + i % 12)},1024,{SIZES[i % 6][0]},{SIZES[i % 6][1]},\n" for i in range(60)
)
NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(f"n{i},96000,262144,8,G2\n" for i in range(12))


@pytest.mark.parametrize("policy", ["best-fit", "fgd", "default"])
def test_openb_is_replayed_by_its_own_rules(tmp_path: Path, policy: str):
    (tmp_path / "tasks.csv").write_text(OPENB)
    (tmp_path / "nodes.csv").write_text(NODES)
    given = Setting(reading.read(tmp_path / "tasks.csv"), fleets.read(str(tmp_path / "nodes.csv")),
                    placements=tmp_path / "p.ndjson")  # fmt: skip
    run = simulate(given, policy)
    assert problems(given, once=True) == []
    assert run.figures.preemptions == run.figures.moves == 0
    assert max(run.figures.allocated_at.values()) > 85


FEW_NODES = "".join(NODES.splitlines(keepends=True)[:3])


HARMLESS = Policy(reserve_after=0.0, defragment=DefragRule.DO, defrag_every=1.0, defrag_pays=0.0)
"""Reserves for whoever does not fit and moves whom it can; nobody who is tried once waits, and nobody may be moved."""


@pytest.mark.parametrize("policy", [*map(presets.read_policy, presets.names()), HARMLESS])
def test_newcomers_that_are_told_together_fare_as_if_each_were_told_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: Policy
):
    """Under every policy: where one job may be tried before another that came earlier they are not told together."""
    (tmp_path / "tasks.csv").write_text(OPENB)
    (tmp_path / "nodes.csv").write_text(FEW_NODES)
    told = []
    for looks in (1 << 20, 3):
        monkeypatch.setattr(simulation, "LOOKS", looks)
        given = Setting(reading.read(tmp_path / "tasks.csv"), fleets.read(str(tmp_path / "nodes.csv")),
                        placements=tmp_path / f"{looks}.ndjson")  # fmt: skip
        run = simulation.run(given, ("policy", policy), 42, StillClock())
        told.append(((tmp_path / f"{looks}.ndjson").read_text(), run.figures, run.curves.used))
    assert 0 < told[0][1].dropped < told[0][1].jobs
    assert told[0] == told[1]


def test_nobody_is_dropped_for_a_move_that_was_never_allowed(tmp_path: Path):
    """Timed defragmentation that a policy asks for is not tried either where nothing may be moved."""
    sizes = ((4, 1000), (1, 300), (1, 700), (1, 500), (1, 500), (1, 300), (1, 500), (1, 700))
    rows = "".join(f"t{i},0,0,{gpus},{milli},\n" for i, (gpus, milli) in enumerate(sizes))
    (tmp_path / "tasks.csv").write_text(OPENB.splitlines(keepends=True)[0] + rows)
    (tmp_path / "nodes.csv").write_text("".join(NODES.splitlines(keepends=True)[:5]))
    given = Setting(reading.read(tmp_path / "tasks.csv"), fleets.read(str(tmp_path / "nodes.csv")))
    restless = replace(HARMLESS, weights=Weights(**{each.name: 0.0 for each in fields(Weights)}))
    dropped = {
        rule: simulation.run(given, ("policy", replace(restless, defragment=rule)), 42, StillClock()).figures.dropped
        for rule in DefragRule
    }
    assert len(set(dropped.values())) == 1, dropped


def test_moves_stay_within_their_share(tmp_path: Path):
    (tmp_path / "tasks.csv").write_text(OPENB)
    (tmp_path / "nodes.csv").write_text(NODES)
    given = Setting(reading.read(tmp_path / "tasks.csv"), fleets.read(str(tmp_path / "nodes.csv")),
                    Rules(most_moves=0.1), placements=tmp_path / "p.ndjson")  # fmt: skip
    run = simulate(given, "default")
    placed = run.figures.jobs - run.figures.dropped
    assert run.figures.moves <= 0.1 * placed
    assert problems(given, once=True) == []


def test_shipped_policies_say_what_they_mean():
    assert presets.read_policy("srsf").order.by is OrderBy.SRSF
    assert presets.read_policy("fifo").order.strict
    assert not presets.read_policy("fgd").consolidate
