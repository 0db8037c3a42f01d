"""What was used and what happened: reports and events for people, counts for metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuyard.model.errors import Refused
from gpuyard.runtime.service import Document
from gpuyard.runtime.serving.port import Past, Used
from gpuyard.runtime.serving.viewing import Viewer


def report(past: Past, viewer: Viewer, by: str, since: float) -> list[Mapping[str, Any]]:
    """See `Service.report`. Users are told apart by who they really are: a name that was given to another user has two
    lines."""
    columns = [column.strip() for column in by.replace("team", "queue").split(",")]
    if not columns or set(columns) - {"user", "queue"}:
        raise Refused(f"a report is by user or by queue, not by {by}")
    whose = None if viewer.sees_all or "user" not in columns else viewer.owner.identity
    keys = [*columns, *(["owner"] if "user" in columns else [])]
    return [_line(dict(zip(keys, used.keys, strict=True)), used) for used in past.used(keys, since, whose)]


def _line(known: dict[str, str], used: Used) -> Mapping[str, Any]:
    """What of it was in pools without a price costs nothing known: no money is told rather than none."""
    uid = known.pop("owner", "").partition(":")[0]
    return {
        "name": "/".join(known.values()), **known, **({"uid": int(uid)} if uid.isdecimal() else {}),
        "gpu_seconds": round(used.gpu_seconds, 3), "lost_gpu_seconds": round(used.lost, 3), "tasks": used.tasks,
        **({"productive_gpu_seconds": round(used.busy, 3), "idle_gpu_seconds": round(used.measured - used.busy, 3)}
           if used.measured else {}),
        **({"money": round(used.money, 4)} if used.money else {}),
    }  # fmt: skip


def events(past: Past, viewer: Viewer, after: int, limit: int) -> list[Document]:
    """See `Service.events`."""
    if after < 0:
        after = past.last() + 1 + after
    return [viewer.event(each) for each in past.events(after, limit)]
