"""Jobs that come last to a drawn yard, one of every kind; why they wait is told with everything in their way."""

from __future__ import annotations

from dataclasses import replace

from gpuyard.brain import foresee
from gpuyard.model.job import Bundle, Job
from gpuyard.model.reasons import Explanation
from gpuyard.model.snapshot import Snapshot
from gpuyard.model.topology import TopologyAsk
from tests.support.moments import moment

KINDS = moment(
    """
    nodes: [{name: n0, gpus: 8}]
    jobs:
      - {name: new-desk, class: interactive, gpus: 3}
      - {name: new-gang, tasks: 3, gpus: 2}
      - {name: new-odd, tasks: 2, gpus: 5, models: [H100], preemptible: false}
      - {name: new-part, fraction: 0.6, cpu: 12, memory: 48Gi, tasks: 3, min: 2}
      - {name: new-card, gpu_memory: 30Gi, models: [A100, H100], class: batch}
      - {name: new-slice, mig: {1g.10gb: 3}}
      - {name: new-replicas, class: inference, tasks: 4, min: 3, gpus: 1, avoid: {level: node, self: true}}
      - {name: new-wide, gpus: 16, time_limit: 1h}
      - name: new-nest
        min_groups: 1
        groups:
          - {name: left, groups: [{name: head, cpu: 6}, {name: tail, tasks: 2, gpus: 2}]}
          - {name: right, tasks: 2, min: 1, gpus: 4}
    """
).jobs
TURNS = 3


def told(snapshot: Snapshot) -> list[Explanation]:
    """Why those of them wait that do. A third of them come to each yard, to its queues by turns, and every other one
    must stay in one domain."""
    parents = {queue.parent for queue in snapshot.queues}
    leaves = sorted(queue.name for queue in snapshot.queues if queue.name not in parents)
    some = KINDS[len(snapshot.jobs) % TURNS :: TURNS]
    new = [_settled(snapshot, job, leaves[i % len(leaves)], i % 2 == 1) for i, job in enumerate(some)]
    after = foresee.Foresight(replace(snapshot, jobs=(*snapshot.jobs, *new)))
    return [after.explain(after.fleet.rolls.short[job.name]) for job in new if job.name in after.fleet.rolls.short]


def _settled(snapshot: Snapshot, job: Job, queue: str, together: bool) -> Job:
    level = snapshot.topology[-1] if snapshot.topology else "nvlink"
    gang: Bundle = replace(job.gang, topology=TopologyAsk(required=level)) if together else job.gang
    return replace(job, queue=queue, submitted=snapshot.now, gang=gang)
