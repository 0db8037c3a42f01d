"""Every "no" and every "because": a closed set of codes, each on its rung of the ladder (rule 24), with numbers.

Nobody parses text: the message is made from the numbers, once, here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, IntEnum

from gpuyard.model.resources import as_gpus, gpu_words


class Rung(IntEnum):
    """The ladder, cheapest first. Each node is counted once, at its first failed rung."""

    QUOTA = 0
    PRIORITY = 1
    GANG = 2
    SHAPE = 3
    FRAGMENTATION = 4
    TOPOLOGY = 5
    MODEL = 6
    HEALTH = 7
    LABELS = 8
    CPU_MEMORY = 9
    POLICY = 10
    MACHINERY = 11

    @property
    def title(self) -> str:
        """The rung as people read it."""
        return _RUNG_TITLES[self]


_RUNG_TITLES = {
    Rung.QUOTA: "quota",
    Rung.PRIORITY: "priority",
    Rung.GANG: "gang",
    Rung.SHAPE: "shape",
    Rung.FRAGMENTATION: "fragmentation",
    Rung.TOPOLOGY: "topology",
    Rung.MODEL: "model",
    Rung.HEALTH: "health",
    Rung.LABELS: "taints and labels",
    Rung.CPU_MEMORY: "CPU and memory",
    Rung.POLICY: "policy and admission",
    Rung.MACHINERY: "machinery",
}


READING: dict[str, tuple[Rung, ...]] = {
    "capacity": (Rung.GANG, Rung.SHAPE, Rung.FRAGMENTATION, Rung.CPU_MEMORY, Rung.HEALTH),
    "constraints": (Rung.TOPOLOGY, Rung.MODEL, Rung.LABELS, Rung.POLICY),
    "quota": (Rung.QUOTA, Rung.PRIORITY),
    "machinery": (Rung.MACHINERY,),
}
"""The rungs as a person looks for the cause: is there enough, may I have it there, is it my turn, does it all work?
What is asked first and named as the cause stays the ladder's order, which is that of cost."""


class Outcome(Enum):
    """What a "no" means for its job.

    NOT_NOW: keep it waiting, ask again when something changes. NEVER: this fleet and these limits cannot run it; tell
    its owner. BUG: we contradict ourselves; report it, leave the world alone.
    """

    NOT_NOW = "not now"
    NEVER = "never"
    BUG = "bug"


class Code(Enum):
    """Why a job waits, or why an action is taken."""

    # why it waits
    OVER_LIMIT = "OverLimit"
    OVER_QUOTA = "OverQuota"
    OUTRANKED = "Outranked"
    NOT_ENOUGH_GPUS = "NotEnoughGpus"
    SHAPE_IMPOSSIBLE = "ShapeImpossible"
    FRAGMENTED = "Fragmented"
    TOPOLOGY_UNMET = "TopologyUnmet"
    NUMA_UNMET = "NumaUnmet"
    MODEL_UNAVAILABLE = "ModelUnavailable"
    GPUS_SICK = "GpusSick"
    NODES_EXCLUDED = "NodesExcluded"
    NOT_ENOUGH_CPU = "NotEnoughCpu"
    NOT_ENOUGH_MEMORY = "NotEnoughMemory"
    NOT_ENOUGH_EXTRA = "NotEnoughExtra"
    NEIGHBOURS = "Neighbours"
    POWER_CAP = "PowerCap"
    RESERVED = "Reserved"
    HELD = "Held"
    MEMBERS_ENDED = "MembersEnded"
    MEMBERS_ABSENT = "MembersAbsent"
    NODES_UNAVAILABLE = "NodesUnavailable"
    SET_APART = "SetApart"
    # why an action is taken
    FITS = "Fits"
    GROWS = "Grows"
    REPAIRED = "Repaired"
    CONSOLIDATED = "Consolidated"
    DEFRAGMENTED = "Defragmented"
    PREEMPTED = "Preempted"
    RECLAIMED = "Reclaimed"
    CRITICAL = "Critical"
    STALE = "Stale"
    DEADLOCK = "Deadlock"
    WAITS_ITS_TURN = "WaitsItsTurn"
    DRAINED = "Drained"
    TIME_LIMIT = "TimeLimit"
    # why nothing is done that nobody waits for
    DOES_NOT_PAY = "DoesNotPay"
    NOTHING_TO_GAIN = "NothingToGain"
    WORLD_CHANGED = "WorldChanged"

    @property
    def rung(self) -> Rung | None:
        """The rung of a "no"; None for the reason of an action."""
        return _RUNGS.get(self)


_RUNGS = {
    Code.OVER_LIMIT: Rung.QUOTA,
    Code.OVER_QUOTA: Rung.QUOTA,
    Code.OUTRANKED: Rung.PRIORITY,
    Code.NOT_ENOUGH_GPUS: Rung.GANG,
    Code.MEMBERS_ENDED: Rung.GANG,
    Code.MEMBERS_ABSENT: Rung.GANG,
    Code.SHAPE_IMPOSSIBLE: Rung.SHAPE,
    Code.FRAGMENTED: Rung.FRAGMENTATION,
    Code.TOPOLOGY_UNMET: Rung.TOPOLOGY,
    Code.NUMA_UNMET: Rung.TOPOLOGY,
    Code.MODEL_UNAVAILABLE: Rung.MODEL,
    Code.GPUS_SICK: Rung.HEALTH,
    Code.NODES_EXCLUDED: Rung.LABELS,
    Code.NOT_ENOUGH_CPU: Rung.CPU_MEMORY,
    Code.NOT_ENOUGH_MEMORY: Rung.CPU_MEMORY,
    Code.NOT_ENOUGH_EXTRA: Rung.CPU_MEMORY,
    Code.NEIGHBOURS: Rung.POLICY,
    Code.POWER_CAP: Rung.POLICY,
    Code.RESERVED: Rung.POLICY,
    Code.HELD: Rung.POLICY,
    Code.NODES_UNAVAILABLE: Rung.MACHINERY,
    Code.SET_APART: Rung.MACHINERY,
}


@dataclass(frozen=True, slots=True)
class Reason:
    """One "no" or one "because", with the numbers it rests on.

    GPU amounts are grains unless the code speaks of CPU (milli-cores), memory (bytes) or extras. `where` names the
    queue, level, model or job it is about; `message` is filled by whoever knows the whole story, else made here.
    """

    code: Code
    outcome: Outcome = Outcome.NOT_NOW
    needed: int | None = None
    free: int | None = None
    largest_fit: int | None = None
    where: str = ""
    message: str = ""

    def __str__(self) -> str:
        return self.message or self._plain()

    def _plain(self) -> str:
        """Short, where nobody has looked closer: what it asks for, and what stands in the way."""
        told = _SHORT.get(self.code, f"{self.code.value} ({self.where})" if self.where else self.code.value)
        if self.needed is None or self.code in NOT_GPUS:
            return told
        free = "" if self.free is None else f" ({as_gpus(self.free)} free)"
        return f"needs {gpu_words(self.needed)}; {told}{free}"


NOT_GPUS = (Code.NOT_ENOUGH_CPU, Code.NOT_ENOUGH_MEMORY, Code.NOT_ENOUGH_EXTRA)
"""Reasons whose numbers are not GPUs."""

_SHORT = {
    Code.NOT_ENOUGH_GPUS: "not enough are free together",
    Code.FRAGMENTED: "those that are free are scattered",
    Code.TOPOLOGY_UNMET: "no domain of its level has room",
    Code.NUMA_UNMET: "those that are free lie in different NUMA nodes",
    Code.MODEL_UNAVAILABLE: "none of its models is free",
    Code.GPUS_SICK: "those that it could use are sick",
    Code.NODES_EXCLUDED: "labels and taints leave it no node",
    Code.NOT_ENOUGH_CPU: "no node has enough CPU left",
    Code.NOT_ENOUGH_MEMORY: "no node has enough memory left",
    Code.NOT_ENOUGH_EXTRA: "no node has enough of something else left",
    Code.NEIGHBOURS: "it would stand beside somebody it avoids",
    Code.POWER_CAP: "a cap on busy GPUs leaves no room",
    Code.RESERVED: "what is free is kept for others",
    Code.OUTRANKED: "others come first",
    Code.NODES_UNAVAILABLE: "its nodes are closed",
    Code.PREEMPTED: "a job of higher priority took them",
    Code.CRITICAL: "a critical job took them",
    Code.RECLAIMED: "another queue took them back",
    Code.CONSOLIDATED: "it was moved to make room for another job",
    Code.DEADLOCK: "it gave way to end a deadlock",
}

NAMING_OTHERS = frozenset(
    (Code.RESERVED, Code.OUTRANKED, Code.PREEMPTED, Code.CRITICAL, Code.RECLAIMED, Code.CONSOLIDATED, Code.DEADLOCK)
)
"""Reasons whose words and `where` name other jobs than the one they are about."""


def without_names(reason: Reason) -> Reason:
    """The reason for somebody who may not know of others' jobs."""
    return replace(reason, where="", message="") if reason.code in NAMING_OTHERS else reason


@dataclass(frozen=True, slots=True)
class RungCount:
    """One line of the ladder: how many nodes fail first at this rung, or whether the rung as a whole holds."""

    rung: Rung
    holds: bool
    nodes: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A change that was tried in a transaction and lets the job start."""

    change: str
    kind: str
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A job in the way: what it holds, and what it would cost to make it go."""

    job: str
    must: str
    """`move` if it would still run elsewhere, else `stop`."""
    gpus: int
    """Grains."""
    queue: str
    priority: int
    preemptible: bool
    lost: float
    """Seconds of its work since the last checkpoint, and of warming up again."""
    budget: str = ""
    """The disruption budget that forbids to disturb it now."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why one job waits: the dominant reason, the ladder with counts, and what would let it run."""

    job: str
    reason: Reason
    ladder: tuple[RungCount, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    in_the_way: tuple[Obstacle, ...] = ()
    """Who would have to go, the cheapest way, though the job has no right to it now."""
    eta: tuple[float, float] | None = None
    """Seconds until it starts, as a range: half of the cases, nine of ten; None if nothing is known."""
