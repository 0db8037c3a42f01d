"""A real node of a test's cluster: Ready by itself, it runs what is bound to it. See `machine_room`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.support.kube import components, node_components
from tests.support.kube.cluster import Cluster, until
from tests.support.kube.machine_room import MachineRoom

READY_S = 180.0


class RealNode:
    """One kubelet. Everything that is started here is ended by `stop`."""

    def __init__(self, cluster: Cluster, folder: Path, name: str = "n0") -> None:
        self.cluster, self.name = cluster, name
        self.room = MachineRoom(folder, node_components.RECIPE.folder(), node_components.IMAGE, name)

    def start(self) -> RealNode:
        """Up, and Ready by itself."""
        self.room.open()
        self.room.start_containerd()
        self.start_kubelet()
        until(self.is_ready, READY_S, "the node is Ready", self.room.log("kubelet"))
        return self

    def start_kubelet(self) -> None:
        """As the node's own account, which the API server knows by its token."""
        access = self.cluster.kubeconfig(self.cluster.node_tokens[self.name], self.name)
        shutil.copy(access, self.room.root / "kubeconfig")
        ask = {"anonymous": {"enabled": False}, "webhook": {"enabled": True}}
        trusted = {"x509": {"clientCAFile": str(self.cluster.folder / "kubelet-client.crt")}}
        config = {"authentication": ask | trusted, "authorization": {"mode": "Webhook"}}
        kubelet = Path(components.path("kubelet"))
        self.room.start_kubelet(kubelet, config, f"--kubeconfig={self.room.root / 'kubeconfig'}")

    def end_kubelet(self) -> None:
        """Without a word; containers go on."""
        self.room.end("kubelet")

    def stop(self) -> None:
        """Nothing of it is left."""
        self.room.stop()

    # --- what the API server says of it ----------------------------------------------------------

    def object(self) -> dict[str, Any]:
        found: dict[str, Any] = self.cluster.get(f"/api/v1/nodes/{self.name}")
        return found

    def is_ready(self) -> bool:
        nodes = {node["metadata"]["name"]: node for node in self.cluster.get("/api/v1/nodes")["items"]}
        if self.name not in nodes:
            return False
        conditions = nodes[self.name]["status"].get("conditions", ())
        ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        return ready and not nodes[self.name]["spec"].get("taints")

    def gpus(self) -> tuple[int, int]:
        """Capacity and allocatable."""
        status = self.object()["status"]
        return tuple(int(status[kind].get("nvidia.com/gpu", 0)) for kind in ("capacity", "allocatable"))  # type: ignore[return-value]

    def logs(self, pod: str) -> str:
        """What a pod wrote, through the API server."""
        return self.cluster.text(f"/api/v1/namespaces/default/pods/{pod}/log")


def real_pod(name: str, *words: str, gpus: int = 0, **spec: Any) -> dict[str, Any]:
    """A pod of the tests' image that does these words, one after the other."""
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    container = {"name": "main", "image": node_components.IMAGE, "args": list(words), "resources": limits}
    more = {"schedulerName": "gpuyard", "restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {**more, "containers": [container], **spec},
    }


def real_job(name: str, *words: str, tasks: int = 1, gpus: int = 1, job: Any = None, **spec: Any) -> dict[str, Any]:
    """A Job of such pods, which are a gang unless `job` says otherwise."""
    about = {"parallelism": tasks, "completions": tasks, "completionMode": "Indexed", **(job or {})}
    template = {"metadata": {"annotations": {}}, "spec": real_pod("", *words, gpus=gpus, **spec)["spec"]}
    made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
    return {**made, "spec": {**about, "template": template}}


def with_clock(job: dict[str, Any], clock: Path) -> dict[str, Any]:
    """Its pods look into that folder to know whether time passes (`work`)."""
    spec = job["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "clock", "hostPath": {"path": str(clock)}}]
    spec["containers"][0]["volumeMounts"] = [{"name": "clock", "mountPath": "/clock"}]
    return job
