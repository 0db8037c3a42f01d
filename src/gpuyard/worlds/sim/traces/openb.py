"""Reads Alibaba's openb lists: nodes, and tasks that arrive in an order drawn from a seed.

The order and the inflation follow the FGD experiment (ATC'23): tasks sorted by name and shuffled, then drawn again with
replacement until the GPUs asked for reach the wanted multiple of what there is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpuyard.model.job import AffinityTerm, Expression, Job, TaskGroup, one_group
from gpuyard.model.node import Gpu, Node
from gpuyard.model.resources import MILLI, WHOLE, Request
from gpuyard.worlds.sim.seed import GoDice
from gpuyard.worlds.sim.traces.table_lines import TableLine
from gpuyard.worlds.sim.traces.trace import Arrival, Trace

MODEL_LABEL = "gpu-model"
"""A task's `gpu_spec` is a set without order, which `models` is not: nodes carry their model as a label too."""
COPY = "#"
"""Stands between a task's name and the number of its copy."""
MIB = 1 << 20


def nodes(rows: Iterable[TableLine]) -> tuple[Node, ...]:
    """The node list."""
    return tuple(_node(row) for row in rows)


def _node(row: TableLine) -> Node:
    count, model = row.whole("gpu"), row.get("model", "")
    return Node(
        name=row.text("sn"),
        model=model,
        gpus=tuple(Gpu(index) for index in range(count)),
        cpu=row.whole("cpu_milli"),
        memory=row.whole("memory_mib") * MIB,
        labels=((MODEL_LABEL, model),),
    )


def tasks(rows: Iterable[TableLine]) -> tuple[Job, ...]:
    """The task list, by name; every task is a job of its own."""
    found: dict[str, Job] = {}
    for row in rows:
        job = _job(row)
        if job.name in found:
            raise row.wrong(f"there is another task {job.name} above; names must differ")
        if COPY in job.name:
            raise row.wrong(f"name is {job.name}; {COPY} counts copies of a task")
        found[job.name] = job
    return tuple(found[name] for name in sorted(found))


def _job(row: TableLine) -> Job:
    count, milli = row.whole("num_gpu"), row.whole("gpu_milli")
    fraction = count == 1 and milli < WHOLE // MILLI
    request = Request(
        gpus=0 if fraction else count,
        share=milli * MILLI if fraction else 0,
        cpu=row.whole("cpu_milli"),
        memory=row.whole("memory_mib") * MIB,
    )
    spec = row.get("gpu_spec", "")
    models = AffinityTerm((Expression(MODEL_LABEL, "In", tuple(spec.split("|"))),))
    terms = ((models,),) if spec and count else ()
    return Job(row.text("name"), one_group(TaskGroup(request=request, terms=terms)))


def trace(name: str, jobs: Sequence[Job], seed: int, arrivals: float, capacity: int) -> Trace:
    """Shuffled by the seed, then inflated to `arrivals` times the capacity (grains); everyone is tried once."""
    dice = GoDice(seed)
    dice.int63()  # the published program draws one number before it shuffles
    order = [(job, job.name) for job in dice.shuffled(jobs)]
    asked = sum(grains(job) for job in jobs)
    copies: Counter[str] = Counter()
    while jobs:
        drawn = jobs[dice.integer(len(jobs))]
        asked_each = min(grains(drawn), WHOLE)  # one GPU of it, as the published program counts here
        if asked + asked_each > arrivals * capacity:
            break
        asked += grains(drawn)
        copies[drawn.name] += 1
        order.append((drawn, f"{drawn.name}{COPY}{copies[drawn.name]}"))
    # a task of the list has a name and a gang and nothing else; `replace` would copy three dozen fields of ten thousand
    coming = tuple([Arrival(float(i), Job(own, job.gang, submitted=float(i))) for i, (job, own) in enumerate(order)])
    return Trace(name, coming, popularity(jobs), tried_once=True)


MARK = "~"
"""Stands between a node's place in the drawn order and its name."""


def in_drawn_order(given: Sequence[Node], seed: int) -> tuple[Node, ...]:
    """The nodes with names that sort in an order drawn from the seed: ties go to the first by name, and the published
    runs break them by a random order. By their own names the small nodes would come first, and CPU-only tasks, which
    tie most, would all go there."""
    order = GoDice(seed).shuffled(given)
    return tuple(replace(node, name=f"{place:05d}{MARK}{node.name}") for place, node in enumerate(order))


def own_name(name: str) -> str:
    """A node's name without its place in the drawn order."""
    return name.rpartition(MARK)[2]


def grains(job: Job) -> int:
    """GPUs a task asks for, in grains."""
    request = job.task_groups()[0].request
    return request.gpus * WHOLE + request.share


def popularity(jobs: Iterable[Job]) -> tuple[tuple[Job, float], ...]:
    """One job per kind of task, with how many there are: the same GPUs, CPU and models."""
    samples: dict[object, Job] = {}
    counts: Counter[object] = Counter()
    for job in jobs:
        group = job.task_groups()[0]
        request, terms = group.request, group.terms
        spec = terms[0][0].expressions[0].values if terms else ()
        # Common kinds first; among equally common ones the published program takes the larger tuple first.
        kind = (request.cpu, request.gpus, request.share, "|".join(spec))
        samples.setdefault(kind, job)
        counts[kind] += 1
    order = sorted(counts, key=lambda kind: (counts[kind], kind), reverse=True)
    return tuple((samples[kind], float(counts[kind])) for kind in order)
