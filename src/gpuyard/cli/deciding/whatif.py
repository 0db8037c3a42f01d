"""`yard whatif`: the same trace or snapshot with something changed, and who gains and who loses by it.

Called by `root`. A trace is simulated twice for every seed; a snapshot is planned twice. What is printed is the change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import click

from gpuyard.cli.console import options, sources, terminal
from gpuyard.cli.deciding.replaying import run_all, seed_range, setting_of
from gpuyard.cli.rendering.documents import Document
from gpuyard.cli.rendering.simulated.sim_text import number
from gpuyard.model.errors import NotFound
from gpuyard.model.snapshot import Snapshot

if TYPE_CHECKING:
    from gpuyard.runtime.simulating.simulation import SimulatedRun
    from gpuyard.worlds.sim.traces.trace import Trace

KEYS = ("wait_p50_s", "wait_p99_s", "queue_mean_s", "jct_mean_s", "utilisation", "stranded_gpu_hours", "preemptions")

CHANGES = {
    "add_nodes": "--add-nodes", "remove_nodes": "--remove-nodes", "quotas": "--quota", "limits": "--limit",
    "policy_after": "--policy-after", "topology": "--topology", "time_limit": "--time-limit",
}  # fmt: skip
"""What may change, and its option."""


@options.command(
    "whatif",
    """
    yard whatif trace.csv --fleet H100:8x16 --add-nodes 4 --seed 42-46
    yard whatif trace.csv --fleet fleet.yaml --policy-after fifo
    yard whatif --snapshot fleet.yaml --add-nodes h100=4 --quota research=64
    """,
)
@click.argument("trace", required=False, metavar="[TRACE]")
@click.option("--snapshot", "path", metavar="FILE", help="Ask a snapshot instead of a trace.")
@click.option("--fleet", "fleet_word", metavar="FLEET", help="What the trace runs on: a file, or V100:8x60.")
@click.option("--policy", default="default", show_default=True, metavar="NAME|FILE", help="The policy before.")
@click.option("--policy-after", metavar="NAME|FILE", help="The policy after, if that is what changes.")
@click.option("--add-nodes", multiple=True, metavar="[POOL=]N", help="More nodes like those of the pool.")
@click.option("--remove-nodes", multiple=True, metavar="[POOL=]N", help="Fewer nodes, the last by name.")
@click.option("--quota", "quotas", multiple=True, metavar="QUEUE=GPUS", help="Another quota.")
@click.option("--limit", "limits", multiple=True, metavar="QUEUE=GPUS", help="Another limit.")
@click.option("--topology", metavar="LEVEL", help="Gangs must stay inside one domain of this level.")
@click.option("--time-limit", type=click.FloatRange(min=0), metavar="SECONDS", help="Every job's time limit.")
@click.option("--seed", "seeds", multiple=True, metavar="N", help="A seed, or a range.  [default: 42]")
@click.option("--from", "since", metavar="DATE", help="Leave out jobs before this day.")
@click.option("--until", metavar="DATE", help="Leave out jobs from this day on.")
@options.output(("table", "json"))
def whatif(trace: str | None, path: str | None, form: str, **given: Any) -> None:
    """What would change: nodes, quotas, limits, policy, topology level, time limits.

    On a trace: the figures before and after, with their spread over seeds. On a snapshot: who starts that waited, and
    who waits that ran.
    """
    if not any(given[key] for key in CHANGES):
        raise click.UsageError(f"Name what changes: {', '.join(CHANGES.values())}.")
    if path is not None:
        answer = of_snapshot(sources.read(path).snapshot, given)
    elif trace is not None and given["fleet_word"]:
        answer = of_trace(trace, given)
    else:
        raise click.UsageError("Name a trace with --fleet, or a --snapshot.")
    if form == "json":
        terminal.write_json(answer)
    else:
        draw(answer)


# --- a trace ----------------------------------------------------------------------------------------------------------


def of_trace(trace: str, given: dict[str, Any]) -> Document:
    """Both runs of every seed, and what differs."""
    setting = setting_of(trace, given["fleet_word"], "", given)
    seeds = [number for word in given["seeds"] or ("42",) for number in seed_range(word)]
    before = run_all(setting, (given["policy"],), seeds)
    changed = replace(setting, fleet=changed_fleet(setting.fleet, given), adapt=adapting(given))
    after = run_all(changed, (given["policy_after"] or given["policy"],), seeds)
    queues = sorted(set(before[0].figures.fairness) | set(after[0].figures.fairness))
    return {
        "seeds": seeds,
        "figures": {key: delta(before, after, key) for key in KEYS},
        "queues": {queue: _queue_delta(before, after, queue) for queue in queues},
    }


def adapting(given: dict[str, Any]) -> Callable[[Trace], Trace] | None:
    """How the jobs of the trace change, if they do."""
    from gpuyard.runtime.simulating import variations

    level, limit = given["topology"] or "", given["time_limit"]
    return (lambda trace: variations.adapted(trace, level, limit)) if level or limit is not None else None


def delta(before: Sequence[SimulatedRun], after: Sequence[SimulatedRun], key: str) -> Document:
    """One figure: before, after, the change and its spread over seeds."""
    pairs = [(getattr(b.figures, key), getattr(a.figures, key)) for b, a in zip(before, after, strict=True)]
    return _change([float(b) for b, _ in pairs], [float(a) for _, a in pairs])


def _queue_delta(before: Sequence[SimulatedRun], after: Sequence[SimulatedRun], queue: str) -> Document:
    waits = [[run.figures.fairness.get(queue, 0.0) for run in runs] for runs in (before, after)]
    return _change(waits[0], waits[1])


def _change(before: Sequence[float], after: Sequence[float]) -> Document:
    changes = [a - b for b, a in zip(before, after, strict=True)]
    spread = stdev(changes) if len(changes) > 1 else 0.0
    return {
        "before": round(fmean(before), 4),
        "after": round(fmean(after), 4),
        "change": round(fmean(changes), 4),
        "spread": round(spread, 4),
    }


# --- a snapshot -------------------------------------------------------------------------------------------------------


def of_snapshot(snapshot: Snapshot, given: dict[str, Any]) -> Document:
    """Plan before and after."""
    from gpuyard.brain import foresee

    changed = changed_fleet(snapshot, given)
    if given["policy_after"]:
        from gpuyard.files.reading import presets

        changed = replace(changed, policy=presets.read_policy(given["policy_after"]))
    ran = {run.job for run in foresee.outlook(snapshot).running}
    runs = {run.job for run in foresee.outlook(changed).running}
    return {
        "gains": sorted(runs - ran),
        "loses": sorted(ran - runs),
        "running": {"before": len(ran), "after": len(runs)},
    }


def changed_fleet(fleet: Snapshot, given: dict[str, Any]) -> Snapshot:
    """The fleet with the asked changes."""
    from gpuyard.runtime.simulating import variations

    for word in given["add_nodes"]:
        fleet = variations.add_nodes(fleet, *pool_count(word))
    for word in given["remove_nodes"]:
        fleet = variations.remove_nodes(fleet, *pool_count(word))
    for key in ("quotas", "limits"):
        for word in given[key]:
            queue, _, gpus = word.partition("=")
            fleet = variations.allow(fleet, key.removesuffix("s"), queue, _gpus(word, gpus))
    if given["topology"]:
        fleet = variations.keep_inside(fleet, given["topology"])
    if given["time_limit"] is not None:
        fleet = variations.limit_time(fleet, given["time_limit"])
    return fleet


def pool_count(word: str) -> tuple[str, int]:
    """`h100=4`, or `4` for any pool."""
    pool, _, count = word.rpartition("=")
    if not count.isdigit():
        raise click.UsageError(f"{word} is not a number of nodes; write 4, or h100=4.")
    return pool, int(count)


def _gpus(word: str, gpus: str) -> float:
    try:
        return float(gpus)
    except ValueError:
        raise NotFound(f"{word} names no number of GPUs; write it as research=64") from None


# --- drawing ----------------------------------------------------------------------------------------------------------


def draw(answer: Document) -> None:
    """As a table of changes, or two lists of names."""
    screen = terminal.Screen()
    if "gains" in answer:
        for word in ("gains", "loses"):
            names = ", ".join(answer[word]) or "nobody"
            screen.show(terminal.text(f"{word}: {names}"))
        return
    columns = [
        terminal.Column(""),
        *(terminal.Column(name.upper(), right=True) for name in ("before", "after", "change", "spread")),
    ]
    lines = [(key, value) for key, value in answer["figures"].items()]
    lines += [(f"wait in {queue}", value) for queue, value in answer["queues"].items()]
    screen.table(columns, [[key, *(number(float(v)) for v in value.values())] for key, value in lines])
