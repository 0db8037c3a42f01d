"""Nodes, their GPUs, and the pools they belong to: what the fleet is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from gpuyard.model.resources import ATTACHABLE, PORT, UNLIMITED, Extras

HOURS_A_MONTH = 730.0
ARCHITECTURES = (
    "kepler", "maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell", "rubin",
)  # fmt: skip
"""Oldest first; `min_architecture` accepts the named one and all that follow."""


class Health(Enum):
    """The state of one GPU. Nothing new goes on a sick one; a suspect one is used last (rule 13)."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    SICK = "sick"


class Effect(Enum):
    """What a taint does to tasks that do not tolerate it. `PreferNoSchedule` only makes a node less liked."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True)
class Taint:
    """A mark on a node that repels tasks without a matching toleration."""

    key: str
    value: str = ""
    effect: Effect = Effect.NO_SCHEDULE


@dataclass(frozen=True, slots=True)
class Closure:
    """Why nothing new goes on a node or a GPU: somebody closed it, or the machine cannot be reached."""

    reason: str = ""
    by: str = ""
    drains: bool = False
    """What runs there is to go, too."""
    force: bool = False
    """Also those who have a right to stay."""
    since: float = 0.0

    def __str__(self) -> str:
        done = "drained" if self.drains else "closed" if self.reason and not self.by else "cordoned"
        return f"{done}{f' by {self.by}' if self.by else ''}{f' ({self.reason})' if self.reason else ''}"


@dataclass(frozen=True, slots=True)
class Place:
    """A node, or one GPU of it; as people write it: `n0`, `n0:3`."""

    node: str
    gpu: int | None = None

    def __str__(self) -> str:
        return self.node if self.gpu is None else f"{self.node}:{self.gpu}"


CORDONED = Closure()
"""Closed, and nobody said why."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device of a node. `slices` is None for a whole device, else the MIG slices it is cut into.

    `slice_uuids` has the UUID of each of them, in the same order, where the driver told them. `island`, `switch` and
    `numa` number what it shares with neighbours: NVLink, PCIe switches without a host bridge between, a NUMA node.
    """

    index: int
    island: int = 0
    health: Health = Health.HEALTHY
    slices: tuple[str, ...] | None = None
    uuid: str = ""
    slice_uuids: tuple[str, ...] = ()
    closed: Closure | None = None
    switch: int = 0
    numa: int = 0

    @property
    def sick(self) -> bool:
        """Whether it cannot be trusted with anything."""
        return self.health is Health.SICK

    @property
    def usable(self) -> bool:
        """Whether something new may go on it: neither sick nor closed."""
        return self.closed is None and self.health is not Health.SICK


class Alignment(Enum):
    """How strictly the GPUs of one task are kept to NUMA nodes; a kubelet refuses for good what it cannot align.

    `restricted`: to as few as could hold them at all, were they free. Nearness is preferred in any case (rule 12).
    """

    NONE = "none"
    RESTRICTED = "restricted"
    SINGLE = "single-numa-node"


@dataclass(frozen=True, slots=True)
class Load:
    """What others use of a node beside GPUs: not ours, and not ours to move."""

    cpu: int = 0
    memory: int = 0
    extras: Extras = ()


NO_LOAD = Load()


@dataclass(frozen=True, slots=True)
class Node:
    """A machine with its GPUs, CPU, memory, labels, taints and its place in the topology.

    All GPUs of a node are of one `model`; `gpu_memory` is bytes of one device (0: not known). What is `taken` is there
    but not free: a task that needs it waits, and is not told that it could never run.
    """

    name: str
    pool: str = ""
    model: str = ""
    architecture: str = ""
    gpu_memory: int = 0
    gpus: tuple[Gpu, ...] = ()
    cpu: int = UNLIMITED
    memory: int = UNLIMITED
    domains: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    closed: Closure | None = None
    taken: Load = NO_LOAD
    extras: Extras = ()
    """What else there is, by name."""
    workloads: tuple[str, ...] = ()
    """The classes of jobs that may run here; none named: all."""
    alignment: Alignment = Alignment.NONE

    def extra(self, name: str) -> int:
        """How much of something else it has, used or not."""
        listed = next((amount for known, amount in self.extras if known == name), None)
        if listed is not None:
            return listed
        return UNLIMITED if name.startswith(ATTACHABLE) else int(name.startswith(PORT))


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes of one SKU under one policy. `price` is that of an 8-GPU node a month; 0 is not known."""

    name: str
    price: float = 0.0
    max_busy: tuple[tuple[str, int], ...] = ()
    """(level, GPUs): at most so many GPUs of this pool may be busy in one domain of the level."""
    min_nodes: int = 0
    max_nodes: int = 0

    def gpu_hour(self) -> float:
        """The price of one GPU for an hour."""
        return self.price / 8 / HOURS_A_MONTH


@dataclass(frozen=True, slots=True)
class Budget:
    """A disruption budget over tasks of `jobs`: a PDB, or a job's own. Exactly one of the three bounds is set."""

    name: str
    jobs: tuple[str, ...] = field(default=())
    min_available: int | None = None
    max_unavailable: int | None = None
    allowed: int | None = None
    """So many tasks may be disturbed now, as whoever keeps the budget counts them."""
    covers: tuple[tuple[str, str], ...] = ()
    """Groups of its jobs that it is about, as (job, group); none named: all."""
