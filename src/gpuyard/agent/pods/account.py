"""What the pods of this node were granted, held against what they hold: steers the kubelet, and tells where it went.

Used by `yard agent --device-plugin`. A difference is told, as an event of the pod and as a metric; nothing is taken
from anybody because of it.
"""

from __future__ import annotations

import pathlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from gpuyard.agent.exporting.families import Family, GpuHolder
from gpuyard.agent.pods import grants, holding
from gpuyard.agent.pods.grants import Grant
from gpuyard.agent.pods.holding import NotToldByKubelet, PodHolding
from gpuyard.kube.gpu_grants import OTHER_GPUS, event_name, other_gpus
from gpuyard.model.outside import text
from gpuyard.model.outside.ports import Clock

READ_S = 0.1
"""A kubelet takes pods one after the other, and waits for us."""
ASK_S = 0.5
CONTROLLER = "gpuyard.dev/agent"


class PodGrants(Protocol):
    """Who is bound here: `bound.BoundPods`."""

    def grants(self) -> list[Grant]: ...
    def read(self, seconds: float) -> list[Grant]: ...
    def tell(self, method: str, path: str, body: Any) -> None: ...
    def ask(self, method: str, path: str, body: Any, kind: str, seconds: float) -> int: ...


@dataclass(slots=True)
class PodAccount:
    """One resource's. Without a cluster (`bound` is None) nothing is granted, and what is held is told all the same."""

    bound: PodGrants | None
    clock: Clock
    say: Callable[[str], None]
    resource: str
    node: str
    socket: pathlib.Path = holding.SOCKET
    held: Mapping[str, PodHolding] = field(default_factory=dict)
    differ: int = 0
    answered: Counter[str] = field(default_factory=Counter)
    _told: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)
    _silent: str = ""

    # --- before: which GPUs a kubelet should give ------------------------------------------------

    def chosen(self, available: Collection[str], size: int) -> Sequence[str]:
        """Those that the pod it asks for was bound to; none if that cannot be told in time."""
        if self.bound is None:
            return ()
        held = self._ask(ASK_S)
        how = "known"
        found = grants.chosen(self.bound.grants(), held, available, size)
        if not found:
            how = "read"
            found = grants.chosen(self.bound.read(READ_S), held, available, size)
        self.answered[how if found else "nearest"] += 1
        return found

    # --- after: which it gave --------------------------------------------------------------------

    def look(self) -> None:
        """Once more, what everybody holds."""
        held = self._ask(holding.CALL_S)
        self.held = held or {}
        bound = self.bound.grants() if self.bound is not None else []
        found = grants.differences(bound, self.held.values())
        self.differ = len(found)
        for grant, gpus in found:
            if (grant.uid, gpus) not in self._told:
                self._tell(grant, gpus)
        self._told = {(grant.uid, gpus) for grant, gpus in found}

    def holders(self) -> dict[str, Sequence[GpuHolder]]:
        """By UUID, who has it."""
        found: dict[str, list[GpuHolder]] = {}
        for pod in self.held.values():
            namespace, _, name = pod.key.partition("/")
            for container, gpus in pod.containers.items():
                for gpu in gpus:
                    found.setdefault(gpu, []).append(GpuHolder("", namespace, name, container))
        return dict(found)

    def families(self) -> Iterator[Family]:
        """For Prometheus."""
        words = "Pods that hold other GPUs than they were bound to."
        yield Family("gpuyard_agent_pods_with_other_gpus", words, "gauge", (({}, float(self.differ)),))
        words = "Answers to the kubelet's question which GPUs to prefer, by how they were found."
        series = tuple(({"how": how}, float(self.answered[how])) for how in ("known", "read", "nearest"))
        yield Family("gpuyard_agent_preferred_total", words, "counter", series)

    # --- how -------------------------------------------------------------------------------------

    def _ask(self, seconds: float) -> dict[str, PodHolding] | None:
        try:
            told = holding.holdings(self.socket, self.resource, seconds)
        except NotToldByKubelet as error:
            if not self._silent:
                self.say(str(error))
            self._silent = str(error)
            return None
        self._silent = ""
        return {each.key: each for each in told}

    def _tell(self, grant: Grant, gpus: tuple[str, ...]) -> None:
        note = other_gpus(grant.gpus, gpus)
        self.say(f"pod {grant.key}: {note}")
        if self.bound is not None:
            namespace = grant.key.partition("/")[0]
            path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
            self.bound.tell("POST", path, _event(self, grant, note))


def _event(account: PodAccount, grant: Grant, note: str) -> dict[str, Any]:
    namespace, _, name = grant.key.partition("/")
    now = account.clock.now()
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": event_name(name, grant.uid, note), "namespace": namespace},
        "eventTime": datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": CONTROLLER,
        "reportingInstance": account.node,
        "action": "Allocating",
        "reason": OTHER_GPUS,
        "type": "Warning",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": grant.uid},
        "note": text.line(note),
    }
