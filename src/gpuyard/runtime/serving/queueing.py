"""The queues of a live yard: what each holds and is due, and what would follow if one were changed.

Called by the embedded yard. What was set by command is kept apart from the fleet file and laid over it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpuyard import files
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.sharing import fair_share
from gpuyard.brain.foresee import Foresight
from gpuyard.files.format.entries import API_VERSION
from gpuyard.files.writing import queue_document
from gpuyard.model.actions import Action, Evict, Start
from gpuyard.model.queue import ROOT, Queue
from gpuyard.model.resources import UNLIMITED, as_gpus
from gpuyard.model.snapshot import Snapshot

Document = dict[str, Any]


def documents(moment: Snapshot) -> list[Document]:
    """The queues with quota, limit, use, fair share and how many wait."""
    fleet = Fleet(moment)
    shares = fair_share.fair_shares(fleet.tree, fleet.demand, fleet.capacity())
    waiting = [row.queue for row in fleet.short.values()]
    found = []
    for at, queue in enumerate(fleet.tree.queues):
        if queue.name == ROOT and queue.quota.gpu >= UNLIMITED and queue.limit.gpu >= UNLIMITED:
            continue
        share = as_gpus(shares[at][0])
        found.append(
            {"parent": queue.parent, "weight": queue.weight}
            | queue_document(queue)
            | {
                "quota": as_gpus(fleet.tree.quota[at][0]),
                "limit": as_gpus(fleet.tree.limit[at][0]),
                "used": as_gpus(fleet.tree.used[at][0]),
                "fair_share": share if isinstance(share, str) else float(share),
                "waiting": waiting.count(at),
            }
        )
    return sorted(found, key=lambda document: str(document["name"]))


def laid_over(queues: Sequence[Queue], changes: Sequence[Document], topology: Sequence[str]) -> tuple[Queue, ...]:
    """The queues with some of them set anew, read and checked as a file would be."""
    written = {queue.name: queue_document(queue) for queue in queues}
    for change in changes:
        name = change.get("name")
        written[str(name)] = written.get(str(name), {}) | change
    header = {"apiVersion": API_VERSION, "kind": "Snapshot", "topology": list(topology)}
    return files.parse_snapshot(json.dumps({**header, "queues": list(written.values())}), "queue", 0.0).queues


def consequences(moment: Snapshot, queues: tuple[Queue, ...]) -> Document:
    """Who would lose or get GPUs if the queues were these."""
    before, after = (Foresight(each, cycles=1).outlook().actions for each in (moment, replace(moment, queues=queues)))
    lost, won = _named(after, Evict) - _named(before, Evict), _named(after, Start) - _named(before, Start)
    parts = [f"{', '.join(sorted(lost))} would be evicted"] if lost else ["nobody loses a GPU"]
    parts += [f"{', '.join(sorted(won))} could start"] if won else []
    return {"evicted": sorted(lost), "started": sorted(won), "message": "; ".join(parts)}


def _named(actions: Sequence[Action], kind: type[Evict] | type[Start]) -> set[str]:
    return {action.job for action in actions if isinstance(action, kind)}
