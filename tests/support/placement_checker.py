"""Checks a placement file without our code: nothing here knows the engine, the world or the model.

It follows the lines one by one and counts what every device, CPU and job holds. `check` returns what is wrong.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping


class Ledger:
    """Free thousandths per device, free CPU per node, and where every job stands."""

    def __init__(self, gpus: Mapping[str, int], cpu: Mapping[str, int]) -> None:
        self.free = {(node, g): 1000 for node, count in gpus.items() for g in range(count)}
        self.cpu = dict(cpu)
        self.held: dict[str, list[tuple[str, list[int], list[int], int]]] = defaultdict(list)
        self.problems: list[str] = []

    def take(self, job: str, line: Mapping, cores: int) -> None:
        for g, milli in zip(line["gpus"], line["milli"], strict=True):
            self.free[line["node"], g] -= milli
            if self.free[line["node"], g] < 0:
                self.problems.append(f"{job} overfills GPU {g} of {line['node']}")
        if len(set(line["gpus"])) != len(line["gpus"]):
            self.problems.append(f"{job} takes one GPU twice")
        if line["node"] in self.cpu:
            self.cpu[line["node"]] -= cores
            if self.cpu[line["node"]] < 0:
                self.problems.append(f"{job} overfills the CPU of {line['node']}")
        self.held[job].append((line["node"], line["gpus"], line["milli"], cores))

    def give_back(self, job: str) -> None:
        for node, gpus, millis, cores in self.held.pop(job, []):
            for g, milli in zip(gpus, millis, strict=True):
                self.free[node, g] += milli
            if node in self.cpu:
                self.cpu[node] += cores


def check(
    lines: Iterable[str], gpus: Mapping[str, int], cpu: Mapping[str, int], cores: Mapping[str, int], once: bool = False
) -> list[str]:
    """What is wrong with a placement file; `cores` gives each job's CPU per task, `once`: tried once, in order."""
    ledger = Ledger(gpus, cpu)
    known: set[str] = set()
    moving: tuple[str, str, float] = ("", "", -1.0)
    last, asked = -1.0, ""
    for text in lines:
        line = json.loads(text)
        job, event, at = line["job"], line["event"], line["t"]
        if at < last:
            ledger.problems.append(f"time runs back at {at}")
        if once and asked and event != "move" and (job != asked or event not in ("place", "drop")):
            ledger.problems.append(f"{asked} was not answered at once")
        if event == "arrive":
            known.add(job)
        elif job not in known:
            ledger.problems.append(f"{job} never arrived")
        elif event in ("evict", "finish"):
            ledger.give_back(job)
        elif event in ("place", "move", "resize"):
            if event != "place" and moving != (event, job, at):
                ledger.give_back(job)
                moving = (event, job, at)
            ledger.take(job, line, cores.get(job.split("#")[0], 0))
        last, asked = at, job if event == "arrive" else "" if event != "move" else asked
    return ledger.problems
