"""What `yard demo` runs: a virtual fleet, three teams, about two hundred short jobs, and a few stories among them.

Called by `demo`. Everything is derived from counters, so that every run submits the same work at the same moments.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gpuyard.model.policy import Policy

Document = dict[str, Any]

H100, A100, L40S = "H100-SXM5-80GB", "A100-SXM4-80GB", "L40S-48GB"
RACKS = {"r0": H100, "r1": H100, "r2": A100, "r3": L40S}
PRICES = {H100: 26000, A100: 12000, L40S: 6000}
NODES_A_RACK = 8
GPUS_A_NODE = 8

TRAINED_ON = ["H100", "A100"]

LAST_ARRIVAL_S = 14.0
STRANDED = "render-wall"
"""The job whose "why" is asked: enough GPUs are free for it, but never eight on one node."""
OVER_LIMIT = "forgot-to-stop"
SPARED_S, TIDIED_S = 2.0, 2.0
"""The policy's clocks, scaled down with the jobs, which last seconds. Who has just begun is left alone: without that,
twice as many would be stopped or moved for others, and all would wait longer."""
FAULT: Document = {"at": "6s", "node": "r1-n2", "gpu": 5, "kills": True}


@dataclass(frozen=True)
class DemoArrival:
    """A job and when it is submitted, in seconds from the start."""

    at: float
    job: Document


def fleet_text() -> str:
    """The fleet file: 32 nodes of 8 GPUs, three models, four racks, three queues, one fault."""
    nodes = [
        {"name": f"{rack}-n{number}", "pool": model.split("-")[0].lower(), "model": model, "gpus": GPUS_A_NODE,
         "cpu": 96, "memory": "1Ti", "islands": [[0, 1, 2, 3], [4, 5, 6, 7]], "domains": {"rack": rack}}
        for rack, model in RACKS.items()
        for number in range(NODES_A_RACK)
    ]  # fmt: skip
    return json.dumps({
        "apiVersion": "gpuyard.dev/v1", "kind": "Snapshot", "topology": ["rack"], "nodes": nodes,
        "pools": [{"name": model.split("-")[0].lower(), "price": price} for model, price in PRICES.items()],
        "queues": [
            {"name": "research", "quota": 96}, {"name": "vision", "quota": 80}, {"name": "serve", "quota": 80},
        ],
        "faults": [FAULT],
    })  # fmt: skip


def scaled(policy: Policy) -> Policy:
    """For jobs that last seconds."""
    return replace(policy, min_runtime=SPARED_S, defrag_every=TIDIED_S)


def arrivals() -> list[DemoArrival]:
    """All the work, in the order of its coming."""
    found = [*_notebooks(), *_trainings(), *_gangs(), *_sweeps(), *_services(), *_stories()]
    return sorted(found, key=lambda arrival: (arrival.at, arrival.job["name"]))


def small_arrivals(gpus: int) -> list[DemoArrival]:
    """The same spirit on a machine with a few real GPUs: nothing is asked of them but to be held."""
    classes = ("training", "batch", "interactive", "batch")
    return [
        DemoArrival(
            round(number * 0.2, 2),
            _job(f"job-{number}", "default", classes[number % 4], 1 + number % max(1, gpus), 1.0),
        )
        for number in range(60)
    ]


def _job(name: str, queue: str, kind: str, gpus: int, seconds: float, **more: Any) -> Document:
    return {
        "name": name, "queue": queue, "class": kind, "gpus": gpus,
        "warm_up": "1s", "checkpoint": {"grace": "1s"}, "run": {"command": ["sleep", f"{seconds:g}"]}, **more,
    }  # fmt: skip


def _notebooks() -> Iterator[DemoArrival]:
    """Five GPUs of every L40S node: three stay free on each, and nobody can have eight together."""
    for number in range(NODES_A_RACK):
        yield DemoArrival(0.0, _job(f"notebook-{number}", "vision", "interactive", 5, 16.0, models=[L40S]))


def _trainings() -> Iterator[DemoArrival]:
    """Research takes what is idle, far above its quota."""
    for number in range(34):
        gpus, seconds = (8, 4, 2)[number % 3], 3.0 + number % 4
        job = _job(f"train-{number}", "research", "training", gpus, seconds, models=TRAINED_ON)
        yield DemoArrival(round(number * 0.05, 2), job)
    for number in range(34, 64):
        gpus, seconds = (4, 8, 1)[number % 3], 2.0 + number % 3
        at = 3.0 + (number - 34) * 0.3
        yield DemoArrival(round(at, 2), _job(f"train-{number}", "vision", "training", gpus, seconds, models=TRAINED_ON))


def _gangs() -> Iterator[DemoArrival]:
    """Whole gangs inside one rack, or nothing."""
    for number in range(8):
        gang = {"tasks": 2 + number % 3, "topology": {"required": "rack"}, "models": TRAINED_ON}
        at = 0.5 + number * 1.5
        yield DemoArrival(at, _job(f"llm-{number}", ("research", "vision")[number % 2], "training", 8, 4.0, **gang))


def _sweeps() -> Iterator[DemoArrival]:
    """Many small ones that fill the gaps."""
    for number in range(96):
        at = 0.4 + number * (LAST_ARRIVAL_S - 1.0) / 96
        queue = ("research", "vision")[number % 2]
        job = _job(f"sweep-{number}", queue, "batch", 1 + number % 2, 1.5 + number % 3, models=TRAINED_ON)
        yield DemoArrival(round(at, 2), job)


def _services() -> Iterator[DemoArrival]:
    """Serving comes late, inside its quota: whoever borrowed has to give back."""
    for number in range(20):
        at = 4.0 + number * 0.3
        yield DemoArrival(round(at, 2), _job(f"api-{number}", "serve", "inference", 4, 5.0, models=["H100"]))


def _stories() -> Iterator[DemoArrival]:
    yield DemoArrival(1.0, _job(STRANDED, "vision", "batch", 8, 2.0, models=[L40S]))
    yield DemoArrival(1.5, _job(OVER_LIMIT, "research", "batch", 1, 600.0, time_limit="4s"))
