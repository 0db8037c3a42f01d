"""On which grounds somebody gives way, in words: one way to say it, as a claim is made and when a plan is told."""

from __future__ import annotations

from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.model.policy import AcrossQueues, Policy
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.resources import gpu_words


def is_critical(policy: Policy, row: JobRow) -> bool:
    """Whether the job may take from other queues by its priority alone (rule 18)."""
    return row.priority >= policy.critical_priority and policy.preempt_across_queues is not AcrossQueues.NEVER


def why_stopped(fleet: Fleet, claimant: JobRow, victim: JobRow, cost: int) -> Reason:
    """Priority in a queue, critical priority across queues, or the shares of queues (rules 16 to 18)."""
    tree, name = fleet.tree, claimant.name
    theirs = tree.queues[victim.queue].name
    if victim.queue == claimant.queue:
        over = f"has priority {claimant.priority} over {victim.priority} in queue {theirs}"
        told = over if claimant.priority > victim.priority else f"comes before it in queue {theirs}"
        return Reason(Code.PREEMPTED, needed=cost, where=name, message=f"{name} {told}")
    gpus = gpu_words(cost)
    if is_critical(fleet.policy, claimant) and victim.priority < claimant.priority:
        message = f"{name} is critical (priority {claimant.priority}) and takes {gpus} across queues"
        return Reason(Code.CRITICAL, needed=cost, where=name, message=message)
    ours = tree.queues[claimant.queue].name
    message = f"queue {ours} takes back {gpus} that {theirs} holds above its quota or fair share"
    return Reason(Code.RECLAIMED, needed=cost, where=name, message=message)


def why_moved(claimant: str) -> Reason:
    """Nobody stops, and somebody fits."""
    return Reason(Code.CONSOLIDATED, where=claimant, message=f"moved so that {claimant} fits" if claimant else "")
