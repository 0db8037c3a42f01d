"""Which yard to start: its fleet, its state folder, and whether its GPUs are real. Called by `up` and `demo`."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard.model.errors import Refused
from gpuyard.model.outside.ports import Clock
from gpuyard.model.resources import UNLIMITED
from gpuyard.runtime.clock import SystemClock

if TYPE_CHECKING:
    from gpuyard.model.snapshot import Snapshot
    from gpuyard.runtime.service import Yard

VIRTUAL_GPUS = 8
DISCOVERY_S = 30.0
"""How long NVML may take to say what GPUs there are."""
MACHINE = "machine"
"""In the place of a fleet file: what this machine has, whatever was given before."""
REMEMBERED = "fleet.yaml"
"""The file of the state folder that holds the fleet as it was last given."""
HEADER = {"apiVersion": "gpuyard.dev/v1", "kind": "Snapshot"}


@dataclass(frozen=True)
class YardFleet:
    """The fleet to run, and how to speak of it."""

    snapshot: Snapshot
    virtual: bool
    told: str
    faults: tuple[Any, ...] = ()
    text: str = ""
    """The file it was read from, if it was."""


def find(path: str, state: Path, now: float) -> YardFleet:
    """The fleet of a file; the one this yard was last given; the GPUs of this machine; else virtual ones."""
    if path == MACHINE:
        return of_this_machine(now) or one_virtual_node(now)
    if path:
        return of_file(Path(path), now)
    return remembered(state, now) or of_this_machine(now) or one_virtual_node(now)


def of_file(path: Path, now: float) -> YardFleet:
    """Virtual nodes of any shape; a fleet file is a snapshot without jobs."""
    from gpuyard.files.text import documents

    text = documents.read_text(path)
    return replace(of_text(text, str(path), now), text=text)


def remembered(state: Path, now: float) -> YardFleet | None:
    """The fleet that the yard with this state folder was last given; None if it never was."""
    path = state / REMEMBERED
    if not path.is_file():
        return None
    fleet = of_file(path, now)
    told = f"virtual: {_counted(fleet.snapshot)}, as last given with --fleet (`--fleet {MACHINE}` takes this machine)"
    return replace(fleet, told=told)


def remember(fleet: YardFleet, state: Path) -> None:
    """Once it is up: the next `yard up` needs no --fleet. One without a file is looked for anew each time."""
    path = state / REMEMBERED
    if not fleet.text:
        path.unlink(missing_ok=True)
    elif not path.is_file() or path.read_text(encoding="utf-8") != fleet.text:
        beside = path.with_suffix(".new")
        with beside.open("w", encoding="utf-8") as file:
            file.write(fleet.text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)


def of_text(text: str, name: str, now: float) -> YardFleet:
    """Virtual nodes as a fleet file's text has them."""
    from gpuyard import files
    from gpuyard.worlds.local.seam.breakage import Fault

    snapshot, faults = files.parse_fleet(text, name, now)
    made = (Fault(each.at, each.node, each.gpu, each.health, each.lasts, each.kills) for each in faults)
    return YardFleet(snapshot, True, f"virtual: {_counted(snapshot)}, as in {name}", tuple(made))


def of_this_machine(now: float) -> YardFleet | None:
    """What NVML finds here; None if it finds nothing. One that does not answer is no machine without GPUs."""
    from gpuyard.agent import discovery
    from gpuyard.agent.nvml.caller import NvmlSource, machine_once
    from gpuyard.agent.nvml.facts import ABSENT, Trouble

    machine = machine_once(NvmlSource(deadline_s=DISCOVERY_S), SystemClock().monotonic)
    if isinstance(machine, Trouble) and machine.kind not in ABSENT:
        raise Refused(f"What GPUs this machine has cannot be told: {machine}. `yard doctor` says more.")
    nodes = () if isinstance(machine, Trouble) else discovery.nodes(machine)
    if isinstance(machine, Trouble) or not nodes:
        return None
    found = replace(_parsed({}, now), nodes=nodes)
    gone = f"; {len(machine.unseen)} more cannot be reached (`yard doctor`)" if machine.unseen else ""
    models = ", ".join(sorted({node.model for node in nodes}))
    return YardFleet(found, False, f"real: {_counted(found)} ({models}){gone}")


def of_record(path: Path, now: float) -> YardFleet:
    """A recorded machine: its GPUs are virtual here, and its sensors tell what was recorded."""
    from gpuyard.agent import discovery
    from gpuyard.agent.nvml import record

    found = replace(_parsed({}, now), nodes=discovery.nodes(record.read(path).machine))
    return YardFleet(found, True, f"virtual: {_counted(found)}, as recorded in {path}")


def one_virtual_node(now: float) -> YardFleet:
    """This machine with GPUs that do not exist; its jobs are real processes all the same."""
    from gpuyard.agent import discovery

    node: dict[str, Any] = {"name": platform.node() or "here", "gpus": VIRTUAL_GPUS, "model": "virtual"}
    node |= {"gpu_memory": "80Gi", "cpu": discovery.cores_milli() / 1000}
    if (memory := discovery.memory_bytes()) < UNLIMITED:
        node["memory"] = memory
    told = f"virtual: no NVIDIA GPU was found here, so jobs are real processes on {VIRTUAL_GPUS} GPUs that are not"
    return YardFleet(_parsed({"nodes": [node]}, now), True, told)


def _parsed(content: dict[str, Any], now: float) -> Snapshot:
    """A snapshot as a file with that content would give it, with all that goes without saying."""
    import json

    from gpuyard import files

    return files.parse_snapshot(json.dumps(HEADER | content), "the fleet", now)


def make(fleet: YardFleet, state: Path, clock: Clock, **more: Any) -> Yard:
    """A yard on that fleet, not started yet; `more` are settings of the runtime's."""
    from gpuyard.runtime.embedded.yard import EmbeddedYard, Settings

    virtual = fleet.virtual
    settings = Settings(
        state, fleet.snapshot, virtual=virtual, faults=fleet.faults, keeps_places=virtual, **more
    )  # fmt: skip
    return EmbeddedYard(settings, clock)


def _counted(snapshot: Snapshot) -> str:
    from gpuyard.cli.console import words

    gpus = sum(len(node.gpus) for node in snapshot.nodes)
    return f"{words.counted(gpus, 'GPU')} on {words.counted(len(snapshot.nodes), 'node')}"
