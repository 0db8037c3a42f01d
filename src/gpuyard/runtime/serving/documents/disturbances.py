"""Who would be stopped or moved, and what is lost: told before it is done.

Called for previews of jobs and of queues. Works on planning runs over moments of its caller's, so whoever may not know
of a job finds it under another name.
"""

from __future__ import annotations

from gpuyard.brain.foresee import Foresight
from gpuyard.model.actions import Evict, Move
from gpuyard.model.outside.phrases import counted, work_again
from gpuyard.model.resources import as_gpus
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.service import Document


def documents(after: Foresight, before: Foresight | Snapshot) -> list[Document]:
    """Those whom the plan disturbs and the plan of the moment before would not; the dearest first.

    `job`, `must` (stop, move or shrink), `gpus`, `lost_seconds` of its work, `saves` where it is told to save it first,
    `to` (nodes), `for`, and all of it as `message`.
    """
    found = _disturbed(after)
    if found:
        anyhow = _disturbed(Foresight(before) if isinstance(before, Snapshot) else before)
        found = {job: told for job, told in found.items() if job not in anyhow}
    return sorted(found.values(), key=lambda told: (-float(told["lost_seconds"]) * float(told["gpus"]), told["job"]))


def _disturbed(foresight: Foresight) -> dict[str, Document]:
    changes = [each for each in foresight.changes() if isinstance(each, Evict | Move)]
    tolls = foresight.bill(changes).tolls
    return {
        action.job: _document(foresight, action, float(as_gpus(toll.gpus)), toll.lost_gpu_s)
        for action, toll in zip(changes, tolls, strict=True)
    }


def _document(foresight: Foresight, action: Evict | Move, gpus: float, lost_gpu_s: float) -> Document:
    job = foresight.fleet.jobs[action.job].job
    document: Document = {"job": action.job, "gpus": int(gpus) if gpus == int(gpus) else gpus}
    document["lost_seconds"] = round(lost_gpu_s / gpus, 1) if gpus else 0.0
    if job.checkpoint is not None:
        document["saves"] = True
    if isinstance(action, Move):
        document |= {"must": "move", "to": sorted({place.node for place in action.target})}
    else:
        document["must"] = "shrink" if action.placements else "stop"
    document |= {"for": action.beneficiary} if action.beneficiary else {}
    return document | {"message": _sentence(document)}


def _sentence(told: Document) -> str:
    gpus = counted(told["gpus"], "GPU")
    cost = f"({gpus}, {work_again(float(told['lost_seconds']), bool(told.get('saves')))})"
    if told["must"] == "move":
        return f"{told['job']} would be moved to {', '.join(told['to'])} {cost}"
    return f"{told['job']} would {'be stopped' if told['must'] == 'stop' else 'give back tasks'} {cost}"
