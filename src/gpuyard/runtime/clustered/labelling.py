"""What agents found, copied to the Nodes: labels as the vendor's discovery has them, a condition, a taint if asked.

Run by `yard serve --role nodes`, under an account of its own: this alone changes nodes. A label that anybody else has
set is theirs, whatever it says; ours go again when what they tell is no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gpuyard.kube.applying import APPLY
from gpuyard.kube.client import STRATEGIC, ApiUnreachable, KubeClient
from gpuyard.kube.credentials import KubeAccess
from gpuyard.kube.definitions.gpu_nodes import GPU_NODES, GpuNodeObject
from gpuyard.kube.reflector import ObjectKind, Reflector
from gpuyard.model.errors import Refused
from gpuyard.model.outside import text
from gpuyard.model.outside.ports import Clock, Dice
from gpuyard.runtime.clustered import node_marks
from gpuyard.runtime.clustered.node_marks import CONDITION, JSON_PATCH, NODES_MANAGER, Taint

AGAIN_S = 300.0
"""So often all are looked at anew: a Node may have been made anew, or somebody let go of a label."""
RETRY_S = 5.0
LOOK_S = 1.0
"""So often it is looked whether something is wrong."""
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LabelWish:
    """What is written."""

    prefix: str = "nvidia.com/"
    taint: Taint | None = None


def labels_of(found: GpuNodeObject, prefix: str = "nvidia.com/") -> dict[str, str]:
    """By the names of the vendor's GPU feature discovery; nothing of a node whose GPUs are of several models."""
    gpus, spec = found.spec.gpus, found.spec
    if not gpus or len({gpu.model for gpu in gpus}) > 1:
        return {}
    first = gpus[0]
    major, _, minor = first.compute_capability.partition(".")
    told = {
        "gpu.present": "true",
        "gpu.product": f"NVIDIA-{first.model}" if first.model else "",
        "gpu.count": str(len(gpus)),
        "gpu.memory": str(min(gpu.memory for gpu in gpus) >> 20) if all(gpu.memory for gpu in gpus) else "",
        "gpu.family": first.architecture,
        "gpu.compute.major": major,
        "gpu.compute.minor": minor,
        "gpu.clique": spec.clique,
        "cuda.driver-version.full": spec.driver,
        "cuda.runtime-version.full": spec.cuda,
        "mig.capable": "true" if any(gpu.mig for gpu in gpus) else "",
    }
    return {prefix + key: _fit(value) for key, value in told.items() if _fit(value)}


def _fit(value: str) -> str:
    """As a label's value may be; "" where that cannot be."""
    plain = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-_.") else "-" for letter in value)
    return plain[:63].strip("-_.")


def condition_of(found: GpuNodeObject) -> dict[str, str]:
    """Whether all its GPUs are well, in words for people."""
    ready = next((each for each in found.status.conditions if each.type == "Ready"), None)
    if ready is None or ready.status != "True":
        why = ready.message if ready is not None else "its agent has told nothing yet"
        return {"type": CONDITION, "status": "Unknown", "reason": "Untold", "message": text.line(why)}
    unwell = [gpu for gpu in found.status.gpus if gpu.health != "healthy"]
    if not unwell:
        return {"type": CONDITION, "status": "True", "reason": "AllHealthy", "message": ""}
    told = "; ".join(f"{gpu.uuid} is {gpu.health}: {gpu.why}" for gpu in unwell)
    status = "Unknown" if all(gpu.health == "unknown" for gpu in unwell) else "False"
    return {"type": CONDITION, "status": status, "reason": "GpusUnwell", "message": text.line(told)}


def owned_by_others(node: Document) -> set[str]:
    """Labels that anybody but us has set."""
    found: set[str] = set()
    for manager in node["metadata"].get("managedFields", ()):
        if manager.get("manager") == NODES_MANAGER and manager.get("operation") == "Apply":
            continue
        fields = manager.get("fieldsV1", {}).get("f:metadata", {}).get("f:labels", {})
        found |= {key.removeprefix("f:") for key in fields if key != "."}
    return found


class NodeLabeller:
    """Follows GpuNodes, and writes what is other than it is. A `Sink` of their reflector."""

    def __init__(self, client: KubeClient, wish: LabelWish, clock: Clock, say: Callable[[str], None]) -> None:
        self.objects: dict[str, GpuNodeObject] = {}
        self._client = client
        self._wish = wish
        self._clock = clock
        self._say = say
        self._dirty: set[str] = set()
        self._news = asyncio.Event()

    def put(self, seen: GpuNodeObject) -> None:
        """It is there, or it is so now."""
        self.objects[seen.metadata.name] = seen
        self._look_at(seen.metadata.name)

    def drop(self, key: str) -> None:
        """Its labels go with it."""
        self.objects.pop(key, None)
        self._look_at(key)

    def keys(self) -> Iterable[str]:
        """All there are."""
        return self.objects

    def _look_at(self, name: str) -> None:
        self._dirty.add(name)
        self._news.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                async with asyncio.timeout(AGAIN_S):
                    await self._news.wait()
            except TimeoutError:
                self._dirty.update(self.objects)
            self._news.clear()
            while self._dirty:
                await self._try(self._dirty.pop())

    async def _try(self, name: str) -> None:
        try:
            told = await self.copy(name)
        except ApiUnreachable as error:
            told = str(error)
        if told:
            self._say(f"Node {name} was not written: {told}")
            await self._clock.sleep(RETRY_S)
            self._look_at(name)

    async def copy(self, name: str) -> str:
        """What is known of one node, on it; why not, if that could not be."""
        reply = await self._client.get(f"/api/v1/nodes/{name}")
        if reply.status == 404:
            return ""
        if not reply.ok:
            return reply.why()
        node, found = json.loads(reply.body), self.objects.get(name)
        return (
            await self._write_taint(node, found)  # first: it is for the node as it was read
            or await self._write_labels(node, found)
            or (await self._write_condition(node, condition_of(found)) if found is not None else "")
        )

    async def _write_labels(self, node: Document, found: GpuNodeObject | None) -> str:
        name, theirs = node["metadata"]["name"], owned_by_others(node)
        wanted = labels_of(found, self._wish.prefix) if found is not None else {}
        wanted = {key: value for key, value in wanted.items() if key not in theirs}
        ours = _ours(node)
        there = node["metadata"].get("labels", {})
        if ours == set(wanted) and all(there.get(key) == value for key, value in wanted.items()):
            return ""
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": wanted}}
        params = {"fieldManager": NODES_MANAGER}
        reply = await self._client.send("PATCH", f"/api/v1/nodes/{name}", json.dumps(body).encode(), APPLY, params)
        return "" if reply.ok else reply.why()

    async def _write_taint(self, node: Document, found: GpuNodeObject | None) -> str:
        wanted = self._wish.taint if found is not None and found.spec.gpus else None
        name, body = node["metadata"]["name"], node_marks.taint_patch(node, wanted)
        if not body:
            return ""
        reply = await self._client.patch(f"/api/v1/nodes/{name}", json.dumps(body).encode(), JSON_PATCH)
        return "" if reply.ok else reply.why()

    async def _write_condition(self, node: Document, wanted: dict[str, str]) -> str:
        there: Document = next((each for each in node["status"].get("conditions", ()) if each["type"] == CONDITION), {})
        if all(there.get(key, "") == value for key, value in wanted.items()):
            return ""
        at = datetime.fromtimestamp(self._clock.now(), UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        since = there.get("lastTransitionTime", at) if there.get("status") == wanted["status"] else at
        body = {"status": {"conditions": [{**wanted, "lastTransitionTime": since, "lastHeartbeatTime": at}]}}
        path = f"/api/v1/nodes/{node['metadata']['name']}/status"
        reply = await self._client.patch(path, json.dumps(body).encode(), STRATEGIC)
        return "" if reply.ok else reply.why()


def _ours(node: Document) -> set[str]:
    for manager in node["metadata"].get("managedFields", ()):
        if manager.get("manager") == NODES_MANAGER and manager.get("operation") == "Apply":
            fields = manager.get("fieldsV1", {}).get("f:metadata", {}).get("f:labels", {})
            return {key.removeprefix("f:") for key in fields if key != "."}
    return set()


async def label_nodes(
    access: KubeAccess, wish: LabelWish, clock: Clock, dice: Dice, say: Callable[[str], None], over: asyncio.Event
) -> None:
    """Until it is over."""
    client = await KubeClient(access, clock).open()
    labeller = NodeLabeller(client, wish, clock, say)
    reflector = Reflector(client, ObjectKind(GPU_NODES.path, GpuNodeObject), labeller, clock, dice)
    tasks = [asyncio.create_task(reflector.run()), asyncio.create_task(labeller.run())]
    try:
        await _until(over, client, reflector, say)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await client.close()


async def _until(
    over: asyncio.Event, client: KubeClient, reflector: Reflector[GpuNodeObject], say: Callable[[str], None]
) -> None:
    """It is over. Meanwhile it is told what keeps nodes from being followed; `Refused` where waiting mends nothing."""
    said = ""
    while not over.is_set():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await over.wait()
        if client.stranger and not reflector.synced.is_set():
            raise Refused(f"the cluster could not be read: {client.stranger}")
        if reflector.trouble != said:
            said = reflector.trouble
            say(f"Trouble: {said}" if said else "All is well again.")
