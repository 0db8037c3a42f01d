"""`yard sim`: replay a trace on a fleet under one policy or several, and compare what comes out.

Called by `root`. It wires reader, fleet, policies and seeds to `runtime.simulation` and prints; figures are the
simulator's, drawing is `sim_text`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuyard.cli.console import options, terminal
from gpuyard.cli.deciding.replaying import check_writable, run_all, seed_range, setting_of
from gpuyard.cli.rendering.documents import Document
from gpuyard.model.alerts import alert_document

if TYPE_CHECKING:
    from gpuyard.runtime.simulating.simulation import SimulatedRun


@options.command(
    "sim",
    """
    yard sim trace.csv --fleet H100:8x16 --policy default --policy fifo
    yard sim pods.csv.gz --fleet nodes.csv --policy fgd --seed 42-46 -o json
    yard sim philly.csv.gz --fleet V100:8x60 --policy blind --report week.html
    yard sim trace.csv --fleet fleet.yaml --compare-placement
    """,
)
@click.argument("trace", metavar="TRACE")
@click.option(
    "--fleet", "fleet_word", metavar="FLEET", required=True, help="A fleet file, openb's node list, or V100:8x60."
)
@click.option(
    "--policy", "policies", multiple=True, metavar="NAME|FILE", help="A shipped policy or a file.  [default: default]"
)
@click.option("--seed", "seeds", multiple=True, metavar="N", help="A seed, or a range as 42-46.  [default: 42]")
@click.option(
    "--format",
    "kind",
    type=click.Choice(("openb", "philly", "muri", "csv", "journal")),
    help="What the trace is; guessed otherwise.",
)
@click.option(
    "--arrivals",
    type=click.FloatRange(min=0.0),
    metavar="X",
    help="Inflate openb's arrivals to X times the GPUs.  [default: 1.3]",
)
@click.option("--from", "since", metavar="DATE", help="Leave out jobs before this day.")
@click.option("--until", metavar="DATE", help="Leave out jobs from this day on.")
@click.option("--moves", metavar="N%", help="Where tasks are tried once: move at most this share of those placed.")
@click.option("--overhead", type=click.FloatRange(min=0.0), metavar="SECONDS", help="What every start costs a job.")
@click.option("--quirk", type=click.Choice(("muri-overhead",)), help="Do as a published simulator did.")
@click.option("--faults", is_flag=True, help="Let GPUs, nodes and racks fail at the rates of the field.")
@click.option(
    "--placements",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write every placement as NDJSON.",
)
@click.option(
    "--report", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write a page with plots."
)
@click.option("--compare-placement", is_flag=True, help="Pack or spread: measure both, recommend one.")
@options.output(("table", "json"))
def sim(
    trace: str, fleet_word: str, policies: tuple[str, ...], seeds: tuple[str, ...], form: str, **given: Any
) -> None:
    """Replay a trace and compare policies.

    The same loop and brain as in a live yard, with a virtual clock. A policy is a name (best-fit, blind, default, fgd,
    fifo, sjf, srsf) or a file of knobs. Traces: openb, Philly, Muri, our CSV or a placement journal, plain or .gz.
    """
    for path in (given["report"], given["placements"]):
        check_writable(path)
    setting = setting_of(trace, fleet_word, given["kind"] or "", given)
    numbers = [number for word in seeds or ("42",) for number in seed_range(word)]
    if given["compare_placement"]:
        from gpuyard.cli.deciding import placement_styles

        return placement_styles.write(setting, (policies or ("default",))[0], numbers, form)
    if given["placements"] is not None and len(numbers) * max(len(policies), 1) > 1:
        raise click.UsageError("--placements writes one run: name one policy and one seed.")
    runs = run_all(setting, policies or ("default",), numbers)
    if given["report"] is not None:
        from gpuyard.cli.rendering.simulated import sim_page

        given["report"].write_text(sim_page.page(trace, runs), encoding="utf-8")
        terminal.say(f"report: {given['report']}")
    return write(runs, form)


def write(runs: Sequence[SimulatedRun], form: str) -> None:
    """The answer."""
    if form == "json":
        terminal.write_json({"runs": [document(run) for run in runs]})
        return
    from gpuyard.cli.rendering.simulated import sim_text

    sim_text.draw(terminal.Screen(), runs)


def document(run: SimulatedRun) -> Document:
    """One run as JSON has it."""
    head = {"policy": run.policy, "seed": run.seed, "wall_s": round(run.wall_s, 2), "decide_s": round(run.decide_s, 2)}
    figures = asdict(run.figures)
    if not figures["allocated_at"]:
        del figures["allocated_at"]
    alerts = [
        {"from": span.begin, "to": span.end} | {key: value for key, value in told.items() if key != "since"}
        for span in run.alerts
        for told in (alert_document(span.alert),)
    ]
    return head | figures | {"alerts": alerts}
