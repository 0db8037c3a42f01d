"""Which yard to start: its fleet, its state folder, and whether its GPUs are real. Called by `up` and `demo`."""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard.model.outside.ports import Clock

if TYPE_CHECKING:
    from gpuyard.model.snapshot import Snapshot
    from gpuyard.runtime.service import Yard

VIRTUAL_GPUS = 8
HEADER = {"apiVersion": "gpuyard.dev/v1", "kind": "Snapshot"}


@dataclass(frozen=True)
class YardFleet:
    """The fleet to run, and how to speak of it."""

    snapshot: Snapshot
    virtual: bool
    told: str
    faults: tuple[Any, ...] = ()


def find(path: str, now: float) -> YardFleet:
    """The fleet of a file, else the GPUs of this machine, else virtual ones."""
    if path:
        return of_file(Path(path), now)
    return of_this_machine(now) or one_virtual_node(now)


def of_file(path: Path, now: float) -> YardFleet:
    """Virtual nodes of any shape; a fleet file is a snapshot without jobs."""
    from gpuyard.files.text import documents

    return of_text(documents.read_text(path), str(path), now)


def of_text(text: str, name: str, now: float) -> YardFleet:
    """Virtual nodes as a fleet file's text has them."""
    from gpuyard import files
    from gpuyard.worlds.local.seam.breakage import Fault

    snapshot, faults = files.parse_fleet(text, name, now)
    made = (Fault(each.at, each.node, each.gpu, each.health, each.lasts, each.kills) for each in faults)
    return YardFleet(snapshot, True, f"virtual: {_counted(snapshot)}, as in {name}", tuple(made))


def of_this_machine(now: float) -> YardFleet | None:
    """What NVML finds here; None if it finds nothing."""
    from gpuyard.agent import discovery

    nodes = discovery.nodes()
    if not nodes:
        return None
    found = replace(_parsed({}, now), nodes=nodes)
    return YardFleet(found, False, f"real: {_counted(found)} ({', '.join(sorted({node.model for node in nodes}))})")


def one_virtual_node(now: float) -> YardFleet:
    """This machine with GPUs that do not exist; its jobs are real processes all the same."""
    node = {"name": platform.node() or "here", "gpus": VIRTUAL_GPUS, "model": "virtual", "gpu_memory": "80Gi"}
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

    settings = Settings(state, fleet.snapshot, virtual=fleet.virtual, faults=fleet.faults, **more)
    return EmbeddedYard(settings, clock)


def _counted(snapshot: Snapshot) -> str:
    from gpuyard.cli.console import words

    gpus = sum(len(node.gpus) for node in snapshot.nodes)
    return f"{words.counted(gpus, 'GPU')} on {words.counted(len(snapshot.nodes), 'node')}"
