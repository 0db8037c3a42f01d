"""What a node's agent tells the cluster: its own `GpuNode`, written when something is other than it was, and no more.

Wired by `yard agent --gpu-node`. The agent may write nothing else there, and a policy of the API server sees to it that
it is its own node's. The inventory stays as it was told while NVML tells nothing: what is not known then is the health.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from gpuyard.agent import discovery, verdicts
from gpuyard.agent.kubelet_config import NOTHING_TOLD, KubeletConfig, KubeletTopology
from gpuyard.agent.nvml.facts import DeviceFacts, Nic, told
from gpuyard.agent.watching import GpuView, MachineView
from gpuyard.kube.client import ApiReply, KubeClient
from gpuyard.kube.credentials import KubeAccess
from gpuyard.kube.definitions.gpu_nodes import (
    GPU_NODES,
    NICS_MAX,
    GpuNodeObject,
    GpuNodeSpec,
    GpuNodeStatus,
    NodeGpu,
    NodeGpuHealth,
    NodeNic,
    SliceFacts,
)
from gpuyard.kube.objects import AnyObject, Condition
from gpuyard.model.errors import GpuYardError
from gpuyard.model.outside.ports import Clock

MANAGER = "gpuyard-agent"
APPLY = "application/apply-patch+yaml"
REST_S = 10.0
"""Between two tries at what could not be written."""
WHY_MAX = 1000
READY = "Ready"
_NUMBER = re.compile(r"\d+(\.\d+)?")


def spec_of(view: MachineView, plugin: bool = False, kubelet: KubeletTopology = NOTHING_TOLD) -> GpuNodeSpec | None:
    """The inventory; None before the machine was ever read."""
    machine = view.machine
    if machine is None:
        return None
    facts = [gpu.facts for gpu in sorted(view.gpus, key=lambda gpu: gpu.facts.index)]
    islands, pairs = discovery.islands_of(facts), machine.pairs
    grades = zip(islands, discovery.switches_of(facts, pairs), discovery.numa_of(facts, pairs), strict=True)
    gpus = [
        NodeGpu(
            uuid=gpu.uuid,
            index=gpu.index,
            model=discovery.model_name(gpu.name),
            architecture=told(gpu.architecture) or "",
            memory=told(gpu.memory) or 0,
            compute_capability=told(gpu.compute_capability) or "",
            bus=gpu.bus,
            island=island,
            switch=switch,
            numa=numa,
            mig=bool(told(gpu.mig)),
            slices=[SliceFacts(profile=each.profile, uuid=each.uuid) for each in gpu.slices] if told(gpu.mig) else [],
        )
        for gpu, (island, switch, numa) in zip(facts, grades, strict=True)
    ]
    if not all((told(gpu.numa) or 0) >= 0 and told(gpu.numa) is not None for gpu in facts):
        kubelet = NOTHING_TOLD  # who is not told of NUMA nodes insists on none
    return GpuNodeSpec(
        topology_policy=kubelet.policy, topology_scope=kubelet.scope,
        driver=told(machine.driver) or "", cuda=told(machine.cuda) or "", clique=discovery.clique_of(facts), gpus=gpus,
        plugin=plugin, nics=[_nic(nic, facts) for nic in machine.nics[:NICS_MAX]],
    )  # fmt: skip


def _nic(nic: Nic, gpus: Sequence[DeviceFacts]) -> NodeNic:
    near, nearest = discovery.near(nic, gpus)
    numa = told(nic.numa)
    return NodeNic(
        name=nic.name,
        kind=nic.kind,
        bus=nic.bus,
        numa=numa if numa is not None and numa >= 0 else None,
        state=told(nic.state) or "",
        speed_mbps=told(nic.speed_mbps) or 0,
        near=near,
        gpus=[gpu.uuid for gpu in nearest],
    )


def status_of(view: MachineView, now: float) -> GpuNodeStatus:
    """The health of each, and whether the agent can tell at all."""
    gpus = [_health(gpu, now) for gpu in sorted(view.gpus, key=lambda gpu: gpu.facts.index)]
    healthy = sum(gpu.health == "healthy" for gpu in gpus)
    if view.trouble is not None:
        said = Condition(READY, "False", "Untold", str(view.trouble)[:WHY_MAX])
    else:
        said = Condition(READY, "True", "Seen", "")
    return GpuNodeStatus(gpus=gpus, healthy=healthy, conditions=[said])


def _health(gpu: GpuView, now: float) -> NodeGpuHealth:
    found = verdicts.health(gpu, now)
    return NodeGpuHealth(uuid=gpu.facts.uuid, health=found.verdict, why=found.evidence[:WHY_MAX])


def alike(one: GpuNodeStatus, other: GpuNodeStatus) -> bool:
    """Whether both say the same to whoever decides: a degree more, or a minute, is not worth a write."""
    return _gist(one) == _gist(other)


def _gist(status: GpuNodeStatus) -> object:
    gpus = [(gpu.uuid, gpu.health, _NUMBER.sub("#", gpu.why)) for gpu in status.gpus]
    return gpus, [(each.type, each.status, each.reason, _NUMBER.sub("#", each.message)) for each in status.conditions]


class GpuNodeWriter:
    """Keeps one node's record true, in a thread of its own: a cluster that does not answer holds no look up."""

    def __init__(self, access: KubeAccess, clock: Clock, node: str, say: Callable[[str], None]) -> None:
        self.node = node
        self.plugin = False
        """Whether our device plugin hands the GPUs out here."""
        self.kubelet: KubeletConfig | None = None
        self.written = 0
        self._client = KubeClient(access, clock)
        self._clock = clock
        self._say = say
        self._wanted: tuple[GpuNodeSpec | None, GpuNodeStatus] | None = None
        self._spec: GpuNodeSpec | None = None
        self._status: GpuNodeStatus | None = None
        self._trouble = ""
        self._news = threading.Event()
        self._over = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), name="gpu node", daemon=True)

    def start(self) -> None:
        """Begin to write what is seen."""
        self._thread.start()

    def stop(self) -> None:
        """Write no more."""
        self._over = True
        self._news.set()
        self._thread.join(REST_S)

    def see(self, view: MachineView, now: float) -> None:
        """What a look has found."""
        kubelet = self.kubelet.topology() if self.kubelet is not None else NOTHING_TOLD
        self._wanted = spec_of(view, self.plugin, kubelet), status_of(view, now)
        self._news.set()

    async def _live(self) -> None:
        await self._client.open()
        try:
            while not self._over:
                await asyncio.to_thread(self._news.wait, REST_S)
                self._news.clear()
                if self._wanted is not None and not self._over:
                    await self._try(*self._wanted)
        finally:
            await self._client.close()

    async def _try(self, spec: GpuNodeSpec | None, status: GpuNodeStatus) -> None:
        try:
            told_ = await self._write(spec, status)
        except GpuYardError as error:
            told_ = str(error)
        if told_ != self._trouble:
            self._say(
                f"The GpuNode {self.node} cannot be written: {told_}"
                if told_
                else f"The GpuNode {self.node} is written"
            )
            self._trouble = told_
        if told_:
            await self._clock.sleep(REST_S)
            self._news.set()

    async def _write(self, spec: GpuNodeSpec | None, status: GpuNodeStatus) -> str:
        """What is other than it was; why not, if that could not be."""
        if self._status is None:
            await self._recall()
        if (spec is not None and spec != self._spec) or self._spec is None:
            wanted = spec or GpuNodeSpec()
            reply = await self._put_spec(wanted)
            if not reply.ok:
                return reply.why()
            self._spec, self.written = wanted, self.written + 1
        if self._status is None or not alike(status, self._status):
            reply = await self._put_status(status)
            if reply.status == 404:  # somebody deleted it
                self._spec = None
            if not reply.ok:
                return reply.why()
            self._status, self.written = status, self.written + 1
        return ""

    async def _recall(self) -> None:
        """What the agent before us wrote: the same is not written again."""
        reply = await self._client.get(f"{GPU_NODES.path}/{self.node}")
        if reply.ok:
            found = msgspec.json.decode(reply.body, type=GpuNodeObject)
            self._spec, self._status = found.spec, found.status if found.status.conditions else None

    async def _put_spec(self, spec: GpuNodeSpec) -> ApiReply:
        owner = await self._client.get(f"/api/v1/nodes/{self.node}")
        if not owner.ok:
            return owner
        uid = msgspec.json.decode(owner.body, type=AnyObject).metadata.uid
        node = {"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": uid}
        body = self._document(spec=spec)
        body["metadata"] = {"name": self.node, "ownerReferences": [node]}
        return await self._apply(f"{GPU_NODES.path}/{self.node}", body)

    async def _put_status(self, status: GpuNodeStatus) -> ApiReply:
        at = datetime.fromtimestamp(self._clock.now(), UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        timed = [msgspec.structs.replace(each, last_transition_time=at) for each in status.conditions]
        body = self._document(status=msgspec.structs.replace(status, conditions=timed))
        return await self._apply(f"{GPU_NODES.path}/{self.node}/status", body)

    def _document(self, **part: object) -> dict[str, object]:
        return {"apiVersion": "gpuyard.dev/v1", "kind": "GpuNode", "metadata": {"name": self.node}, **part}

    async def _apply(self, path: str, body: dict[str, object]) -> ApiReply:
        params = {"fieldManager": MANAGER, "force": "true"}
        return await self._client.send("PATCH", path, msgspec.json.encode(body), APPLY, params)
