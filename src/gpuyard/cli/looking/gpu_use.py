"""How busy GPUs are, as sensors tell: the listing of `yard top --by gpu`, and each job's figure. Used by `accounts`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuyard.cli.console import words
from gpuyard.cli.rendering.listings import live_tables
from gpuyard.cli.rendering.listings.tables import Listing, column

Document = dict[str, Any]
GIB = 1 << 30


def gpus(nodes: Sequence[Document]) -> list[Document]:
    """Every GPU, the busiest first; those of which nothing is known last."""
    found = [
        {"name": f"{node['name']}:{device['index']}", "model": node.get("model", ""), **device}
        for node in nodes
        for device in live_tables.devices(node)
    ]
    return sorted(found, key=lambda row: (-row.get("utilization", -1.0), -len(row.get("jobs", ())), row["name"]))


def of_jobs(nodes: Sequence[Document]) -> Mapping[str, float]:
    """The mean of the GPUs of each job now; jobs whose GPUs nobody measures are left out."""
    found: dict[str, list[float]] = {}
    for node in nodes:
        for device in live_tables.devices(node):
            for job in device.get("jobs", ()) if "utilization" in device else ():
                found.setdefault(job, []).append(device["utilization"])
    return {job: sum(each) / len(each) for job, each in found.items()}


def percent(share: Any) -> str:
    """A share of time; `-` where it is not known."""
    return "-" if share is None else f"{100 * share:.0f} %"


def _memory(row: Document) -> str:
    used, there = row.get("memory_used"), row.get("memory")
    return "-" if used is None or there is None else f"{used / GIB:.1f}/{there / GIB:.0f} GiB"


def _health(row: Document) -> str:
    """What is not known is not told as health."""
    return str(row["measured"]) if row.get("measured") in ("unknown", "lost") else str(row.get("health", "-"))


GPUS: Listing[Document] = Listing(
    "GPU",
    (
        column("GPU", lambda row: row["name"]),
        column("MODEL", lambda row: row["model"] or "-", wide=True),
        column("UTIL", lambda row: percent(row.get("utilization")), right=True),
        column("MEMORY", _memory, right=True),
        column("TEMP", lambda row: f"{row['temperature']} °C" if "temperature" in row else "-", right=True),
        column("POWER", lambda row: f"{row['power']:.0f} W" if "power" in row else "-", right=True),
        column("HEALTH", _health),
        column("JOBS", lambda row: words.some(row.get("jobs", [])) or "-", wraps=True),
        column("EVIDENCE", lambda row: row.get("evidence", "-"), wide=True, wraps=True),
    ),
    lambda row: row,
    "There is no GPU.",
)
