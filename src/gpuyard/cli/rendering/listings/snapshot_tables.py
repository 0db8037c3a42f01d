"""The listings of a snapshot: nodes, queues and jobs, with phase, reason and what else is known.

Called by `nodes_queues_jobs`, which asks `live_tables` where no file is named. Amounts held are counted by
`inventory`; fair shares and reasons come from the brain's foresight.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gpuyard.cli.console import sources, terminal, words
from gpuyard.cli.console.choosing import JobChoice
from gpuyard.cli.rendering import inventory
from gpuyard.cli.rendering.documents import Document, moment, queue_line_document, reason_document
from gpuyard.cli.rendering.inventory import Inventory
from gpuyard.cli.rendering.listings.tables import Listing, TableWish, column, write
from gpuyard.files import writing
from gpuyard.model.actions import Evict, Move, QueueLine, Start
from gpuyard.model.answers.outlook import Outlook
from gpuyard.model.job import Job, Phase
from gpuyard.model.node import Gpu, Health, Node
from gpuyard.model.queue import ROOT, Queue
from gpuyard.model.reasons import Reason
from gpuyard.model.resources import UNLIMITED, WHOLE, as_gpus
from gpuyard.model.snapshot import Snapshot


@dataclass(frozen=True)
class NodeRow:
    """A node and what is taken of it."""

    node: Node
    counts: Inventory


@dataclass(frozen=True)
class QueueRow:
    """A queue, its depth in the tree, what it holds, and the jobs in it and below it."""

    queue: Queue
    depth: int
    used: int
    line: QueueLine | None
    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class ListedJob:
    """A job, its phase, and what the next plan says of it."""

    job: Job
    phase: Phase
    held: int
    asked: int
    reason: Reason | None
    snapshot: Snapshot


def show_nodes(path: str, wish: TableWish) -> None:
    """The nodes of a snapshot."""
    snapshot = sources.read(path).snapshot
    counts = inventory.take(snapshot)
    rows = [NodeRow(node, counts) for node in sorted(snapshot.nodes, key=lambda node: words.natural(node.name))]
    write(NODES, rows, wish)


def show_queues(path: str, wish: TableWish) -> None:
    """The queues of a snapshot."""
    write(QUEUES, queue_rows(sources.read(path).snapshot), wish)


def show_jobs(path: str, wish: TableWish, choice: JobChoice) -> None:
    """The jobs of a snapshot."""
    rows = job_rows(sources.read(path).snapshot)
    write(JOBS, [row for row in rows if not choice or choice.takes(JOBS.document(row))], wish)


def queue_rows(snapshot: Snapshot) -> list[QueueRow]:
    """Every queue in the order of the tree."""
    from gpuyard.brain import foresee

    used = inventory.take(snapshot).used_by_queue()
    lines = {line.name: line for line in foresee.outlook(snapshot).queues}
    parents = {queue.name: queue.parent for queue in snapshot.queues}
    standing: dict[str, list[Job]] = defaultdict(list)
    for job in snapshot.jobs:
        for name in inventory.lineage(job.queue, parents):
            standing[name].append(job)
    return [
        QueueRow(
            queue,
            depth,
            used.get(queue.name, 0),
            lines.get(queue.name),
            tuple(standing[queue.name]),
        )
        for queue, depth in inventory.in_tree_order(snapshot.queues)
    ]


def job_rows(snapshot: Snapshot) -> list[ListedJob]:
    """Every job in the order of its queue and age."""
    from gpuyard.brain import foresee

    counts = inventory.take(snapshot)
    card = inventory.largest_memory(snapshot.nodes)
    reasons = plan_reasons(foresee.outlook(snapshot))
    return [
        ListedJob(
            job,
            inventory.phase(job),
            counts.held[job.name],
            inventory.asked_gpus(job, card),
            reasons.get(job.name),
            snapshot,
        )
        for job in sorted(snapshot.jobs, key=lambda job: (job.queue, job.submitted, words.natural(job.name)))
    ]


def plan_reasons(outlook: Outlook) -> dict[str, Reason]:
    """What the next plan says of each job that it starts, moves, stops or leaves waiting."""
    acting = {action.job: action.reason for action in outlook.actions if isinstance(action, Start | Evict | Move)}
    return acting | {waiting.job: waiting.reason for waiting in outlook.waiting}


# --- nodes ---------------------------------------------------------------------------------------


def gpu_map(row: NodeRow) -> Any:
    """One sign for each GPU, islands apart."""
    islands: dict[int, list[Gpu]] = {}
    for gpu in row.node.gpus:
        islands.setdefault(gpu.island, []).append(gpu)
    parts = ["".join(_sign(row, gpu) for gpu in island) for island in islands.values()]
    return " ".join(parts) or "-"


def _sign(row: NodeRow, gpu: Gpu) -> str:
    taken = row.counts.use[row.node.name].gpus.get(gpu.index, 0)
    if not gpu.usable:
        return "✗"
    if gpu.slices is not None:
        return "▤"
    if taken:
        return "■" if taken >= WHOLE else "◧"
    return "?" if gpu.health is Health.SUSPECT else "□"


def _health(node: Node) -> str:
    sick = sum(gpu.health is Health.SICK for gpu in node.gpus)
    suspect = sum(gpu.health is Health.SUSPECT for gpu in node.gpus)
    parts = [f"{sick} sick"] * bool(sick) + [f"{suspect} suspect"] * bool(suspect)
    return ", ".join(parts) or "ok"


def _left(total: int, used: int) -> int:
    return total if total >= UNLIMITED else total - used


def _node_document(row: NodeRow) -> Document:
    use = row.counts.use[row.node.name]
    defaults = {"name": row.node.name, "gpus": 0, "cpu": "unlimited", "memory": "unlimited", "cordoned": False}
    return (
        defaults
        | writing.node_document(row.node)
        | {
            "phase": "cordoned" if row.node.closed else "ready",
            "free": row.counts.free(row.node),
            "used": as_gpus(sum(use.gpus.values())),
            "jobs": sorted(use.jobs),
        }
    )


NODES: Listing[NodeRow] = Listing(
    "node",
    (
        column("NAME", lambda row: row.node.name),
        column("POOL", lambda row: row.node.pool or "-"),
        column("MODEL", lambda row: row.node.model or "-"),
        column("FREE", lambda row: f"{row.counts.free(row.node)}/{len(row.node.gpus)}", right=True),
        column("MAP", gpu_map),
        column("HEALTH", lambda row: _health(row.node)),
        column("PHASE", lambda row: "cordoned" if row.node.closed else "ready"),
        column("PLACE", lambda row: "/".join(name for _, name in row.node.domains) or "-", wide=True),
        column(
            "CPU FREE",
            lambda row: words.cores(_left(row.node.cpu, row.counts.use[row.node.name].cpu)),
            right=True,
            wide=True,
        ),
        column(
            "MEM FREE",
            lambda row: words.size(_left(row.node.memory, row.counts.use[row.node.name].memory)),
            right=True,
            wide=True,
        ),
        column("JOBS", lambda row: words.some(sorted(row.counts.use[row.node.name].jobs)), wide=True, wraps=True),
    ),
    _node_document,
)


# --- queues --------------------------------------------------------------------------------------


def _borrowed(row: QueueRow) -> int:
    return max(0, row.used - row.queue.quota.gpu)


def _waiting(jobs: Iterable[Job]) -> int:
    return sum(inventory.phase(job) in (Phase.WAITING, Phase.HELD) for job in jobs)


def _queue_document(row: QueueRow) -> Document:
    share = {"fair_share": queue_line_document(row.line)["fair_share"]} if row.line else {}
    defaults: Document = {
        "name": row.queue.name,
        "parent": ROOT,
        "quota": 0,
        "limit": "unlimited",
        "weight": 1,
        "priority": 0,
    }
    return (
        defaults
        | writing.queue_document(row.queue)
        | {
            "used": as_gpus(row.used),
            "borrowed": as_gpus(_borrowed(row)),
            **share,
            "jobs": len(row.jobs),
            "waiting": _waiting(row.jobs),
        }
    )


QUEUES: Listing[QueueRow] = Listing(
    "queue",
    (
        column("NAME", lambda row: "  " * row.depth + row.queue.name),
        column("QUOTA", lambda row: words.gpus(row.queue.quota.gpu), right=True),
        column("LIMIT", lambda row: words.gpus(row.queue.limit.gpu), right=True),
        column("FAIR SHARE", lambda row: words.gpus(row.line.fair_share) if row.line else "-", right=True),
        column("USED", lambda row: words.gpus(row.used), right=True),
        column("BORROWED", lambda row: words.gpus(_borrowed(row)), right=True),
        column("WAITING", lambda row: _waiting(row.jobs), right=True),
        column("WEIGHT", lambda row: f"{row.queue.weight:g}", right=True, wide=True),
        column("PRIORITY", lambda row: row.queue.priority, right=True, wide=True),
        column("JOBS", lambda row: len(row.jobs), right=True, wide=True),
    ),
    _queue_document,
)


# --- jobs ----------------------------------------------------------------------------------------

_PHASE_STYLES = {Phase.RUNNING: "green", Phase.WAITING: "yellow", Phase.STARTING: "cyan"}


def _job_gpus(row: ListedJob) -> str:
    """What it holds of what it asks for, as one number where they are the same."""
    if row.held in (0, row.asked):
        return words.gpus(row.asked)
    return f"{words.gpus(row.held)}/{words.gpus(row.asked)}"


def _age(row: ListedJob) -> str:
    """Since it was submitted, whatever has become of it; no file makes it younger than its run."""
    came = min(row.job.submitted, row.job.submitted if row.job.started is None else row.job.started)
    return words.duration(row.snapshot.now - came)


def _run_time(row: ListedJob) -> str:
    return "-" if row.job.started is None else words.duration(row.snapshot.now - row.job.started)


def _job_defaults(job: Job) -> Document:
    """What a file may leave out but a reader of the listing should not have to know."""
    defaults: Document = {
        "name": job.name,
        "queue": job.queue,
        "class": job.job_class.value,
        "submitted": moment(job.submitted),
    }
    groups = job.task_groups()
    if len(groups) > 1:
        return defaults
    return defaults | {"tasks": groups[0].tasks, "min": groups[0].min, "gpus": groups[0].request.gpus}


def _job_document(row: ListedJob) -> Document:
    policy = row.snapshot.policy
    return (
        _job_defaults(row.job)
        | writing.job_document(row.job, row.snapshot.now)
        | {
            "priority": policy.priority(row.job),
            "preemptible": policy.preemptible(row.job),
            "phase": row.phase.value,
            "held_gpus": as_gpus(row.held),
            "asked_gpus": as_gpus(row.asked),
        }
        | ({"reason": reason_document(row.reason)} if row.reason else {})
    )


JOBS: Listing[ListedJob] = Listing(
    "job",
    (
        column("NAME", lambda row: row.job.name),
        column("QUEUE", lambda row: row.job.queue),
        column("PHASE", lambda row: terminal.text(row.phase.value, _PHASE_STYLES.get(row.phase, ""))),
        column("SHAPE", lambda row: words.shape(row.job)),
        column("GPUS", _job_gpus, right=True),
        column("AGE", _age, right=True),
        column("RUN", _run_time, right=True),
        column("REASON", lambda row: row.reason.code.value if row.reason else "-"),
        column("USER", lambda row: row.job.user or "-", wide=True),
        column("CLASS", lambda row: row.job.job_class.value, wide=True),
        column("PRIORITY", lambda row: row.snapshot.policy.priority(row.job), right=True, wide=True),
        column("WHERE", lambda row: words.places(row.job.placements) or "-", wide=True, wraps=True),
        column("WHY", lambda row: words.told(row.reason, row.job.name) if row.reason else "-", wide=True, wraps=True),
    ),
    _job_document,
)
