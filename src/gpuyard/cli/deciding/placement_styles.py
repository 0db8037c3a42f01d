"""Pack or spread, measured: `yard sim --compare-placement`.

Called by `sim`. The same trace under the same policy, once with every class packed and once with every class spread:
what is stranded, how long the unlucky wait, whom one failure hits and what restarting them costs; and a recommendation
that follows from those numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from gpuyard.cli.console import terminal
from gpuyard.cli.deciding.replaying import progress
from gpuyard.cli.rendering.simulated.sim_text import number
from gpuyard.files.reading import presets
from gpuyard.model.job import JobClass
from gpuyard.model.policy import Policy, Style
from gpuyard.model.topology import NODE
from gpuyard.runtime.clock import SystemClock
from gpuyard.runtime.simulating import simulation
from gpuyard.runtime.simulating.simulation import Setting, SimulatedRun

RACK = "rack"
WORTH_WAITING = 1.1
"""Spreading is recommended only if it makes the unlucky wait at most this many times longer."""


@dataclass(frozen=True)
class StyleFigures:
    """One style's figures, means over seeds."""

    style: str
    stranded_gpu_hours: float
    wait_p99_s: float
    jobs_per_node_failure: float
    jobs_per_rack_failure: float
    restart_gpu_seconds: float


def write(setting: Setting, policy: str, seeds: Sequence[int], form: str) -> None:
    """Measure both, print both, recommend one."""
    both = [_measured(setting, policy, style, seeds) for style in (Style.PACK, Style.SPREAD)]
    advice = recommend(both[0], both[1])
    if form == "json":
        terminal.write_json({"placements": [vars(each) for each in both], "recommendation": advice})
        return
    titles = ("PLACEMENT", "STRANDED GPU-H", "WAIT P99 S", "JOBS HIT: NODE", "RACK", "RESTART GPU-S")
    screen = terminal.Screen()
    screen.table(
        [terminal.Column(title, right=title != "PLACEMENT") for title in titles],
        [[each.style, *(number(value) for key, value in vars(each).items() if key != "style")] for each in both],
    )
    screen.show(terminal.text(advice, "bold"))


def _measured(setting: Setting, name: str, style: Style, seeds: Sequence[int]) -> StyleFigures:
    policy = styled(presets.read_policy(name), style)
    runs = []
    for seed in seeds:
        with progress(f"{style.value}, seed {seed}") as told:
            runs.append(simulation.run(replace(setting, gantt=True), (style.value, policy), seed, SystemClock(), told))
    return StyleFigures(
        style.value,
        fmean(run.figures.stranded_gpu_hours for run in runs),
        fmean(run.figures.wait_p99_s for run in runs),
        fmean(hit(run, {}) for run in runs),
        fmean(hit(run, _racks(setting)) for run in runs),
        fmean(restart_cost(run) for run in runs),
    )


def styled(policy: Policy, style: Style) -> Policy:
    """Every class laid out in one style."""
    over = (NODE, RACK) if style is Style.SPREAD else ()
    classes = {of: replace(policy.classes[of], placement=style, over=over) for of in JobClass}
    return replace(policy, classes=classes)


def _racks(setting: Setting) -> dict[str, str]:
    return {node.name: dict(node.domains).get(RACK, node.name) for node in setting.fleet.nodes}


def hit(run: SimulatedRun, domain: dict[str, str]) -> float:
    """Jobs that one failure of a domain stops: the mean over busy domains, weighted by how long they held jobs."""
    held: dict[str, set[str]] = defaultdict(set)
    for node, _, _, _, job in run.curves.stays:
        held[domain.get(node, node)].add(job)
    span = max(run.figures.makespan_s, 1.0)
    stays: dict[tuple[str, str], float] = defaultdict(float)
    for node, _, begun, ended, job in run.curves.stays:
        key = (domain.get(node, node), job)
        stays[key] = max(stays[key], ended - begun)
    return sum(stays.values()) / span / max(len(held), 1)


def restart_cost(run: SimulatedRun) -> float:
    """GPU-seconds of a job's whole gang that one device's failure stops, on average: large gangs weigh most."""
    sizes: dict[str, float] = defaultdict(float)
    for _, _, begun, ended, job in run.curves.stays:
        sizes[job] += ended - begun
    total = sum(sizes.values())
    return sum(seconds * seconds for seconds in sizes.values()) / total / 2 if total else 0.0


def recommend(pack: StyleFigures, spread: StyleFigures) -> str:
    """The advice, with the numbers it rests on."""
    stranded = f"{number(pack.stranded_gpu_hours)} against {number(spread.stranded_gpu_hours)} stranded GPU-hours"
    waits = f"p99 wait {number(pack.wait_p99_s)} against {number(spread.wait_p99_s)} s"
    hits = f"{number(pack.jobs_per_node_failure)} against {number(spread.jobs_per_node_failure)} jobs hit by a node"
    fewer = spread.jobs_per_node_failure < pack.jobs_per_node_failure
    cheap = spread.wait_p99_s <= WORTH_WAITING * pack.wait_p99_s + 1.0
    no_waste = spread.stranded_gpu_hours <= WORTH_WAITING * pack.stranded_gpu_hours + 1.0
    style = "spread" if fewer and cheap and no_waste else "pack"
    return f"recommended: {style} ({stranded}; {waits}; {hits})"
