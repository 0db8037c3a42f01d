"""What would happen to a job: whether it could ever run here, whether it starts now, and why not.

Called for previews and `why`. Works on snapshots of its own; nothing live is touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gpuyard.brain.engine.explaining import sizing
from gpuyard.brain.engine.nodes.requests import STATIC_CHECKERS
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.reserving import eta
from gpuyard.brain.foresee import Foresight
from gpuyard.files.explanations import explanation_document
from gpuyard.model.errors import NotFound
from gpuyard.model.job import Job
from gpuyard.model.node import NO_LOAD, Health, Node
from gpuyard.model.reasons import Explanation, Outcome
from gpuyard.model.resources import WHOLE, as_gpus
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.service import Document
from gpuyard.runtime.serving.call_limits import Patience
from gpuyard.runtime.serving.documents import disturbances, job_documents


def kind_of(job: Job) -> Job:
    """What decides whether a job could ever run: alike ones are asked about once."""
    return replace(job, name="?", submitted=0.0, user="", run=None, on_hold=False)


def never(snapshot: Snapshot, job: Job) -> Explanation | None:
    """Why the job could not run even if the fleet were empty, open, well and as large as its pools allow."""
    nodes = (*map(_well, snapshot.nodes), *_could_be_added(snapshot))
    alone = replace(snapshot, nodes=nodes, jobs=(replace(job, on_hold=False),), reservations=(), budgets=(), memory={})
    foresight = Foresight(alone, cycles=1)
    row = foresight.fleet.rolls.short.get(job.name)
    return None if row is None else foresight.explain(row)


def _well(node: Node) -> Node:
    gpus = tuple(replace(gpu, health=Health.HEALTHY, closed=None) for gpu in node.gpus)
    return replace(node, closed=None, taken=NO_LOAD, gpus=gpus)


def _could_be_added(snapshot: Snapshot) -> list[Node]:
    """Nodes that pools below their maximum size may still get."""
    added: list[Node] = []
    for pool in snapshot.pools:
        members = [node for node in snapshot.nodes if node.pool == pool.name]
        numbers = range(len(members), pool.max_nodes) if members else ()
        added += [replace(_well(members[0]), name=f"{pool.name} +{number}") for number in numbers]
    return added


def previews(snapshot: Snapshot, jobs: Sequence[Job], patience: Patience, others: Sequence[Job] = ()) -> list[Document]:
    """Verdict, sentence, ETA, what its queue then uses, whom it disturbs, and the price of an hour, of each as they
    come together; `others` come with them and are not told of."""
    hopeless: dict[str, Document] = {}
    possible: set[Job] = set()
    for number, job in enumerate(jobs):
        kind = kind_of(job)
        if kind in possible:
            continue
        patience.spend(number, len(jobs))
        explanation = never(snapshot, job)
        if explanation is not None and explanation.reason.outcome is Outcome.NEVER:
            told = {"verdict": "never", "message": str(explanation.reason)}
            hopeless[job.name] = told | _without_job(explanation)
        else:
            possible.add(kind)
    hopeful = [job for job in jobs if job.name not in hopeless]
    expected = dict(zip((job.name for job in hopeful), expect_all(snapshot, hopeful, patience, others), strict=True))
    told_of = hopeless | expected
    return [{"name": job.name} | told_of[job.name] for job in jobs]


def expect_all(
    snapshot: Snapshot, jobs: Sequence[Job], patience: Patience, others: Sequence[Job] = ()
) -> list[Document]:
    """What the next plan would make of jobs that could run, planned once for all of them."""
    if not jobs:
        return []
    foresight = Foresight(replace(snapshot, jobs=(*snapshot.jobs, *jobs, *others)))
    disturbed = disturbances.documents(foresight, snapshot)
    found = []
    for number, job in enumerate(jobs):
        patience.spend(number, len(jobs))
        disturbs = _disturbs(job, disturbed, alone=len(jobs) == 1)
        found.append(_expected(foresight, job, at_once=not disturbs) | disturbs)
    return found


def _disturbs(job: Job, disturbed: Sequence[Document], alone: bool) -> Document:
    """Whom it would stop or move; one that comes alone, with all its members, answers for everybody."""
    own = [told for told in disturbed if alone or told.get("for") == job.name]
    return {"disturbs": own} if own else {}


def _expected(foresight: Foresight, job: Job, at_once: bool) -> Document:
    """It starts, at once or when others have made room, or waits and why."""
    document: Document = {}
    row = foresight.fleet.rolls.short.get(job.name)
    document["queue"] = _queue_after(foresight, job)
    document |= _sizing(foresight, job) | _price(foresight, job)
    if row is None:
        places = _places(foresight, job.name)
        where = ", ".join(sorted({place["node"] for place in places}))
        told = f"starts now on {where}" if at_once else f"starts on {where} once room is made"
        return document | {"verdict": "starts", "message": told, "placements": places}
    explanation = foresight.explain(row)
    document |= _without_job(explanation) | _eta(foresight, job.name)
    return document | {"verdict": "waits", "message": str(explanation.reason)}


def why(snapshot: Snapshot, name: str) -> Document:
    """Why a job waits, and until when."""
    foresight = Foresight(snapshot, cycles=1)
    if name not in foresight.fleet.jobs:
        raise NotFound(f"there is no job {name}")
    row = foresight.fleet.rolls.short.get(name)
    if row is None:
        places = _places(foresight, name)
        return {"job": name, "message": "it starts with the next plan", "starts": True, "placements": places}
    explanation = foresight.explain(row)
    document = explanation_document(explanation) | _eta(foresight, name)
    return document | {"message": str(explanation.reason)}


def _places(foresight: Foresight, name: str) -> list[Document]:
    row = foresight.fleet.jobs[name]
    return [job_documents.placement_document(foresight.fleet.placement(row, held)) for held in sorted(row.held)]


def _without_job(explanation: Explanation) -> Document:
    document = explanation_document(explanation)
    del document["job"]
    return document


def _sizing(foresight: Foresight, job: Job) -> Document:
    """What sizes near it would find, where its own does not divide a node."""
    advice = sizing.advise(foresight.draft, foresight.fleet.jobs[job.name])
    if advice is None:
        return {}
    places = [{"gpus": each.gpus, "now": each.now, "empty": each.empty} for each in advice.places]
    return {"sizing": {"message": str(advice), "places": places}}


def _eta(foresight: Foresight, name: str) -> Document:
    row = foresight.fleet.rolls.short.get(name)
    span = eta.estimate(foresight.draft, row) if row is not None else None
    if span is None:
        return {}
    times = {"earliest": foresight.now + span[0], "latest": foresight.now + span[1]}
    return {"eta": times, "eta_seconds": [round(seconds) for seconds in span]}


def _queue_after(foresight: Foresight, job: Job) -> Document:
    tree = foresight.fleet.tree
    at = tree.index[job.queue]
    amounts = {"quota": tree.quota[at][0], "limit": tree.limit[at][0], "used": tree.used[at][0]}
    return {"name": job.queue} | {key: as_gpus(amount) for key, amount in amounts.items()}


def _price(foresight: Foresight, job: Job) -> Document:
    """What an hour of the whole job costs: where it starts, else at the cheapest of the places that it could use.

    Told only where all of these have a price: a figure that holds for some of them misleads.
    """
    row, fleet = foresight.fleet.jobs[job.name], foresight.fleet
    prices = {pool.name: pool.gpu_hour() for pool in fleet.pools.values() if pool.price}
    if row.held:
        costs = [held.cost * prices.get(fleet.columns.nodes[held.node].pool, 0.0) for held in row.held]
    else:
        costs = [_least(foresight, row, leaf, prices) for leaf in range(len(row.groups))]
    return {"price_per_hour": round(sum(costs) / WHOLE, 4)} if costs and all(costs) else {}


def _least(foresight: Foresight, row: JobRow, leaf: int, prices: Mapping[str, float]) -> float:
    """What all tasks of a group that waits cost at least in an hour; 0 if it could land where nothing has a price."""
    request, nodes = row.requests[leaf], foresight.fleet.columns.nodes
    eligible = [nodes[n] for n in np.flatnonzero(foresight.fleet.shapes.static(request, STATIC_CHECKERS))]
    each = min((request.cost_on(node) * prices.get(node.pool, 0.0) for node in eligible), default=0.0)
    return row.groups[leaf].tasks * each
