"""The manifests of the guide to migrating, as they stand in docs/examples/migrate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3] / "docs"
FOLDER = ROOT / "examples" / "migrate"
GUIDE = ROOT / "guides" / "migrate.md"
RESEARCH = "queues: [{name: default}, {name: research, quota: 64}]"

Document = dict[str, Any]


def manifests(name: str) -> list[Document]:
    """The objects of one file."""
    return list(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text()))


def made_by_volcano(job: Document) -> list[Document]:
    """The PodGroup and the pods that Volcano's controller makes of a Job of its own."""
    metadata, spec = job["metadata"], job["spec"]
    owner = {"apiVersion": job["apiVersion"], "kind": "Job", "name": metadata["name"], "uid": metadata["uid"]}
    group = f"{metadata['name']}-{metadata['uid']}"
    made: list[Document] = [
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": group, "ownerReferences": [{**owner, "controller": True}]},
            "spec": {
                "minMember": spec["minAvailable"],
                "minTaskMember": {task["name"]: task["replicas"] for task in spec["tasks"]},
                "queue": spec["queue"],
            },
        }
    ]
    for task in spec["tasks"]:
        for index in range(task["replicas"]):
            marks = {
                "scheduling.k8s.io/group-name": group, "volcano.sh/task-spec": task["name"],
                "volcano.sh/task-index": str(index), "volcano.sh/job-name": metadata["name"],
            }  # fmt: skip
            template = task["template"]["spec"]
            theirs = {"schedulerName": spec["schedulerName"], **template}
            name = f"{metadata['name']}-{task['name']}-{index}"
            named = {"name": name, "annotations": marks, "ownerReferences": [{**owner, "controller": True}]}
            made.append({"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": theirs})
    return made
