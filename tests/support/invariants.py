"""What must hold for every plan, whatever the scenario: each broken promise is one sentence.

Written from the rules over Snapshot and Outlook alone, without the engine, so that scenarios and property tests can
judge it. A state that was already wrong before the plan is not held against it, unless the plan adds to the wrong.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

from gpuyard.model.actions import Evict, Move, Reserve, Start
from gpuyard.model.answers.outlook import Outlook
from gpuyard.model.job import Bundle, Job, JobClass, Placement, TaskGroup
from gpuyard.model.node import Alignment, Health
from gpuyard.model.queue import ROOT, Allowance, Queue, model_matches
from gpuyard.model.reasons import Code, Outcome
from gpuyard.model.resources import UNLIMITED, WHOLE
from gpuyard.model.snapshot import Reservation, Snapshot
from tests.support.eligibility import unfit
from tests.support.tasks import (
    Device,
    Task,
    bundle_complete,
    bundles,
    complete,
    domain_of,
    group_complete,
    key,
    leaf_names,
    scopes,
    tasks_after,
    tasks_before,
    tasks_mended,
)

Planner = Callable[[Snapshot], Outlook]
Check = Callable[[Snapshot, Outlook], Iterator[str]]

SLACK = Fraction(1, 1_000_000)
"""Shares are kept in grains, so a sum may be off by less than this."""


def violations(snapshot: Snapshot, outlook: Outlook) -> list[str]:
    """Every promise the plan breaks."""
    return [sentence for check in CHECKS for sentence in check(snapshot, outlook)]


def refused_by_kubelets(snapshot: Snapshot, outlook: Outlook) -> Iterator[str]:
    """Rule 12: where a kubelet insists on NUMA nodes, whole GPUs of a new task lie in one, or in the fewest that have
    as many at all."""
    for task in tasks_after(snapshot, outlook):
        node, gpus = task.node, task.placement.gpus
        if not task.fresh or not task.group.request.gpus or node.alignment is Alignment.NONE:
            continue
        numa = {node.gpus[g].numa for g in gpus}
        sizes = Counter(gpu.numa for gpu in node.gpus if gpu.slices is None)
        fewer = sum(size for _, size in sizes.most_common(len(numa) - 1))
        if len(numa) > 1 and (node.alignment is Alignment.SINGLE or fewer >= len(gpus)):
            yield f"{task.job.name} has {gpus} of {node.name}, in {len(numa)} NUMA nodes: its kubelet refuses that"


def restless(snapshot: Snapshot, outlook: Outlook, plan: Planner) -> list[str]:
    """What a second plan, made in the end state of the first, still wants to change: nothing, unless the first was held
    back by a budget, which bears as much again once those are back whom it disturbed."""
    guarded = {name for budget in snapshot.budgets for name in budget.jobs}
    if any(action_job(action) in guarded for action in outlook.actions):
        return []
    again = plan(applied(snapshot, outlook))
    wanted = [action for action in again.actions if not isinstance(action, Reserve)]
    return [f"planning again still wants: {action}" for action in wanted]


def applied(snapshot: Snapshot, outlook: Outlook) -> Snapshot:
    """The snapshot after the plan, with effects instant and the clock standing still."""
    running = {line.job: line.placements for line in outlook.running}
    kept = tuple(
        Reservation(action.job, action.placements, action.until)
        for action in outlook.actions
        if isinstance(action, Reserve)
    )
    jobs = tuple(job_after(job, running.get(job.name, ()), snapshot.now) for job in snapshot.jobs)
    held = tuple(r for r in snapshot.reservations if r.job not in {k.job for k in kept} | set(running))
    return replace(snapshot, jobs=jobs, reservations=held + kept)


def job_after(job: Job, placements: tuple[Placement, ...], now: float) -> Job:
    """The job where the plan leaves it: what is going still goes, what stays keeps its start."""
    live = tuple(place for place in placements if not place.terminating)
    going = tuple(place for place in job.placements if place.terminating)
    stays = bool(Counter(map(key, live)) & Counter(map(key, job.placements)))
    started = job.started if stays else (now if live else None)
    stale = None if complete(job, live) or not live else job.stale_since
    return replace(job, placements=live + going, started=started, stale_since=stale)


# --- what runs where -----------------------------------------------------------------------------


def devices_hold_what_is_on_them(snapshot: Snapshot, outlook: Outlook) -> Iterator[str]:
    """No device is over-used, and a whole-GPU task never shares one (rule 5)."""
    load: dict[Device, Fraction] = defaultdict(Fraction)
    people: dict[Device, list[Task]] = defaultdict(list)
    for task in tasks_after(snapshot, outlook):
        if task.group.request.mig:
            continue
        for device in task.devices:
            load[device] += 1 if task.group.request.gpus else task.share
            people[device].append(task)
    for device, amount in sorted(load.items()):
        if amount > 1:
            names = ", ".join(map(str, people[device]))
            yield f"{device[0]}:{device[1]} is over-used ({float(amount):.9f} GPUs): {names}"


def slices_exist(snapshot: Snapshot, outlook: Outlook) -> Iterator[str]:
    """A MIG slice is held once, and a cut device is never had whole (rule 5)."""
    held: dict[Device, Counter[str]] = defaultdict(Counter)
    cut = {(n.name, g.index): Counter(g.slices) for n in snapshot.nodes for g in n.gpus if g.slices is not None}
    for task in tasks_after(snapshot, outlook):
        if not task.group.request.mig:
            yield from (f"{task} holds a device that is cut" for device in task.devices if device in cut)
            continue
        for gpu, profile in zip(task.placement.gpus, task.placement.mig, strict=True):
            held[task.node.name, gpu][profile] += 1
        if task.fresh and Counter(task.placement.mig) != Counter(dict(task.group.request.mig)):
            yield f"{task} did not get the slices it asked for: {task.placement.mig}"
    for device, profiles in held.items():
        if over := profiles - cut.get(device, Counter()):
            yield f"{device[0]}:{device[1]} gives slices it does not have: {dict(over)}"


def tasks_get_what_they_asked(snapshot: Snapshot, outlook: Outlook) -> Iterator[str]:
    """Every new task names as many devices as it asked for, once each, on a node where it may run."""
    for task in tasks_after(snapshot, outlook):
        if not task.fresh:
            continue
        ask, gpus = task.group.request, task.placement.gpus
        wanted = ask.gpus or (1 if ask.shared else 0)
        if not ask.mig and (len(gpus) != wanted or len(set(gpus)) != wanted):
            yield f"{task} asked for {wanted} devices"
        yield from (f"{task}: {why}" for why in unfit(task.job, task.group, task.node))
        health = {gpu.index: gpu.health for gpu in task.node.gpus}
        for gpu in set(gpus):
            if health.get(gpu, Health.SICK) is Health.SICK:
                yield f"{task} is new on GPU {gpu}, which is sick or not there (rule 13)"


def nodes_hold_cpu_and_memory(snapshot: Snapshot, outlook: Outlook) -> Iterator[str]:
    """No node is given tasks that need CPU or memory which it does not have."""
    tasks = tasks_after(snapshot, outlook)
    for node in snapshot.nodes:
        here = [task for task in tasks if task.node.name == node.name]
        for what in ("cpu", "memory"):
            asked = [(getattr(task.group.request, what), task.fresh) for task in here]
            used, there = sum(amount for amount, _ in asked), getattr(node, what)
            if there < UNLIMITED and used > there and any(amount and fresh for amount, fresh in asked):
                yield f"{node.name} has {what} {there}, and {used} is used"
        names = {name for task in here for name, _ in task.group.request.extras}
        for name in sorted(names):
            asked = [(dict(task.group.request.extras).get(name, 0), task.fresh) for task in here]
            there = node.extra(name) - dict(node.taken.extras).get(name, 0)
            if sum(amount for amount, _ in asked) > there and any(amount and fresh for amount, fresh in asked):
                yield f"{node.name} has {name} {there}, and more is used"


def gangs_are_whole(snapshot: Snapshot, outlook: Outlook) -> Iterator[str]:
    """Whoever got a new task has the minimum, group by group: no gang holds a part."""
    tasks = tasks_after(snapshot, outlook)
    for job in {task.job.name: task.job for task in tasks if task.fresh}.values():
        places = [t.placement for t in tasks if t.job.name == job.name]
        if not complete(job, places):
            yield f"{job.name} was given tasks but is below its minimum"
        running = Counter(place.group for place in places if not place.terminating)
        fresh = Counter(t.group.name for t in tasks if t.fresh and t.job.name == job.name)
        inside: list[TaskGroup | Bundle] = [*list(bundles(job.gang))[1:], *job.task_groups()]
        for inner in inside:
            given = sum(fresh[name] for name in leaf_names(inner))
            if given and not group_complete(inner, running):
                yield f"{job.name}/{inner.name} was given {given} tasks, below its minimum"
        for group in job.task_groups():
            if running[group.name] + group.succeeded + group.failed > group.tasks and fresh[group.name]:
                yield f"{job.name}/{group.name} runs more tasks than it has"


def required_levels_are_kept(snapshot: Snapshot, outlook: Outlook) -> Iterator[str]:
    """A required level is never crossed (rule 10)."""
    tasks = tasks_after(snapshot, outlook)
    for job in {task.job.name: task.job for task in tasks if task.fresh}.values():
        own = [t for t in tasks if t.job.name == job.name and not t.placement.terminating]
        for what, groups, level in scopes(job):
            domains = {d for t in own if t.group.name in groups for d in t.domains(level)}
            if len(domains) > 1:
                yield f"{what} requires one {level} and lies in {sorted(domains)}"


def groups_have_one_model(snapshot: Snapshot, outlook: Outlook) -> Iterator[str]:
    """One model per task group (rule 11)."""
    models: dict[tuple[str, str], set[str]] = defaultdict(set)
    fresh = set()
    for task in tasks_after(snapshot, outlook):
        if not task.group.request.cpu_only and not task.placement.terminating:
            models[task.job.name, task.group.name].add(task.node.model)
            fresh |= {(task.job.name, task.group.name)} if task.fresh else set()
    for name, found in sorted(models.items()):
        if len(found) > 1 and name in fresh:
            yield f"{name[0]}/{name[1]} runs on several models: {sorted(found)}"


def neighbours_are_respected(snapshot: Snapshot, outlook: Outlook) -> Iterator[str]:
    """Nobody new shares a domain with whom it avoids, or who avoids it (rule 14)."""
    tasks = tasks_after(snapshot, outlook)
    for one in tasks:
        avoid = one.job.avoid
        if not avoid:
            continue
        for other in tasks:
            same = other.job.name == one.job.name
            akin = same or (bool(one.job.family) and other.job.family == one.job.family)
            unwanted = (avoid.own and akin) or (not same and other.job.queue in avoid.queues)
            if one is other or not unwanted or not (one.fresh or other.fresh):
                continue
            if one.domains(avoid.level) & other.domains(avoid.level):
                yield f"{one} will not share a {avoid.level} with {other}"


def tasks_stand_apart(snapshot: Snapshot, outlook: Outlook) -> Iterator[str]:
    """Nobody new shares a node with tasks that it keeps apart from, or that keep apart from it (rule 14)."""
    tasks = tasks_after(snapshot, outlook)
    for one in tasks:
        for term in one.group.apart:
            for other in tasks:
                meant = all(dict(other.group.labels).get(e.key) in e.values for e in term.labels)
                if other is not one and meant and (one.fresh or other.fresh) and one.node.name == other.node.name:
                    yield f"{one} stands beside {other}, which it must not"


def power_caps_are_kept(snapshot: Snapshot, outlook: Outlook) -> Iterator[str]:
    """No domain that got new tasks is busier than its pool allows (rule 14)."""
    tasks = tasks_after(snapshot, outlook)
    for pool in snapshot.pools:
        here = [task for task in tasks if task.node.pool == pool.name]
        for level, cap in pool.max_busy:
            for domain in {domain_of(task.node, level) for task in here if task.fresh and task.cost}:
                busy = sum((t.cost for t in here if domain_of(t.node, level) == domain), Fraction(0))
                if busy > cap:
                    yield f"{level} {domain[-1]} of pool {pool.name} may have {cap} GPUs busy, and has {busy}"


# --- who may run ---------------------------------------------------------------------------------


def limits_are_not_passed(snapshot: Snapshot, outlook: Outlook) -> Iterator[str]:
    """No new use above a limit, at any level (rule 2)."""
    before, after = tasks_before(snapshot), tasks_after(snapshot, outlook)
    for queue in snapshot.queues:
        for what, most in amounts(queue.limit):
            was, now = used(snapshot, before, queue, what), used(snapshot, after, queue, what)
            if now > most + SLACK and now > was + SLACK:
                yield f"queue {queue.name} passes its limit of {float(most)} {what}: {float(now)}"


def loans_can_be_taken_back(snapshot: Snapshot, outlook: Outlook) -> Iterator[str]:
    """No new non-preemptible use above a quota, at any level (rule 3)."""
    before = [t for t in tasks_before(snapshot) if not snapshot.policy.preemptible(t.job)]
    after = [t for t in tasks_after(snapshot, outlook) if not snapshot.policy.preemptible(t.job)]
    for queue in snapshot.queues:
        for what, most in amounts(queue.quota):
            was, now = used(snapshot, before, queue, what), used(snapshot, after, queue, what)
            if now > most + SLACK and now > was + SLACK:
                yield f"non-preemptible jobs pass queue {queue.name}'s quota of {float(most)} {what}: {float(now)}"


def amounts(allowance: Allowance) -> Iterator[tuple[str, Fraction]]:
    """What an allowance counts: (`gpu`, `cpu`, `memory` or a model, how much); unlimited ones left out."""
    bounds = [("gpu", allowance.gpu), *allowance.models]
    yield from ((what, Fraction(most, WHOLE)) for what, most in bounds if most < UNLIMITED)
    for what, plain in (("cpu", allowance.cpu), ("memory", allowance.memory)):
        if plain is not None and plain < UNLIMITED:
            yield (what, Fraction(plain))


def used(snapshot: Snapshot, tasks: list[Task], queue: Queue, what: str) -> Fraction:
    """How much of something a queue and all below it use; what is going or foreign is left out."""
    below = descendants(snapshot, queue.name)
    total = Fraction(0)
    for task in tasks:
        if task.job.queue in below and not task.placement.terminating and not task.job.foreign:
            total += amount(task, what)
    return total


def amount(task: Task, what: str) -> Fraction:
    """How much of something one task uses."""
    if what in ("cpu", "memory"):
        return Fraction(getattr(task.group.request, what))
    return task.cost if what == "gpu" or model_matches(what, task.node.model) else Fraction(0)


def descendants(snapshot: Snapshot, name: str) -> set[str]:
    """The queue and all below it."""
    parents = {queue.name: queue.parent for queue in snapshot.queues}
    found = {name} | (set(parents) if name == ROOT else set())
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


# --- who gives way -------------------------------------------------------------------------------


def victims_are_lawful(snapshot: Snapshot, outlook: Outlook) -> Iterator[str]:
    """Nobody who may not be disturbed is, and nobody is for nothing (rules 15 and 19)."""
    jobs = {job.name: job for job in snapshot.jobs}
    helped = {a.job for a in outlook.actions if isinstance(a, Start | Reserve | Move)}
    for action in outlook.actions:
        if not isinstance(action, Evict | Move):
            continue
        job = jobs[action.job]
        if job.foreign:
            yield f"{job.name} is foreign and was disturbed"
        if action.reason.code is Code.DRAINED:
            yield from drained_lawfully(snapshot, job)
            continue
        if action.reason.code is not Code.STALE and action.beneficiary not in helped:
            yield f"{job.name} was disturbed for {action.beneficiary or 'nobody'}, who gains nothing"
        if action.reason.code in (Code.STALE, Code.DEADLOCK):
            continue
        if not snapshot.policy.preemptible(job):
            yield f"{job.name} is not preemptible and was disturbed"
        if not extras_alone(action, job):
            yield from too_soon(snapshot, job)


FOR_NOBODY = (Code.STALE, Code.DEADLOCK, Code.DRAINED)
TOLD_AS = {
    Start: (Code.FITS, Code.GROWS, Code.REPAIRED),
    Move: (Code.CONSOLIDATED, Code.DEFRAGMENTED, *FOR_NOBODY),
    Evict: (Code.PREEMPTED, Code.RECLAIMED, Code.CRITICAL, *FOR_NOBODY),
}


def everybody_is_told_the_net_change(snapshot: Snapshot, outlook: Outlook) -> Iterator[str]:
    """Also of a plan of several cycles: the reason is that of the action, and names whom the action is for."""
    for action in outlook.actions:
        if not isinstance(action, Start | Move | Evict):
            continue
        if action.reason.code not in TOLD_AS[type(action)]:
            yield f"{action.job} is told {action.reason.code.value} where it is to {type(action).__name__.lower()}"
        if isinstance(action, Start) or action.reason.code in FOR_NOBODY:
            continue
        if action.reason.where not in ("", action.beneficiary):
            yield f"{action.job} is disturbed for {action.beneficiary} and told of {action.reason.where}"


def drained_lawfully(snapshot: Snapshot, job: Job) -> Iterator[str]:
    """Only what stands on something drained goes; who may not be disturbed only if that is forced."""
    nodes = {node.name: node for node in snapshot.nodes}
    closures = [
        closure
        for place in job.placements
        for closure in (nodes[place.node].closed, *(nodes[place.node].gpus[gpu].closed for gpu in place.gpus))
        if closure is not None and closure.drains
    ]
    if not closures:
        yield f"{job.name} was drained and stands on nothing that is"
    elif job.job_class is JobClass.INTERACTIVE and not any(closure.force for closure in closures):
        yield f"{job.name} is not preemptible and was drained without force"


def extras_alone(action: Evict | Move, job: Job) -> bool:
    """Whether the job would keep its minimum without the tasks that the action disturbs."""
    stay = [place for place in job.placements if not place.terminating]
    gone = Counter(map(key, action.source if isinstance(action, Move) else action.placements or stay))
    left = list((Counter(map(key, stay)) - gone).elements())
    running = Counter(group for group, *_ in left)
    return bundle_complete(job.gang, running)


def shrinking_keeps_the_minimum(snapshot: Snapshot, outlook: Outlook) -> Iterator[str]:
    """Only extras go one by one; a gang that would fall below its minimum goes whole (rule 19)."""
    jobs = {job.name: job for job in snapshot.jobs}
    running = {line.job: line.placements for line in outlook.running}
    for action in outlook.actions:
        if not isinstance(action, Evict) or not action.placements:
            continue
        job = jobs[action.job]
        if complete(job, job.placements) and not complete(job, running.get(job.name, ())):
            yield f"{job.name} was shrunk below its minimum instead of going whole"


def what_is_reclaimed_was_borrowed(snapshot: Snapshot, outlook: Outlook) -> Iterator[str]:
    """Who loses to another queue's share was above quota or fair share where the branches part (rule 17)."""
    jobs = {job.name: job for job in snapshot.jobs}
    moments = (tasks_before(snapshot), tasks_mended(snapshot, outlook), tasks_after(snapshot, outlook))
    for action in outlook.actions:
        if not isinstance(action, Evict) or action.reason.code is not Code.RECLAIMED:
            continue
        side = parting(snapshot, jobs[action.job].queue, jobs[action.beneficiary].queue)
        if side is None:
            yield f"{action.job} was reclaimed for {action.beneficiary} of its own queue"
        elif not any(excess(snapshot, outlook, side, tasks) for tasks in moments) and not repaired(action, jobs):
            yield f"{action.job} was reclaimed although queue {side.name} is within its quota and fair share"


def repaired(action: Evict, jobs: dict[str, Job]) -> bool:
    """Whether the victim was below its minimum, so that the plan may have completed it before it had to go."""
    job = jobs[action.job]
    return not complete(job, job.placements)


def parting(snapshot: Snapshot, victim: str, claimant: str) -> Queue | None:
    """The victim's branch of the tree, where it parts from the claimant's."""
    queues = {queue.name: queue for queue in snapshot.queues}
    common = ancestry(queues, claimant)
    return next((queues[name] for name in reversed(ancestry(queues, victim)) if name not in common), None)


def ancestry(queues: dict[str, Queue], name: str) -> list[str]:
    """The queue and those above it, innermost first."""
    return [name, *ancestry(queues, queues[name].parent)] if name in queues and name != ROOT else []


def excess(snapshot: Snapshot, outlook: Outlook, queue: Queue, tasks: list[Task]) -> bool:
    """Whether a queue holds more than its quota in anything, or more GPUs than its fair share."""
    due = {line.name: Fraction(round(line.fair_share), WHOLE) for line in outlook.queues}
    over = [used(snapshot, tasks, queue, what) > most + SLACK for what, most in amounts(queue.quota)]
    return any(over) or used(snapshot, tasks, queue, "gpu") > due[queue.name] + SLACK


def too_soon(snapshot: Snapshot, job: Job) -> Iterator[str]:
    """Whether the job is still inside its minimum runtime."""
    least = snapshot.policy.min_runtime if job.min_runtime is None else job.min_runtime
    if job.started is not None and snapshot.now - job.started < least:
        yield f"{job.name} is inside its minimum runtime and was disturbed"


def budgets_are_kept(snapshot: Snapshot, outlook: Outlook) -> Iterator[str]:
    """No plan disturbs more tasks of a budget than it allows (rule 19, `pdb: never`)."""
    if snapshot.policy.pdb.value != "never":
        return
    jobs = {job.name: job for job in snapshot.jobs}
    for budget in snapshot.budgets:
        members = [jobs[name] for name in budget.jobs]
        running = sum(not place.terminating for job in members for place in job.placements)
        hit = sum(disturbed(action, jobs) for action in outlook.actions if action_job(action) in budget.jobs)
        if budget.min_available is not None and hit and running - hit < budget.min_available:
            yield f"budget {budget.name} wants {budget.min_available} of {running} tasks, and {hit} are disturbed"
        whole = sum(g.tasks - g.failed - g.succeeded for job in members for g in job.task_groups())
        if budget.max_unavailable is not None and hit and whole - running + hit > budget.max_unavailable:
            yield f"budget {budget.name} bears {budget.max_unavailable} tasks away, and {hit} are disturbed"


def action_job(action: object) -> str:
    """The job an action is about; "" for one about something else."""
    return str(getattr(action, "job", ""))


def disturbed(action: object, jobs: dict[str, Job]) -> int:
    """How many running tasks an action stops, for good or for a while; gangs below their minimum are not counted."""
    if isinstance(action, Move):
        return len(action.source)
    if isinstance(action, Evict) and action.reason.code not in (Code.STALE, Code.DEADLOCK):
        live = [place for place in jobs[action.job].placements if not place.terminating]
        return len(action.placements or live)
    return 0


# --- the plan itself -----------------------------------------------------------------------------


def actions_lead_to_the_end_state(snapshot: Snapshot, outlook: Outlook) -> Iterator[str]:
    """Applying the actions gives exactly what `running` says; nothing is both started and evicted (rule 26)."""
    state = {job.name: Counter(key(p) for p in job.placements if not p.terminating) for job in snapshot.jobs}
    started = {action.job for action in outlook.actions if isinstance(action, Start)}
    for action in outlook.actions:
        if isinstance(action, Evict):
            if action.job in started:
                yield f"{action.job} is both started and evicted"
            gone = Counter(map(key, action.placements)) if action.placements else state[action.job]
            yield from missing(action.job, gone - state[action.job])
            state[action.job] = state[action.job] - gone
        elif isinstance(action, Move):
            yield from missing(action.job, Counter(map(key, action.source)) - state[action.job])
            state[action.job] = state[action.job] - Counter(map(key, action.source)) + Counter(map(key, action.target))
        elif isinstance(action, Start):
            state[action.job] = state[action.job] + Counter(map(key, action.placements))
    said = {line.job: Counter(key(p) for p in line.placements if not p.terminating) for line in outlook.running}
    for name, places in state.items():
        if places != said.get(name, Counter()):
            yield f"{name}: the actions lead to {sorted(places)}, `running` says {sorted(said.get(name, Counter()))}"


def missing(job: str, places: Counter[tuple[str, str, tuple[int, ...], tuple[str, ...]]]) -> Iterator[str]:
    """A sentence when an action disturbs tasks that are not there."""
    if places:
        yield f"{job}: an action disturbs tasks that are not there: {sorted(places)}"


def starts_wait_for_those_who_go(snapshot: Snapshot, outlook: Outlook) -> Iterator[str]:
    """Whoever gets GPUs that another job holds at the beginning waits for that job (`after`, rule 26)."""
    holders: dict[Device, set[str]] = defaultdict(set)
    for task in tasks_before(snapshot):
        if task.group.request.gpus:
            for device in task.devices:
                holders[device].add(task.job.name)
    for action in outlook.actions:
        if not isinstance(action, Start | Move):
            continue
        places = action.target if isinstance(action, Move) else action.placements
        wanted = {name for place in places for gpu in place.gpus for name in holders[place.node, gpu]}
        if late := wanted - {action.job} - set(action.after):
            yield f"{action.job} gets GPUs of {sorted(late)} but does not wait for them"


def everybody_below_the_minimum_is_listed(snapshot: Snapshot, outlook: Outlook) -> Iterator[str]:
    """`waiting` lists every job below its minimum, and nobody else (rule 26)."""
    running = {line.job: line.placements for line in outlook.running}
    below = {job.name for job in snapshot.jobs if not job.foreign and not complete(job, running.get(job.name, ()))}
    said = {line.job for line in outlook.waiting} - {job.name for job in snapshot.jobs if job.foreign}
    if below - said:
        yield f"below their minimum but not listed as waiting: {sorted(below - said)}"
    if said - below:
        yield f"listed as waiting but not below their minimum: {sorted(said - below)}"


def nobody_is_told_of_a_bug(snapshot: Snapshot, outlook: Outlook) -> Iterator[str]:
    """Every waiting job has a reason that is not our own confusion (rule 24)."""
    for line in outlook.waiting:
        if line.reason.outcome is Outcome.BUG:
            yield f"{line.job} is told of a bug: {line.reason}"


def gangs_said_to_fit_are_free(snapshot: Snapshot, outlook: Outlook) -> Iterator[str]:
    """A largest gang is never larger than what is free (rule 25)."""
    free = Fraction(outlook.fragmentation.free, WHOLE)
    for level, gpus in outlook.fragmentation.largest_gang:
        if gpus > free:
            yield f"a gang of {gpus} is said to fit in one {level}, and {float(free)} GPUs are free"


CHECKS: tuple[Check, ...] = (
    refused_by_kubelets,
    devices_hold_what_is_on_them,
    slices_exist,
    tasks_get_what_they_asked,
    nodes_hold_cpu_and_memory,
    gangs_are_whole,
    required_levels_are_kept,
    groups_have_one_model,
    neighbours_are_respected,
    tasks_stand_apart,
    power_caps_are_kept,
    limits_are_not_passed,
    loans_can_be_taken_back,
    victims_are_lawful,
    everybody_is_told_the_net_change,
    shrinking_keeps_the_minimum,
    what_is_reclaimed_was_borrowed,
    budgets_are_kept,
    actions_lead_to_the_end_state,
    starts_wait_for_those_who_go,
    everybody_below_the_minimum_is_listed,
    nobody_is_told_of_a_bug,
    gangs_said_to_fit_are_free,
)
