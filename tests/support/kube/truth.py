"""What must never be so on a cluster, read from the API server itself and from nobody's account of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from gpuyard.kube.quantities import whole
from tests.support.kube.cluster import Cluster

GPU = "nvidia.com/gpu"
INDEX = "batch.kubernetes.io/job-completion-index"
Pod = dict[str, Any]


def wrongs(cluster: Cluster) -> list[str]:
    """Nodes that have given more GPUs than they have, GPUs that two hold, members of a Job that are there twice."""
    nodes = {node["metadata"]["name"]: node for node in cluster.get("/api/v1/nodes")["items"]}
    held = [pod for pod in cluster.get("/api/v1/pods")["items"] if is_bound(pod) and not is_over(pod)]
    given: Counter[str] = Counter()
    for pod in held:
        given[pod["spec"]["nodeName"]] += gpus_of(pod)
    found = [
        f"{name} has given {count} GPUs and has {has}"
        for name, count in sorted(given.items())
        if name in nodes and count > (has := whole(nodes[name]["status"]["capacity"].get(GPU)))
    ]
    return found + _twice("GPU", _devices(held)) + _twice("member", _members(held))


def half_bound(cluster: Cluster) -> list[str]:
    """Gangs of indexed Jobs of which some are bound and some are not, of those that have not ended."""
    jobs = {job["metadata"]["uid"]: job for job in cluster.get("/apis/batch/v1/jobs")["items"] if is_gang(job)}
    there: Counter[str] = Counter()
    for pod in cluster.get("/api/v1/pods")["items"]:
        owner = next((each["uid"] for each in pod["metadata"].get("ownerReferences", ())), "")
        there[owner] += is_bound(pod) and not is_leaving(pod) and not is_over(pod)
    return [
        f"{job['metadata']['name']}: {there[uid]} of {left} are bound"
        for uid, job in jobs.items()
        if 0 < there[uid] < (left := job["spec"]["completions"] - job["status"].get("succeeded", 0))
    ]


def is_gang(job: dict[str, Any]) -> bool:
    """An indexed Job that is not over."""
    over = {each["type"] for each in job["status"].get("conditions", ()) if each["status"] == "True"}
    return job["spec"].get("completionMode") == "Indexed" and not over & {"Complete", "Failed", "SuccessCriteriaMet"}


def _devices(held: Iterable[Pod]) -> list[str]:
    """Those that Bindings name."""
    notes = (pod["metadata"].get("annotations", {}).get("gpuyard.dev/gpus", "") for pod in held)
    return [device for note in notes for device in note.split(",") if device]


def _members(held: Iterable[Pod]) -> list[str]:
    return [
        f"{owner['uid']} {pod['metadata']['labels'][INDEX]}"
        for pod in held
        if not is_leaving(pod) and INDEX in pod["metadata"].get("labels", {})
        for owner in pod["metadata"].get("ownerReferences", ())
    ]


def _twice(what: str, names: Iterable[str]) -> list[str]:
    return [f"{what} {name} is there {count} times" for name, count in Counter(names).items() if count > 1]


def gpus_of(pod: Pod) -> int:
    return sum(whole(each["resources"].get("requests", {}).get(GPU)) for each in pod["spec"]["containers"])


def is_bound(pod: Pod) -> bool:
    return bool(pod["spec"].get("nodeName"))


def is_over(pod: Pod) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")


def is_leaving(pod: Pod) -> bool:
    return "deletionTimestamp" in pod["metadata"]
