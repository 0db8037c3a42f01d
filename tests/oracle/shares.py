"""What each queue uses and is due: rules 2, 3, 6 and 7, by plain arithmetic."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from tests.oracle.shapes import (
    ENDLESS,
    NAMED_MODEL,
    NOTHING,
    RESOURCES,
    ROOT,
    Amounts,
    Job,
    Moment,
    Node,
    Spot,
    State,
    is_model,
    slices_cost,
    total,
)

Shares = dict[str, Amounts]


def use(moment: Moment, state: State, going: bool = True, firm_only: bool = False) -> Shares:
    """What every queue holds, parents what their children hold; `going` counts members on their way out."""
    held: dict[str, list[Amounts]] = {name: [] for name in moment.queues}
    placed: list[tuple[str, Spot]] = [(name, spot) for name, spots in state.items() for spot in spots]
    for name, spot in [*placed, *(moment.going if going else ())]:
        job = moment.jobs[name]
        if firm_only and job.preemptible:
            continue
        for queue in moment.path(job.queue):
            held[queue].append(moment.spot_cost(job, spot))
    return {name: total(amounts) for name, amounts in held.items()}


def capacity(moment: Moment) -> Amounts:
    """What there is: GPUs that are well, a cut one by the slices it has."""
    return total([_of_node(node) for node in moment.nodes.values()])


def _of_node(node: Node) -> Amounts:
    well = [d for d in node.devices if not d.sick]
    gpus = sum((Fraction(1) if d.slices is None else slices_cost(d.slices) for d in well), Fraction(0))
    return (gpus, node.cpu, gpus if is_model(node.model, NAMED_MODEL) else Fraction(0))


def fair_shares(moment: Moment, whole: Amounts | None = None) -> Shares:
    """Rule 6, top down."""
    whole = whole or capacity(moment)
    demand = dict.fromkeys(moment.queues, NOTHING)
    for job in moment.jobs.values():
        wants = _demand(moment, job)
        for queue in moment.path(job.queue):
            demand[queue] = total([demand[queue], wants])
    found: dict[str, list[Fraction]] = {name: list(NOTHING) for name in moment.queues}
    for r in moment.counted:
        found[ROOT][r] = min(whole[r], moment.queues[ROOT].limit[r])
        _divide(moment, r, ROOT, demand, found)
    return {name: tuple(amounts) for name, amounts in found.items()}


def _demand(moment: Moment, job: Job) -> Amounts:
    """Every task up to the maximum, those that run at what they cost where they are."""
    running = moment.state.get(job.name, ())
    found = [moment.spot_cost(job, spot) for spot in running]
    for group in job.groups:
        live = sum(spot.group == group.name for spot in running)
        found += [moment.cost(job, group, None)] * max(0, group.most - live)
    return total(found)


def _divide(moment: Moment, r: int, parent: str, demand: Shares, found: dict[str, list[Fraction]]) -> None:
    due = found[parent][r]
    names = moment.children[parent]
    want = {name: min(demand[name][r], moment.queues[name].limit[r]) for name in names}
    for name in names:
        quota = moment.queues[name].quota[r] or Fraction(0)
        found[name][r] = min(due if quota >= ENDLESS else quota, want[name])
    left = due - sum(found[name][r] for name in names)
    for priority in sorted({moment.queues[name].priority for name in names}, reverse=True):
        left = _pour(moment, r, [n for n in names if moment.queues[n].priority == priority], want, left, found)
    for name in names:
        _divide(moment, r, name, demand, found)


def _pour(
    moment: Moment,
    r: int,
    equals: list[str],
    want: dict[str, Fraction],
    left: Fraction,
    found: dict[str, list[Fraction]],
) -> Fraction:
    """What is left, by weight, until nobody wants more."""
    while left > 0:
        thirsty = [n for n in equals if want[n] > found[n][r] and moment.queues[n].weight > 0]
        if not thirsty:
            break
        weight = sum(moment.queues[n].weight for n in thirsty)
        step = min([left / weight, *((want[n] - found[n][r]) / moment.queues[n].weight for n in thirsty)])
        for n in thirsty:
            found[n][r] += step * moment.queues[n].weight
        left -= step * weight
    return left


# --- bounds -----------------------------------------------------------------------------------------------------------


def admitted(moment: Moment, state: State, job: Job, need: Amounts, going: bool) -> bool:
    """Rules 2 and 3: within every limit, and if it cannot be taken back within every quota."""
    used, firm = use(moment, state, going), use(moment, state, going, firm_only=True)
    for name in moment.path(job.queue):
        queue = moment.queues[name]
        if any(need[r] and used[name][r] + need[r] > queue.limit[r] for r in range(len(RESOURCES))):
            return False
        if not job.preemptible and any(
            need[r] and (quota := queue.quota[r]) is not None and firm[name][r] + need[r] > quota
            for r in range(len(RESOURCES))
        ):
            return False
    return True


def stays_within_quota(moment: Moment, queue: str, used: Amounts, need: Amounts) -> bool:
    """Every resource that the job asks for."""
    quotas = moment.queues[queue].quota
    return all(not need[r] or (q := quotas[r]) is None or used[r] + need[r] <= q for r in moment.counted)


def stays_within_share(moment: Moment, share: Amounts, used: Amounts, need: Amounts) -> bool:
    """Every resource that the job asks for."""
    return all(not need[r] or used[r] + need[r] <= share[r] for r in moment.counted)


def above_quota(moment: Moment, queue: str, used: Amounts) -> bool:
    """Any resource."""
    quotas = moment.queues[queue].quota
    return any((q := quotas[r]) is not None and used[r] > q for r in moment.counted)


def above_share(moment: Moment, share: Amounts, used: Amounts) -> bool:
    """Any resource."""
    return any(used[r] > share[r] for r in moment.counted)


# --- rule 7 -----------------------------------------------------------------------------------------------------------


def first_in_order(moment: Moment, state: State, waiting: Iterable[str], shares: Shares, ran: frozenset[str]) -> str:
    """Whose turn it is: level by level the queue, then the job."""
    used = use(moment, state)
    names = list(waiting)
    queue = ROOT
    while moment.children[queue]:
        heads = {}
        for child in moment.children[queue]:
            below = [n for n in names if child in moment.path(moment.jobs[n].queue)]
            if below:
                heads[child] = first_below(moment, state, child, below, shares, ran)
        queue = min(heads, key=lambda child: queue_rank(moment, state, child, heads[child], used, shares))
        names = [n for n in names if queue in moment.path(moment.jobs[n].queue)]
    return min(names, key=lambda name: job_rank(moment, name, ran))


def first_below(moment: Moment, state: State, queue: str, names: list[str], shares: Shares, ran: frozenset[str]) -> str:
    """The next job of a queue: through its children if it has some."""
    if not moment.children[queue]:
        return min(names, key=lambda name: job_rank(moment, name, ran))
    used = use(moment, state)
    heads = {}
    for child in moment.children[queue]:
        below = [n for n in names if child in moment.path(moment.jobs[n].queue)]
        if below:
            heads[child] = first_below(moment, state, child, below, shares, ran)
    best = min(heads, key=lambda child: queue_rank(moment, state, child, heads[child], used, shares))
    return heads[best]


def queue_rank(
    moment: Moment, state: State, queue: str, name: str, used: Shares, shares: Shares
) -> tuple[bool, bool, int, Fraction, Fraction, float, str]:
    """The order of queues, given the next job of each."""
    job = moment.jobs[name]
    need = moment.need(job, state.get(name, ()))
    held = used[queue]
    after = max(_fullness(moment, queue, r, held[r] + need[r], shares) for r in moment.counted)
    before = max(_fullness(moment, queue, r, held[r], shares) for r in moment.counted)
    return (
        above_share(moment, shares[queue], held),
        not stays_within_quota(moment, queue, held, need),
        -moment.queues[queue].priority,
        after,
        before,
        job.submitted,
        job.name,
    )


def _fullness(moment: Moment, queue: str, r: int, held: Fraction, shares: Shares) -> Fraction:
    quota = moment.queues[queue].quota[r] or Fraction(0)
    if quota >= ENDLESS:
        quota = shares[moment.queues[queue].parent][r]
    due = max(quota, shares[queue][r])
    if held <= 0:
        return Fraction(0)
    return held / due if due else ENDLESS


def job_rank(moment: Moment, name: str, ran: frozenset[str]) -> tuple[int, bool, float, str]:
    """The order inside a queue."""
    job = moment.jobs[name]
    return (-job.priority, name not in ran, job.submitted, name)
