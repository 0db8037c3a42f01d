"""Nodes as plain documents: the snapshot's keys, and for each device its health and who holds it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuyard.files.units import write_time
from gpuyard.files.writing import node_document
from gpuyard.model.node import Closure, Gpu, Health, Node
from gpuyard.model.resources import WHOLE
from gpuyard.runtime.service import Document

Use = Mapping[tuple[str, int], Mapping[int, int]]
"""Grains of each device by the number of the job that holds them."""


Measured = Mapping[tuple[str, int], Document]
"""What sensors tell of each device."""


def nodes_documents(nodes: Iterable[Node], use: Use, names: Mapping[int, str], measured: Measured) -> list[Document]:
    """The nodes, who holds each GPU, and how it is."""
    found = [_node_document(node, use, names) for node in sorted(nodes, key=lambda node: node.name)]
    for node in found:
        for device in node["devices"]:
            device |= measured.get((node["name"], device["index"]), {})
    return found


def _node_document(node: Node, use: Use, names: Mapping[int, str]) -> Document:
    devices = [_device(gpu, use.get((node.name, gpu.index), {}), names) for gpu in node.gpus]
    open_ = [device for device in devices if "phase" not in device and device["health"] != Health.SICK.value]
    defaults = {"name": node.name, "pool": "", "gpus": 0, "model": "", "domains": {}, "cordoned": False}
    jobs = sorted({job for device in devices for job in device["jobs"]})
    return (
        defaults
        | node_document(node)
        | {
            "cordoned": node.closed is not None,
            "phase": _phase(node.closed, bool(jobs)) if node.closed is not None else "ready",
            "free": 0 if node.closed is not None else sum(not device["jobs"] for device in open_),
            "used": round(sum(device["used"] for device in devices), 3),
            "jobs": jobs,
            "devices": devices,
        }
        | drain_document(node.closed)
    )


def _device(gpu: Gpu, held: Mapping[int, int], names: Mapping[int, str]) -> Document:
    closed = {} if gpu.closed is None else {"phase": _phase(gpu.closed, bool(held))} | drain_document(gpu.closed)
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "health": gpu.health.value,
        "island": gpu.island,
        "jobs": sorted({names.get(job, "") for job in held} - {""}),
        "used": round(min(1.0, sum(held.values()) / WHOLE), 3),
    } | closed


def _phase(closure: Closure, held: bool) -> str:
    if not closure.drains:
        return "cordoned"
    return "draining" if held else "drained"


def drain_document(closure: Closure | None) -> Document:
    """Who drains it, since when and why; of what is closed otherwise, why."""
    if closure is None or not closure.drains:
        return {"closed": closure.reason} if closure is not None and closure.reason else {}
    return {"drain": {"reason": closure.reason, "by": closure.by, "since": write_time(closure.since)}}
