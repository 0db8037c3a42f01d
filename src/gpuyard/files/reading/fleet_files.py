"""Fleet files: a snapshot without jobs, and with faults where a virtual fleet is to have some.

Called by `yard up --fleet` and `yard demo`. A fault is not part of any moment, so a snapshot has none.
"""

from __future__ import annotations

import pathlib
from dataclasses import dataclass

from gpuyard.files.format.entries import GPU_INDEX, NAME
from gpuyard.files.format.kinds import Choice, Duration, Flag, ListOf
from gpuyard.files.format.tables import EntryOf, slot
from gpuyard.files.problems import Problems
from gpuyard.files.reading.snapshots import check_header, snapshot_of
from gpuyard.files.text import documents
from gpuyard.model.node import Health
from gpuyard.model.outside.phrases import counted
from gpuyard.model.snapshot import Snapshot


@dataclass(slots=True, kw_only=True)
class FaultEntry:
    """Something that breaks: a GPU falls sick, or without `gpu` a whole node is gone."""

    at: float = slot(Duration(), "How long after the yard has started.")
    node: str = slot(NAME, "The node.")
    gpu: int | None = slot(GPU_INDEX, "The GPU; left out: the node itself.", None)
    health: Health = slot(Choice(Health), "What becomes of the GPU.", Health.SICK)
    lasts: float | None = slot(Duration(zero=False), "How long; left out: for good.", None)
    kills: bool = slot(Flag(), "Whether what runs there dies of it.", False)


def read_fleet(path: pathlib.Path, now: float) -> tuple[Snapshot, tuple[FaultEntry, ...]]:
    """The fleet that a file describes, and its faults."""
    return parse_fleet(documents.read_text(path), str(path), now)


def parse_fleet(text: str, name: str, now: float) -> tuple[Snapshot, tuple[FaultEntry, ...]]:
    """The fleet that a text describes; `name` is what to call the text when it is wrong."""
    document = documents.parse(text, name)
    check_header(document, "Snapshot")
    problems = Problems(name, document.data)
    if document.data.get("jobs"):
        problems.add(("jobs",), "a fleet file has no jobs; `yard plan` reads files that do")
    given = document.data.pop("faults", [])
    faults = ListOf(EntryOf(lambda: FaultEntry)).read(given, ("faults",), problems) or ()
    snapshot = snapshot_of(document, now, problems)
    _check_places(faults, snapshot, problems)
    problems.refuse_if_any(document.line)
    return snapshot, tuple(faults)


def _check_places(faults: tuple[FaultEntry, ...], snapshot: Snapshot, problems: Problems) -> None:
    sizes = {node.name: len(node.gpus) for node in snapshot.nodes}
    for place, fault in enumerate(faults):
        if fault.node not in sizes:
            problems.add(("faults", place, "node"), f"there is no node {fault.node}", fault.node, sizes)
        elif fault.gpu is not None and fault.gpu >= sizes[fault.node]:
            problems.add(
                ("faults", place, "gpu"), f"{fault.node} has {counted(sizes[fault.node], 'GPU')}, counted from 0"
            )
