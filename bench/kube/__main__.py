"""`python -m bench.kube [part...]`: singles, gangs, latency, cache; each keeps its result in bench/results.

At the end a table of what was measured beside what is aimed at. No round begins that would not end in `--minutes`."""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.kube import cached, latency, making, subjects, verdicts
from bench.kube.subjects import SUBJECTS, USUAL, Measured
from bench.kube.verdicts import AIMS
from bench.running import RESULTS, machine
from gpuyard.kube.client import KubeClient
from gpuyard.runtime.clock import SystemClock
from tests.support.kube import components
from tests.support.kube.cluster import Cluster

PARTS = ("singles", "gangs", "latency", "cache")
KEPT: dict[str, dict[str, Any]] = {}
"""What was measured in this run, by its name."""


async def main(wish: argparse.Namespace) -> None:
    """Every part that is wished for, on one API server; what was measured so far is kept after every round."""
    if "cache" in wish.part:
        keep("kube-cache", await cached.measure(wish.cached))
    if set(wish.part) == {"cache"}:
        return
    components.RECIPE.build()
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder), controllers=False).start()
        client = await KubeClient(cluster.access(cluster.token), SystemClock()).open()
        subjects.compile_ahead(subjects.surroundings(cluster.folder))
        try:
            await making.make_nodes(client, wish.nodes)
            print(f"{wish.nodes} nodes", flush=True)
            if "latency" in wish.part:
                keep("kube-latency", await latency.measure(cluster, client, wish.alone))
            await compare(cluster, client, wish)
        finally:
            await client.close()
            cluster.stop()


async def compare(cluster: Cluster, client: KubeClient, wish: argparse.Namespace) -> None:
    """Every subject, round by round, each round beginning with another."""
    counts = {"singles": wish.pods, "gangs": wish.gangs}
    found: dict[str, dict[str, list[Measured]]] = {
        part: {name: [] for name in wish.subject} for part in counts if part in wish.part
    }
    for workload in found:  # the first round is to find the server's watch cache filled, as the others do
        await making.make_pods(client, workload, counts[workload], subjects.NOBODY)
        await making.clear(client)
    took = 0.0
    for round_ in range(wish.rounds):
        begun = time.monotonic()
        if begun + took > wish.begun + wish.minutes * 60:
            print(f"no time for a round more, after {round_}", flush=True)
            break
        turn = round_ % len(wish.subject)
        for workload, all_of_it in found.items():
            for name in (*wish.subject[turn:], *wish.subject[:turn]):
                measured = await tried(cluster, client, name, workload, counts[workload])
                all_of_it[name].append(measured)
                print(f"  {workload} {round_ + 1} {name:<16} {told(asdict(measured))}", flush=True)
            size = {"nodes": wish.nodes, workload: counts[workload], "rounds": round_ + 1}
            middle = {name: median(rounds) for name, rounds in all_of_it.items()}
            keep(
                f"kube-{workload}",
                {**size, "subjects": middle, "ratios": ratios(all_of_it) | work(middle), "aims": AIMS},
            )
        took = time.monotonic() - begun


async def tried(cluster: Cluster, client: KubeClient, name: str, workload: str, count: int) -> Measured:
    """Once more if it went wrong: a subject that was starved for minutes says nothing of it."""
    try:
        return await subjects.run(cluster, client, name, workload, count)
    except SystemExit as error:
        print(f"  {workload} {name}: {error}; once more", flush=True)
        await making.clear(client)
        return await subjects.run(cluster, client, name, workload, count)


def median(rounds: list[Measured]) -> dict[str, float]:
    """The middle of each figure."""
    return {key: round(statistics.median(asdict(each)[key] for each in rounds), 2) for key in asdict(rounds[0])}


def ratios(found: dict[str, list[Measured]]) -> dict[str, float]:
    """Ours to others' of the same round, of which the middle: neighbours on the machine come and go between rounds.

    And the ceiling's to kube-scheduler's: whoever decides anything stays below it.
    """
    told = {}
    for name in sorted(found.keys() - {"gpuyard"}):
        for figure in ("rate", "cold_rate"):
            told[f"{figure}_to_{name}"] = ratio(found, figure, "gpuyard", name)
    told[verdicts.BOUND] = ratio(found, "rate", "ceiling", "kube-scheduler")
    return {name: figure for name, figure in told.items() if figure is not None}


def ratio(found: dict[str, list[Measured]], figure: str, one: str, other: str) -> float | None:
    """The middle of the rounds that both were in; None if there are none."""
    pairs = zip(found.get(one, ()), found.get(other, ()), strict=False)
    each = [getattr(first, figure) / getattr(second, figure) for first, second in pairs]
    return round(statistics.median(each), 2) if each else None


def work(middle: dict[str, dict[str, float]]) -> dict[str, float]:
    """How many times as much processor time each takes a pod as we do, server included: what rates come to on few cores
    that nobody else wants."""
    all_of_it = {name: each["cpu_us"] + each["server_us"] for name, each in middle.items()}
    ours = all_of_it.pop("gpuyard", 0.0)
    return {f"work_of_{name}": round(spent / ours, 2) for name, spent in all_of_it.items()} if ours else {}


def told(figures: dict[str, float]) -> str:
    """On one line."""
    return ", ".join(f"{name} {value:.1f}" for name, value in figures.items())


def keep(name: str, result: dict[str, Any]) -> None:
    """As the other results are kept: no date, no path."""
    text = json.dumps({"name": name, **result, "machine": machine()}, indent=2, sort_keys=True)
    print(f"{name}: {json.dumps(result)}", flush=True)
    (RESULTS / f"{name}.json").write_text(text + "\n")
    KEPT[name] = result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("part", nargs="*", default=list(PARTS))
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--gangs", type=int, default=50)
    parser.add_argument("--alone", type=int, default=200, help="pods that come one after another, for latency")
    parser.add_argument("--cached", type=int, default=100_000, help="pods in the cache, for memory and time to sync")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--subject", nargs="*", default=list(USUAL), choices=SUBJECTS)
    parser.add_argument("--minutes", type=float, default=18.0, help="no round begins that would not end by then")
    parser.set_defaults(begun=time.monotonic())
    try:
        asyncio.run(main(parser.parse_args()))
    finally:
        print(verdicts.told(KEPT), flush=True)
