"""Pack or spread, measured class by class: `yard sim --compare-placement`.

Called by `sim`. The same trace, failures and seeds under the same policy, once with every class packed and once with
every class spread: who falls below its minimum when something breaks, what that costs, how long the unlucky wait and
how much jobs slow each other down, by a contention model that is stated. A recommendation for each class follows from
those numbers, and says so where the seeds do not agree.
"""

from __future__ import annotations

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
from gpuyard.worlds.sim import faults, fleets
from gpuyard.worlds.sim.fleets import Contention
from gpuyard.worlds.sim.measuring import ClassFigures

RACK = "rack"
DAY_S = 86_400.0
FAILURES = 24.0
"""So many are wanted in a run, however short its trace: at the rates of the field most traces would see none."""
WORTH_WAITING = 1.1
"""Spreading is recommended only if it makes the unlucky wait at most this many times longer."""


@dataclass(frozen=True)
class Spread:
    """One figure over the seeds."""

    mean: float
    least: float
    most: float

    def __str__(self) -> str:
        return (
            number(self.mean)
            if self.least == self.most
            else (f"{number(self.mean)} ({number(self.least)}..{number(self.most)})")
        )


@dataclass(frozen=True)
class StyleFigures:
    """One class in one style."""

    style: str
    hit: Spread
    fell: Spread
    lost_gpu_s: Spread
    wait_p99_s: Spread
    slow_p95: Spread


TITLES = ("CLASS", "JOBS", "PLACEMENT", "HIT", "BELOW MIN", "LOST GPU-S", "WAIT P99 S", "TIMES AS LONG P95")


def write(setting: Setting, policy: str, seeds: Sequence[int], form: str) -> None:
    """Measure both, print both, recommend one for each class."""
    setting = stressed(setting)
    packed, spread = (_runs(setting, policy, style, seeds) for style in (Style.PACK, Style.SPREAD))
    kinds = [kind.value for kind in JobClass if any(kind.value in run.classes for run in packed)]
    found = {kind: (figures("pack", packed, kind), figures("spread", spread, kind)) for kind in kinds}
    advice = {kind: recommend(kind, *both) for kind, both in found.items()}
    if form == "json":
        terminal.write_json(
            {"model": assumptions(setting), "classes": {kind: _document(found[kind], advice[kind]) for kind in kinds}}
        )
        return
    screen = terminal.Screen()
    jobs = {kind: str(max(run.classes[kind].jobs for run in packed if kind in run.classes)) for kind in kinds}
    screen.table(
        [terminal.Column(title, right=title not in ("CLASS", "PLACEMENT")) for title in TITLES],
        [[kind, jobs[kind], *map(str, vars(each).values())] for kind in kinds for each in found[kind]],
    )
    screen.show(*(terminal.text(advice[kind], "bold") for kind in kinds))
    screen.show(terminal.text(assumptions(setting), "dim"))


def stressed(setting: Setting) -> Setting:
    """With failures and with contention, whatever the trace itself has."""
    rules = setting.rules if setting.rules.contention else replace(setting.rules, contention=Contention())
    if setting.faults is not None:
        return replace(setting, rules=rules)
    gpus = max(sum(len(node.gpus) for node in setting.fleet.nodes), 1)
    trace = setting.source.trace(0, fleets.capacity(setting.fleet))
    ends = [arrival.at + (arrival.work or 0.0) for arrival in trace.arrivals]
    days = max(max(ends, default=0.0) - min((a.at for a in trace.arrivals), default=0.0), 1.0) / DAY_S
    return replace(setting, rules=rules, faults=faults.Rates(per_gpu_day=FAILURES / (gpus * days), lemons=0.0))


def assumptions(setting: Setting) -> str:
    """What the numbers rest on."""
    rate = setting.faults.per_gpu_day if setting.faults is not None else 0.0
    return f"Assumed: {rate:.3g} failures for each GPU and day, the same in both; {setting.rules.contention}."


def _runs(setting: Setting, name: str, style: Style, seeds: Sequence[int]) -> list[SimulatedRun]:
    policy = styled(presets.read_policy(name), style)
    runs = []
    for seed in seeds:
        with progress(f"{style.value}, seed {seed}") as told:
            runs.append(simulation.run(setting, (style.value, policy), seed, SystemClock(), told))
    return runs


def styled(policy: Policy, style: Style) -> Policy:
    """Every class laid out in one style."""
    over = (NODE, RACK) if style is Style.SPREAD else ()
    classes = {of: replace(policy.classes[of], placement=style, over=over) for of in JobClass}
    return replace(policy, classes=classes)


def figures(style: str, runs: Sequence[SimulatedRun], kind: str) -> StyleFigures:
    """One class in all runs of one style."""
    seen = [run.classes.get(kind, ClassFigures()) for run in runs]
    return StyleFigures(
        style,
        _spread([each.hit for each in seen]),
        _spread([each.fell for each in seen]),
        _spread([each.lost_gpu_s for each in seen]),
        _spread([each.wait_p99_s for each in seen]),
        _spread([each.slow_p95 for each in seen]),
    )


def _spread(values: Sequence[float]) -> Spread:
    return Spread(round(fmean(values), 3), round(min(values), 3), round(max(values), 3))


def recommend(kind: str, pack: StyleFigures, spread: StyleFigures) -> str:
    """The advice for one class, with the numbers it rests on."""
    falls = f"{pack.fell} against {spread.fell} fall below their minimum"
    lost = f"{pack.lost_gpu_s} against {spread.lost_gpu_s} GPU-seconds lost"
    waits = f"p99 wait {pack.wait_p99_s} against {spread.wait_p99_s} s"
    safer = (spread.fell.mean, spread.lost_gpu_s.mean) < (pack.fell.mean, pack.lost_gpu_s.mean)
    cheap = spread.wait_p99_s.mean <= WORTH_WAITING * pack.wait_p99_s.mean + 1.0
    quick = spread.slow_p95.mean <= WORTH_WAITING * pack.slow_p95.mean
    style = "spread" if safer and cheap and quick else "pack"
    apart = spread.fell.most < pack.fell.least or pack.fell.most < spread.fell.least
    doubt = "" if apart or pack.fell == spread.fell else "; the seeds do not all agree, try more"
    return f"{kind}: {style} ({falls}; {lost}; {waits}{doubt})"


def _document(both: tuple[StyleFigures, StyleFigures], advice: str) -> dict[str, object]:
    told = {each.style: {k: vars(v) for k, v in vars(each).items() if isinstance(v, Spread)} for each in both}
    return told | {"recommendation": advice}
