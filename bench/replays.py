"""Published figures replayed: `python -m bench.replays openb|muri|philly` runs, keeps and shows them.

Called by `make bench-openb`, `bench-muri` and `bench-philly`. Each figure stands beside the published one. Policies
were chosen on seeds 42 to 46; 47 to 51 are reported beside them. Results go to bench/results/, one file a benchmark.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import resource
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from math import exp, log
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.running import RESULTS, machine

DATA = Path(__file__).parent / "data"
CHOSEN, HELD_BACK = range(42, 47), range(47, 52)
WORKLOADS = (
    "default", "cpu050", "cpu100", "cpu200", "cpu250", "gpushare40", "gpushare60", "gpushare80", "gpushare100",
    "gpuspec10", "gpuspec20", "gpuspec25", "gpuspec33", "multigpu20", "multigpu30", "multigpu40", "multigpu50",
)  # fmt: skip
NODES = DATA / "openb" / "openb_node_list_gpu_node.csv.gz"
PUBLISHED_NAMES = {"best-fit": "05-BestFit", "fgd": "06-FGD"}
SRSF = {"trace1": 980140.5699, "trace2": 2213949.687, "trace3": 185021.8802, "trace4": 487167.1688}
TIRESIAS = {"trace1": 3330371.307, "trace2": 7396368.514, "trace3": 347213.2481, "trace4": 1319382.936}
WEEK = ("2017-10-01", "2017-10-08")
RESTART_S = 30.0

Document = dict[str, Any]


def replay(trace: Path, fleet: str, policy: str, seed: int = 42, **given: Any) -> Document:
    """One run through `yard sim`'s own machinery, as its JSON has it."""
    from gpuyard.cli.deciding.replaying import run_all, setting_of
    from gpuyard.cli.deciding.sim import document

    setting = setting_of(str(trace), fleet, "", given)
    return document(run_all(setting, (policy,), (seed,))[0])


def one(task: tuple[Any, ...]) -> Document:
    """For a pool of processes: (trace, fleet, policy, seed, options)."""
    trace, fleet, policy, seed, given = task
    return {"trace": Path(trace).name, **replay(Path(trace), fleet, policy, seed, **given)}


def everything(tasks: Sequence[tuple[Any, ...]]) -> list[Document]:
    """All of them, on every core, told as they come."""
    found = []
    with ProcessPoolExecutor(int(os.environ.get("BENCH_JOBS", os.cpu_count() or 1))) as pool:
        for done, run in enumerate(pool.map(one, tasks), start=1):
            print(f"{done}/{len(tasks)} {run['trace']} {run['policy']} {run['seed']}", file=sys.stderr, flush=True)
            found.append(run)
    return found


def keep(name: str, document: Document) -> None:
    """Write the result down."""
    RESULTS.mkdir(exist_ok=True)
    Path(RESULTS, f"{name}.json").write_text(json.dumps({**document, "machine": machine()}, indent=1) + "\n")
    print(json.dumps(document, indent=1))


# --- openb ------------------------------------------------------------------------------------------------------------


def published() -> dict[tuple[str, str], dict[int, float]]:
    """Allocation at 100 % arrived, per workload and policy, by seed."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    with gzip.open(DATA / "openb" / "expected_analysis_allo_discrete.csv.gz", "rt") as lines:
        for row in csv.DictReader(lines):
            key = row["workload"].removeprefix("openb_pod_list_"), row["sc_policy"]
            found.setdefault(key, {})[int(row["seed"])] = float(row["100"])
    return found


def openb(workloads: Sequence[str] = WORKLOADS, name: str = "openb") -> None:
    """FGD's experiment: 17 workloads, ten seeds (BENCH_SEEDS names fewer); best-fit too on the main one."""
    policies = ("fgd", "default")
    seeds = _seeds()
    tasks: list[tuple[Any, ...]] = [
        (task_file(w), str(NODES), p, s, {}) for w in workloads for p in policies for s in seeds
    ]
    tasks += [(task_file("default"), str(NODES), "best-fit", s, {}) for s in seeds]
    runs = everything(tasks)
    known = published()
    rows = {}
    for workload in workloads:
        row: Document = {"fgd_published": round(fmean(known[workload, "06-FGD"].values()), 2)}
        for policy in (*policies, *(("best-fit",) if workload == "default" else ())):
            row |= _means(policy, [r for r in runs if r["policy"] == policy and r["trace"] == task_file(workload).name])
        if workload == "default":
            row["best-fit_published"] = round(fmean(known[workload, "05-BestFit"].values()), 2)
        rows[workload] = row
    means = {p: round(fmean(row[p] for row in rows.values()), 2) for p in policies}
    keep(name, {"seeds": seeds, "at_100": rows, "mean_of_workloads": means, "decide_s": _decide(runs)})


def openb_default() -> None:
    """The main workload alone."""
    openb(("default",), "openb-default")


def _seeds() -> list[int]:
    return [int(word) for word in os.environ.get("BENCH_SEEDS", "").split()] or [*CHOSEN, *HELD_BACK]


def task_file(workload: str) -> Path:
    """The tasks of one of openb's workloads."""
    return DATA / "openb" / f"openb_pod_list_{workload}.csv.gz"


def _means(policy: str, runs: Iterable[Document]) -> Document:
    values = {run["seed"]: run["allocated_at"]["100"] for run in runs}
    halves = {
        "42-46": [values[s] for s in CHOSEN if s in values],
        "47-51": [values[s] for s in HELD_BACK if s in values],
    }
    told = {f"{policy}_{name}": round(fmean(half), 2) for name, half in halves.items() if half}
    return {policy: round(fmean(values.values()), 2), **told}


def _decide(runs: Iterable[Document]) -> float:
    return float(min(run["decide_s"] for run in runs if run["policy"] == "fgd"))


def moves() -> None:
    """The main workload with at most 1 % of the placed tasks moved."""
    seeds = _seeds()
    given: Document = {"moves": "1%", "arrivals": 1.02}
    runs = everything([(task_file("default"), str(NODES), "default", s, given) for s in seeds])
    keep("openb-moves", _means("default", runs) | {"moves": [run["moves"] for run in runs]})


# --- muri and philly --------------------------------------------------------------------------------------------------


def muri() -> None:
    """SRSF against its published averages; blind against SRSF and Tiresias."""
    traces = {name: DATA / "muri" / f"{name}.csv.gz" for name in SRSF}
    quirk: Document = {"quirk": "muri-overhead"}
    charged: Document = {"overhead": RESTART_S}
    tasks = [(path, "V100:8x8", "srsf", 42, quirk) for path in traces.values()]
    tasks += [(path, "V100:8x8", "blind", 42, charged) for path in traces.values()]
    runs = {(run["policy"], run["trace"].split(".")[0]): run for run in everything(tasks)}
    rows = {}
    for name in traces:
        blind = runs["blind", name]["jct_mean_s"]
        rows[name] = {
            "srsf_published": SRSF[name],
            "srsf": runs["srsf", name]["jct_mean_s"],
            "srsf_ratio": round(runs["srsf", name]["jct_mean_s"] / SRSF[name], 4),
            "blind": blind,
            "blind_to_srsf": round(blind / SRSF[name], 3),
            "tiresias_to_srsf": round(TIRESIAS[name] / SRSF[name], 3),
        }
    geo = exp(fmean(log(row["blind_to_srsf"]) for row in rows.values()))
    keep("muri", {"traces": rows, "blind_geometric_mean": round(geo, 3), "restart_s": RESTART_S})


def philly() -> None:
    """The week on 60 x 8 GPUs under several policies; all 111,549 jobs on 256 x 8 under the default."""
    week = {"since": WEEK[0], "until": WEEK[1], "overhead": RESTART_S}
    path = DATA / "philly" / "philly_82k_jobs.csv.gz"
    runs = everything([(path, "V100:8x60", policy, 42, week) for policy in ("blind", "fifo", "sjf", "default")])
    keys = ("jct_mean_s", "queue_mean_s", "queue_max_s", "wait_p99_s", "preemptions", "finished", "wall_s")
    rows = {run["policy"]: {key: run[key] for key in keys} for run in runs}
    beside = {"tiresias_queue_s": 1530, "fifo_queue_s": 36670, "sjf_queue_s": 2804}
    keep("philly-week", {"jobs": runs[0]["jobs"], "policies": rows, "restart_s": RESTART_S, "published": beside})


def philly_all() -> None:
    """Speed: the whole table, end to end, in this process, so that its memory is its own."""
    run = replay(DATA / "philly" / "philly_111k_jobs_no_vc.csv.gz", "V100:8x256", "default")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    keys = ("wall_s", "decide_s", "jobs", "finished", "jct_mean_s", "queue_mean_s", "queue_max_s", "utilisation")
    keep("philly-all", {**{key: run[key] for key in keys}, "peak_mib": round(peak)})


NAMES = {
    "openb": openb,
    "openb-default": openb_default,
    "moves": moves,
    "muri": muri,
    "philly": philly,
    "philly-all": philly_all,
}

if __name__ == "__main__":
    for word in sys.argv[1:]:
        NAMES[word]()
