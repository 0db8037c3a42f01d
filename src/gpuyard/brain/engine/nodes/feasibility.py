"""Where could it run: for each kind of task, which nodes are eligible and how many such tasks fit on each now.

A `Shape` is one kind of task on one set of models. It keeps its columns and brings only the nodes up to date that
changed since it was last asked, so a decision costs what has changed, not what exists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from gpuyard.brain.engine.nodes.columns import Bools, Columns, Ints
from gpuyard.brain.engine.nodes.eligibility import Eligibility, Tier
from gpuyard.brain.engine.nodes.layout import alignment, device_masks
from gpuyard.brain.engine.nodes.requests import TaskRequest, has_labels, has_model
from gpuyard.brain.engine.nodes.stranding import Gauge
from gpuyard.brain.engine.nodes.weighing import one_by_one, scoring
from gpuyard.model.node import Node
from gpuyard.model.policy import Policy
from gpuyard.model.resources import WHOLE

PLENTY = 1 << 31
"""Room where only CPU-less, GPU-less tasks are asked for."""
FEW = 4
"""Up to so many changed nodes a look into what was seen before is cheaper than columns."""
SOME = 8
"""Up to so many changed nodes are weighed one by one, in plain numbers: a hundred calls of NumPy cost more."""


class Shape(scoring.Subject):
    """One kind of task on one tier of models, with its room and score per node.

    `room[n]` is how many such tasks fit on node n now; `score[n]` how good node n is for the next one (-1: no room).
    """

    __slots__ = (
        "_empty", "_plain", "_seen_states", "_shapes", "_tastes", "_varies", "room", "score", "seen", "tier"
    )  # fmt: skip

    def __init__(self, shapes: Shapes, request: TaskRequest, tier: Tier, careful: bool) -> None:
        self.request = request
        self.tier = tier
        self.careful = careful
        self.columns = shapes.columns
        self.gauge = shapes.gauge
        self.weights = shapes.weights
        self.scoring = shapes.scoring
        self.eligible = shapes.eligible(request, tier)
        self.need = shapes.need(request)
        self.spares = scoring.spares_scarce(self)
        self.dislike = shapes.distaste(request)
        self.is_choosy = bool(self.dislike.any())
        self.has_choice = bool(shapes.static(request, (has_model, has_labels)).all())
        count = len(shapes.columns.nodes)
        self.room: Ints = np.zeros(count, dtype=np.int64)
        self.score = np.full(count, -1.0)
        self.device: Ints = np.zeros(count, dtype=np.int64)
        self.seen = 0
        self._seen_states: dict[object, tuple[int, float, int]] = {}
        self._tastes = bool(request.likes)
        self._varies = bool(request.likes or request.resources.memory or request.resources.extras)
        """Whether nodes of one state may still differ to it."""
        self._empty: Ints | None = None
        self._shapes = shapes
        self._plain = one_by_one.can_weigh(self)
        self._work_out(np.flatnonzero(self.eligible))
        self.seen = shapes.columns.version

    @property
    def empty_room(self) -> Ints:
        """How many such tasks each node would hold if it were empty; 0 where it is not eligible."""
        if self._empty is None:
            self._empty = np.where(self.eligible, self._shapes.room_when_empty(self.request), 0)
        return self._empty

    def renew(self, n: int, described_alike: bool) -> None:
        """A node is in another condition; the next `sync` weighs it anew, if it is still eligible."""
        self._empty = None
        if described_alike:
            return
        self.eligible[n] = self._shapes.is_eligible(self.request, self.tier, n)
        self.dislike = self._shapes.distaste(self.request)
        self.is_choosy = bool(self.dislike.any())
        if not self.eligible[n]:
            self.room[n], self.score[n] = 0, -1.0
        self._look_around()

    def _look_around(self) -> None:
        """What the scores of all nodes depend on, whichever node it is about."""
        had = self.has_choice
        self.has_choice = bool(self._shapes.static(self.request, (has_model, has_labels)).all())
        if self.has_choice != had:
            self._seen_states.clear()
            self._work_out(np.flatnonzero(self.eligible))

    def sync(self) -> None:
        """Bring room and score up to date with what changed since."""
        version = self.columns.version
        if self.seen == version:
            return
        touched, seen, self.seen = self.columns.touched, self.seen, version
        few = SOME if self._plain else FEW
        if version - seen <= few:  # one task was placed since, as a rule
            self._recall([n for n in touched.since(seen) if self.eligible[n]])
            return
        nodes = touched.among(seen, self.eligible)
        if len(nodes) > few:
            self._work_out(nodes)
        else:
            self._recall(nodes.tolist())

    def _recall(self, nodes: list[int]) -> None:
        """Few nodes one by one, for a node's state is often one that was seen before."""
        unseen: dict[int, object] = {}
        states, known_nodes = self._seen_states, self._shapes.known_nodes
        for node in nodes:
            state: object = known_nodes.state(node)
            if self._varies:
                state = (state, *self._room_by_size(node), self._tastes and float(self.dislike[node]))
            known = states.get(state)
            if known is None:
                unseen[node] = state
            else:
                self.room[node], self.score[node], self.device[node] = known
        if unseen:
            self._see(unseen)

    def _see(self, unseen: dict[int, object]) -> None:
        """Work these out, and remember what was found for the states that they are in."""
        if self._plain:
            self._work_out_singly(unseen)
        else:
            self._work_out(np.fromiter(unseen, np.int64, len(unseen)))
        if len(self._seen_states) >= STATES_KEPT:
            self._seen_states.clear()
        for node, seen in unseen.items():
            self._seen_states[seen] = (int(self.room[node]), float(self.score[node]), int(self.device[node]))

    def _room_by_size(self, node: int) -> tuple[int, ...]:
        """How many tasks memory and extras leave room for: all that they matter, and alike where nodes are nearly."""
        columns, resources = self.columns, self.request.resources
        memory = int(columns.memory[node]) // resources.memory if resources.memory else 0
        if not resources.extras:
            return (memory,)
        return memory, *(int(columns.extras.free(name)[node]) // amount for name, amount in resources.extras)

    def _work_out(self, nodes: Ints) -> None:
        room = room_on(self.columns, self.request, self.need, nodes, self.careful)
        self.room[nodes] = room
        self.score[nodes] = -1.0
        fitting = nodes[room > 0]  # full nodes are the many, and need no weighing
        if self._plain and len(fitting) <= SOME:
            for n in fitting.tolist():
                self.score[n] = one_by_one.pack(self, self._shapes.known_nodes, n)
        elif len(fitting):
            self.score[fitting] = scoring.pack(self, fitting)

    def _work_out_singly(self, nodes: Iterable[int]) -> None:
        """The same in plain numbers."""
        for n in nodes:
            room = self.room[n] = one_by_one.room(self, n, PLENTY)
            self.score[n] = one_by_one.pack(self, self._shapes.known_nodes, n) if room else -1.0


def room_when_empty(request: TaskRequest, node: Node) -> int:
    """How many tasks of `request` an empty node holds, sick and closed devices left out."""
    sound = [gpu for gpu in node.gpus if gpu.usable]
    whole = sum(gpu.slices is None for gpu in sound)
    room = PLENTY
    if request.gpus:
        room = whole // request.gpus
        if request.aligns and (aligned := alignment.aligned_of(node)) is not None:
            usable = device_masks.usable(node.gpus)
            room = alignment.room(aligned, usable, device_masks.suspect(node.gpus) & usable, request.gpus)
    elif request.shared:
        room = whole * (WHOLE // request.share_on(node))
    elif request.resources.mig:
        have = Counter(profile for gpu in sound for profile in gpu.slices or ())
        room = min(have[profile] // count for profile, count in request.resources.mig)
    if request.resources.cpu:
        room = min(room, node.cpu // request.resources.cpu)
    for name, amount in request.resources.extras:
        room = min(room, node.extra(name) // amount)
    return min(room, node.memory // request.resources.memory) if request.resources.memory else room


def room_on(columns: Columns, request: TaskRequest, need: Ints, nodes: Ints, careful: bool) -> Ints:
    """How many tasks of `request` fit on each of `nodes` now, counting devices, CPU, memory and the rest."""
    room = gpu_room(columns, request, need, nodes, careful)
    if request.resources.cpu:
        room = np.minimum(room, columns.cpu[nodes] // request.resources.cpu)
    if request.resources.memory:
        room = np.minimum(room, columns.memory[nodes] // request.resources.memory)
    if request.resources.extras:
        room = columns.extras.cut(room, request.resources.extras, nodes)
    return np.maximum(room, 0)


def gpu_room(columns: Columns, request: TaskRequest, need: Ints, nodes: Ints, careful: bool) -> Ints:
    """How many tasks of `request` the free devices of each node could take, CPU and memory aside."""
    room = loose_room(columns, request, need, nodes, careful)
    return _aligned(columns, request, nodes, room, careful) if columns.aligned and request.aligns else room


def loose_room(columns: Columns, request: TaskRequest, need: Ints, nodes: Ints, careful: bool) -> Ints:
    """The same, were there no kubelets that insist on NUMA nodes."""
    if request.gpus:
        free = columns.healthy if careful else columns.whole
        return free[nodes] // request.gpus
    if request.shared:
        return _share_room(columns, request, need, nodes, careful)
    if request.resources.mig:
        rooms = [columns.slices_of(profile)[nodes] // count for profile, count in request.resources.mig]
        fewest: Ints = np.minimum.reduce(rooms)
        return fewest
    return np.full(len(nodes), PLENTY, dtype=np.int64)


def _aligned(columns: Columns, request: TaskRequest, nodes: Ints, room: Ints, careful: bool) -> Ints:
    """Less where a kubelet insists on NUMA nodes."""
    for place, n in enumerate(nodes.tolist()):
        aligned = columns.aligned.get(n)
        if aligned is not None and room[place]:
            suspect = columns.suspect[n] & columns.free_mask[n]
            free, suspect = (columns.free_mask[n] & ~suspect, 0) if careful else (columns.free_mask[n], suspect)
            room[place] = alignment.room(aligned, free, suspect, request.gpus)
    return room


def _share_room(columns: Columns, request: TaskRequest, need: Ints, nodes: Ints, careful: bool) -> Ints:
    shares = columns.shares_of(nodes)
    if careful:
        shares = shares * columns.trusted[nodes].T
    # by one number NumPy divides several times faster than by a column of the same
    each = need[nodes] if request.resources.gpu_memory else max(request.resources.share, 1)
    room: Ints = np.add.reduce(shares // each, axis=0)
    return room


class Shapes(Eligibility):
    """All shapes asked for so far. Thrown away when nodes come, go or take other places."""

    def __init__(self, columns: Columns, policy: Policy) -> None:
        super().__init__(columns)
        self.weights = policy.weights
        self.scoring = policy.scoring
        self.gauge = Gauge(columns)
        self._shapes: dict[tuple[int, Tier, bool], Shape] = {}
        self._known_nodes: one_by_one.KnownNodes | None = None
        self._empty: dict[int, tuple[TaskRequest, Ints]] = {}
        self._alike: tuple[Ints, list[int]] | None = None
        self._held_when_empty: dict[tuple[int, Tier, int], bool] = {}
        """Answers of `holds_when_empty`, true as long as no node is in another condition."""

    def get(self, request: TaskRequest, tier: Tier, careful: bool = False) -> Shape:
        """The shape, up to date."""
        key = (request.id, tier, careful)
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = Shape(self, request, tier, careful)
        shape.sync()
        return shape

    @property
    def known_nodes(self) -> one_by_one.KnownNodes:
        """What is known of single nodes by the demand of the moment; made when it is first asked for."""
        if self._known_nodes is None:
            self._known_nodes = one_by_one.KnownNodes(self.columns, self.gauge, self.scoring)
        return self._known_nodes

    def revalue(self) -> None:
        """The demand changed, or what else scores rest on: every score is worth nothing now."""
        self._shapes.clear()
        self._known_nodes = None

    def renew(self, n: int, described_alike: bool) -> None:
        """A node is in another condition, and perhaps described otherwise: what was worked out about it is not true."""
        if not described_alike:
            self.describe(n)
        node, self._alike = self.columns.nodes[n], None
        self._held_when_empty.clear()
        for request, room in self._empty.values():
            room[n] = room_when_empty(request, node)
        for shape in self._shapes.values():
            shape.renew(n, described_alike)

    def holds_when_empty(self, request: TaskRequest, tier: Tier, tasks: int) -> bool:
        """Whether the nodes with models of the tier, if they were empty, would hold so many tasks."""
        key = (request.id, tier, tasks)
        found = self._held_when_empty.get(key)
        if found is None:
            room = self.room_when_empty(request)[self.eligible(request, tier)]
            found = self._held_when_empty[key] = int(np.minimum(room, tasks).sum()) >= tasks
        return found

    def room_when_empty(self, request: TaskRequest) -> Ints:
        """How many tasks of `request` each node would hold if it were empty."""
        found = self._empty.get(request.id)
        if found is None:
            found = self._empty[request.id] = (request, self._work_out_empty(request))
        return found[1]

    def _work_out_empty(self, request: TaskRequest) -> Ints:
        """Nodes that are alike when empty are asked once."""
        group, examples = self._alike_when_empty()
        rooms = np.array([room_when_empty(request, self.columns.nodes[n]) for n in examples], dtype=np.int64)
        return rooms[group]

    def _alike_when_empty(self) -> tuple[Ints, list[int]]:
        """Nodes of one kind, those with devices that are sick, closed or sliced one by one: which group each node is
        of, and a node of each. Found once, until a node is in another condition."""
        if self._alike is None:
            columns, known = self.columns, dict[object, int]()
            group, examples = [], list[int]()
            for n, kind in enumerate(columns.kind):
                node = columns.nodes[n]
                key = (kind, node.cpu, node.memory, node.extras, n if columns.sliced[n] or n in columns.barred else -1)
                if key not in known:
                    known[key] = len(examples)
                    examples.append(n)
                group.append(known[key])
            self._alike = np.array(group, dtype=np.int64), examples
        return self._alike


def free_gpus(columns: Columns, nodes: Bools | Ints) -> int:
    """GPUs free on these nodes, parts of shared devices and MIG slices included, in grains."""
    return int(columns.shares[nodes].sum())


STATES_KEPT = 1 << 12
"""Conditions of nodes that a shape remembers its answer for; when there are more, it begins anew."""
