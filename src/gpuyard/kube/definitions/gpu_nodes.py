"""The kind `GpuNode`: one node's GPUs as its agent found them, their topology and their health.

Written by the agent of that node alone, and only when something is other than it was; read by the scheduler and by
whoever copies labels to the Node. The schema is made of the shapes below, which both sides read and write.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gpuyard.kube.definitions import structural
from gpuyard.kube.definitions.structural import KindNames, KindShape
from gpuyard.kube.objects import Condition, Metadata, Projection

KIND = "GpuNode.gpuyard.dev"
PLUGIN_READY = "PluginReady"
"""The condition that says whether the node's kubelet has been told of its devices."""
GPU_NODES = KindNames("GpuNode", "gpunodes", "gn", "The GPUs of one node: inventory, topology and health.")
Word = Annotated[str, Meta(max_length=253)]
Prose = Annotated[str, Meta(max_length=1024)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
HealthWord = Literal["healthy", "suspect", "sick", "unknown"]


class SliceFacts(Projection, frozen=True):
    """One MIG slice."""

    profile: Word = ""
    uuid: Word = ""


class NodeGpu(Projection, frozen=True):
    """One device. `island`, `switch` and `numa` number what it shares with its neighbours, as in a snapshot."""

    uuid: Annotated[str, Meta(min_length=1, max_length=253)]
    index: Count = 0
    model: Word = ""
    architecture: Word = ""
    memory: Count = 0
    compute_capability: Word = ""
    bus: Word = ""
    island: Count = 0
    switch: Count = 0
    numa: Count = 0
    mig: bool = False
    slices: Annotated[list[SliceFacts], Meta(max_length=16)] = []  # noqa: RUF012  msgspec copies it


class NodeNic(Projection, frozen=True):
    """One network device, and the GPUs that are nearest to it: behind one PCIe switch, on one NUMA node, or all."""

    name: Annotated[str, Meta(min_length=1, max_length=253)]
    kind: Literal["infiniband", "net"] = "net"
    bus: Word = ""
    numa: Annotated[int, Meta(ge=0, le=2**31)] | None = None
    """None where the machine does not tell."""
    state: Word = ""
    speed_mbps: Count = 0
    near: Literal["switch", "numa", "node"] = "node"
    gpus: Annotated[list[Word], Meta(max_length=64)] = []  # noqa: RUF012  msgspec copies it
    """By UUID."""


NICS_MAX = 64


class GpuNodeSpec(Projection, frozen=True):
    """What does not change from one look to the next."""

    driver: Word = ""
    cuda: Word = ""
    clique: Word = ""
    """Which other nodes its GPUs reach over NVLink."""
    topology_policy: Word = ""
    """The kubelet's `topologyManagerPolicy`, where its plugin tells it NUMA nodes; "" where that is not known."""
    topology_scope: Word = ""
    plugin: bool = False
    """Whether our own device plugin hands them out, so that a pod gets the very ones that were chosen for it."""
    gpus: Annotated[list[NodeGpu], Meta(max_length=64)] = []  # noqa: RUF012  msgspec copies it
    nics: Annotated[list[NodeNic], Meta(max_length=NICS_MAX)] = []  # noqa: RUF012  msgspec copies it


class NodeGpuHealth(Projection, frozen=True):
    """One device's state, and why."""

    uuid: Annotated[str, Meta(min_length=1, max_length=253)]
    health: HealthWord = "unknown"
    why: Prose = ""


class GpuNodeStatus(Projection, frozen=True):
    """What does."""

    gpus: Annotated[list[NodeGpuHealth], Meta(max_length=64)] = []  # noqa: RUF012  msgspec copies it
    healthy: Count = 0
    conditions: list[Condition] = []  # noqa: RUF012  msgspec copies it


class GpuNodeObject(Projection, frozen=True):
    """One node's GPUs as the API server has them."""

    metadata: Metadata = Metadata()
    spec: GpuNodeSpec = GpuNodeSpec()
    status: GpuNodeStatus = GpuNodeStatus()


def plugin_is_away(node: GpuNodeObject | None) -> bool:
    """Whether its agent says that the kubelet has no devices to give; who says nothing is not away."""
    conditions = node.status.conditions if node is not None else []
    return any(each.type == PLUGIN_READY and each.status == "False" for each in conditions)


RULES = (
    ("!has(self.spec.gpus) || self.spec.gpus.all(g, self.spec.gpus.exists_one(h, h.uuid == g.uuid))",
     "every GPU has a UUID of its own"),
    ("!has(self.spec.gpus) || self.spec.gpus.all(g, !has(g.slices) || size(g.slices) == 0 || (has(g.mig) && g.mig))",
     "a GPU that is not in MIG mode has no slices"),
)  # fmt: skip
COLUMNS = (
    ("Model", "string", ".spec.gpus[0].model"),
    ("Driver", "string", ".spec.driver"),
    ("Healthy", "integer", ".status.healthy"),
    ("Ready", "string", ".status.conditions[?(@.type=='Ready')].status"),
)


def definition() -> dict[str, Any]:
    """What an API server is told of it."""
    parts = {}
    for name, shape in (("spec", GpuNodeSpec), ("status", GpuNodeStatus)):
        schema = msgspec.json.schema(shape)
        parts[name] = structural.structural(schema, schema["$defs"])
    parts["status"]["properties"]["conditions"] = structural.CONDITIONS
    for name in ("spec", "status"):  # merged by UUID: whoever applies one GPU's fact does not replace the others
        parts[name]["properties"]["gpus"] |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uuid"]}
    return structural.definition(GPU_NODES, KindShape(parts["spec"], parts["status"], COLUMNS, RULES))
