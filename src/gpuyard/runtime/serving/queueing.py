"""The queues of a live yard: what each holds and is due, and what would follow if one were changed.

What was set by command is kept apart from the fleet file and laid over it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from gpuyard import files
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Refusals
from gpuyard.brain.engine.sharing import fair_share
from gpuyard.brain.foresee import Foresight
from gpuyard.files.format.entries import API_VERSION
from gpuyard.files.writing import queue_document
from gpuyard.model.actions import Start
from gpuyard.model.errors import Denied, NotFound, Refused
from gpuyard.model.queue import ROOT, Queue
from gpuyard.model.resources import UNLIMITED, as_gpus
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.service import Caller, Document
from gpuyard.runtime.serving import fitting
from gpuyard.runtime.serving.documents import disturbances
from gpuyard.runtime.serving.port import JobRecord, KnownJobs, Site

DELETED = "deleted"
"""The key by which a change says that its queue is gone; with other keys beside it, that it was made anew."""


class Queueing:
    """Tells of queues, and sets them."""

    def __init__(self, jobs: KnownJobs[JobRecord], site: Site) -> None:
        self._jobs = jobs
        self._site = site
        self._told_at: object = None
        self._told: list[Document] = []

    def queues(self) -> list[Document]:
        """See `Service.queues`; worked out once as long as nothing changes."""
        version = self._site.version()
        if self._told_at != version:
            self._told_at, self._told = version, documents(self._site.moment())
        return self._told

    def set_queue(self, caller: Caller, document: Document, dry_run: bool) -> Document:
        """See `Service.set_queue`."""
        queues, answer = self._change(caller, document, dry_run)
        changed = next(queue for queue in queues if queue.name == document["name"])
        return answer | {"queue": {"name": changed.name} | queue_document(changed)}

    def delete_queue(self, caller: Caller, name: str, dry_run: bool) -> Document:
        """See `Service.delete_queue`."""
        if name not in {queue.name for queue in self._site.queues}:
            raise NotFound(f"there is no queue {name}")
        return self._change(caller, {"name": name, DELETED: True}, dry_run)[1]

    def _change(self, caller: Caller, change: Document, dry_run: bool) -> tuple[tuple[Queue, ...], Document]:
        """The tree with one queue changed, and what follows from that; kept unless it is a dry run."""
        if not caller.admin:
            raise Denied(f"{caller.user} may not change queues; an administrator can")
        with self._jobs.still():
            moment = self._site.moment()
            queues = self._queues_with(change)
        answer = consequences(moment, queues)
        if not dry_run:
            with self._jobs.still():  # looking ahead took a while: others may have changed something meanwhile
                self._site.set_queues(self._queues_with(change), change)
        return queues, answer | {"applied": not dry_run}

    def _queues_with(self, document: Document) -> tuple[Queue, ...]:
        """The tree with one queue set anew; refused where jobs stand in what would no longer be a leaf."""
        fleet = self._site.bare()
        queues = laid_over(fleet.queues, [document], fleet.topology)
        fitting.check_queues(queues, self._site.standing(), "Let them end, or cancel them, first")
        return queues


def documents(moment: Snapshot) -> list[Document]:
    """The queues with quota, limit, use, fair share and how many wait."""
    fleet = Fleet(moment)
    shares = fair_share.fair_shares(fleet.tree, fleet.demand, fleet.capacity())
    waiting = [row.queue for row in fleet.rolls.short.values()]
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
        name, told = str(change.get("name")), {key: value for key, value in change.items() if key != DELETED}
        if DELETED not in change:
            written[name] = written.get(name, {}) | told
        elif set(told) > {"name"}:  # made anew
            written[name] = told
        elif below := sorted(queue.name for queue in queues if queue.parent == name):
            raise Refused(f"queue {name} cannot be deleted while {', '.join(below)} stand below it")
        elif set(written) == {name}:
            raise Refused(f"queue {name} is the last; jobs need one to stand in")
        else:
            written.pop(name, None)
    header = {"apiVersion": API_VERSION, "kind": "Snapshot", "topology": list(topology)}
    return files.parse_snapshot(json.dumps({**header, "queues": list(written.values())}), "queue", 0.0).queues


def consequences(moment: Snapshot, queues: tuple[Queue, ...]) -> Document:
    """Who would lose or get GPUs if the queues were these."""
    afresh = {name: part for name, part in moment.memory.items() if name != Refusals.name}  # with these queues
    before, after = Foresight(moment), Foresight(replace(moment, queues=queues, memory=afresh))
    disturbed = disturbances.documents(after, before)
    won = _started(after) - _started(before)
    evicted = sorted(str(each["job"]) for each in disturbed if each["must"] == "stop")
    parts = [str(each["message"]) for each in disturbed] or ["nobody loses a GPU"]
    parts += [f"{', '.join(sorted(won))} could start"] if won else []
    return {"evicted": evicted, "disturbs": disturbed, "started": sorted(won), "message": "; ".join(parts)}


def _started(foresight: Foresight) -> set[str]:
    return {action.job for action in foresight.changes() if isinstance(action, Start)}
