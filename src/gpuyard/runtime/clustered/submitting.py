"""A job of ours as objects of a cluster: an Indexed Job, and a headless Service by which its tasks find each other.

An array is one Indexed Job, too, whose pods are no gang: each is a job by itself.

Called by the command line for `--kube`. Pure: a submission in, manifests out, or one sentence that says what a cluster
cannot have. What the scheduler reads are the annotations of `asking.marks`; everything else is Kubernetes' own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpuyard.files.reading.submissions import Submission
from gpuyard.model.errors import Refused
from gpuyard.model.job import Job, JobClass, TaskGroup
from gpuyard.model.resources import Request
from gpuyard.worlds.kubernetes.asking import marks

Manifest = dict[str, Any]
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,49}[a-z0-9])?")
"""As a Job may be called whose pods have host names: with its index it must fit into a label."""
PORT = 29500
INDEX = "metadata.labels['batch.kubernetes.io/job-completion-index']"
MANAGED = {"app.kubernetes.io/managed-by": "gpuyard"}
FORGIVING = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}
"""A pod that was taken back is no failure: without this, nobody of a Job that is no gang could be."""
VENDORS_TAINT = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
"""Nodes with GPUs bear it in many clusters. Admission adds both too, but not before Kubernetes 1.36."""

Classes = Mapping[str, int]
"""The PriorityClasses of a cluster, and their values."""


def manifests_of(
    asked: Submission, namespace: str, scheduler: str = "gpuyard", classes: Classes | None = None
) -> list[Manifest]:
    """What is made for it, in order; the first is the Job. `classes` is needed where its priority is a number."""
    job, group = asked.job, _group(asked)
    if not NAME.fullmatch(job.name):
        raise Refused(f"A Job cannot be called '{job.name[:60]}': small letters, digits and -, at most 51 of them.")
    metadata = {"name": job.name, "namespace": namespace, "labels": dict(MANAGED)}
    pod = _pod(job, group, scheduler, _environment(asked, group))
    if job.priority is not None:
        pod["priorityClassName"] = _priority_class(job.priority, classes or {})
    if asked.members and job.time_limit:  # of each; a Job's own deadline would be for all of them together
        pod["activeDeadlineSeconds"] = max(1, round(job.time_limit))
    spec: Manifest = {
        "completionMode": "Indexed",
        **_size(asked, group),
        **({"suspend": True} if job.on_hold else {}),
        "template": {
            "metadata": {"annotations": _marks(asked, group), "labels": dict(MANAGED)},
            "spec": pod,
        },
    }
    made: list[Manifest] = [{"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}]
    if group.tasks > 1:
        selector = {"batch.kubernetes.io/job-name": job.name}
        service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector}
        made.append({"apiVersion": "v1", "kind": "Service", "metadata": dict(metadata), "spec": service})
    return made


def _group(asked: Submission) -> TaskGroup:
    """The one group that it has; `Refused` for what no Job could be."""
    job = asked.job
    groups = list(job.task_groups())
    for wrong, told in (
        (
            asked.members and asked.members != tuple(range(len(asked.members))),
            "an array whose numbers are not 0 to N without a gap",
        ),
        (
            asked.members and (len(groups) > 1 or groups[0].tasks > 1),
            "an array of gangs: submit one job for each number",
        ),
        (
            asked.after,
            "waiting for another job (after): submit it when that has ended, or let a workflow engine or a JobSet's "
            "dependsOn wait",
        ),
        (len(groups) != 1, "several groups of tasks: write a JobSet"),
        (job.run is None or not job.run.command, "a job without a command"),
        (
            job.run is not None and not job.run.image,
            "a job without an image (--image, run.image): nodes have no files of yours",
        ),
        (any(each.request.shared for each in groups), "part of a GPU: nobody there holds tasks to their part"),
        (len(groups) == 1 and groups[0].min != groups[0].tasks, "fewer tasks than it asks for (min): write a JobSet"),
        (job.run is not None and job.run.tty, "a terminal: `kubectl run -it`, then schedulerName gpuyard"),
    ):
        if wrong:
            raise Refused(f"On a cluster `yard` cannot submit {told}.")
    return groups[0]


def _size(asked: Submission, group: TaskGroup) -> Manifest:
    """How many there are, how often they are tried, and how long. Members of an array stand and fall by themselves."""
    job, retries = asked.job, asked.job.run.retries if asked.job.run is not None else 0
    seconds = max(1, round(job.time_limit)) if job.time_limit else 0
    if not asked.members:
        deadline = {"activeDeadlineSeconds": seconds} if seconds else {}
        size = {"parallelism": group.tasks, "completions": group.tasks, "backoffLimit": retries}
        return {**size, "podFailurePolicy": FORGIVING, **deadline}
    count = len(asked.members)
    at_once = min(asked.at_once or count, count)
    return {
        "parallelism": at_once,
        "completions": count,
        "backoffLimitPerIndex": retries,
        "podFailurePolicy": FORGIVING,
    }


def _priority_class(wish: int | str, classes: Classes) -> str:
    """By its name, or the one with that value."""
    if isinstance(wish, str):
        return wish
    found = sorted(name for name, value in classes.items() if value == wish)
    if found:
        return found[0]
    there = ", ".join(f"{name} ({classes[name]})" for name in sorted(classes, key=lambda name: (classes[name], name)))
    raise Refused(
        f"On a cluster a priority is a PriorityClass, and none has the value {wish}; there is {there or 'none'}."
    )


def _pod(job: Job, group: TaskGroup, scheduler: str, environment: list[Manifest]) -> Manifest:
    assert job.run is not None
    container: Manifest = {
        "name": "main",
        "image": job.run.image,
        "command": list(job.run.command),
        "env": [*environment, *({"name": name, "value": value} for name, value in job.run.env)],
        "resources": _resources(group.request),
        **({"workingDir": job.run.workdir} if job.run.workdir else {}),
    }
    return {
        "schedulerName": scheduler,
        "restartPolicy": "Never",
        **({"subdomain": job.name} if group.tasks > 1 else {}),
        **({"nodeSelector": dict(group.node_selector)} if group.node_selector else {}),
        **({"tolerations": [VENDORS_TAINT]} if group.request.gpus else {}),
        "containers": [container],
    }


def _environment(asked: Submission, group: TaskGroup) -> list[Manifest]:
    """As on a machine of one's own: which task of which job it is, and where the first of them listens."""

    def field(name: str, path: str) -> Manifest:
        return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}

    job = asked.job
    if asked.members:
        return [
            {"name": "GPUYARD_ARRAY", "value": job.name},
            field("GPUYARD_ARRAY_INDEX", INDEX),
            {"name": "GPUYARD_JOB", "value": f"{job.name}-$(GPUYARD_ARRAY_INDEX)"},
            {"name": "GPUYARD_QUEUE", "value": job.queue},
            {"name": "GPUYARD_TASK", "value": "0"},
            field("GPUYARD_NODE", "spec.nodeName"),
        ]
    told = [
        {"name": "GPUYARD_JOB", "value": job.name},
        {"name": "GPUYARD_QUEUE", "value": job.queue},
        field("GPUYARD_TASK", INDEX),
        field("GPUYARD_NODE", "spec.nodeName"),
    ]
    if group.tasks > 1:
        first = f"{job.name}-0.{job.name}"
        plain = {
            "MASTER_ADDR": first, "MASTER_PORT": str(PORT), "WORLD_SIZE": str(group.tasks), "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1", "PET_NNODES": str(group.tasks), "PET_MASTER_ADDR": first,
            "PET_MASTER_PORT": str(PORT),
        }  # fmt: skip
        told += [field("RANK", INDEX), field("PET_NODE_RANK", INDEX)]
        told += [{"name": name, "value": value} for name, value in plain.items()]
    return told


def _resources(request: Request) -> Manifest:
    limits: dict[str, str] = {}
    for profile, count in request.mig:
        limits[f"{marks.MIG_PREFIX}{profile.replace('+', '.')}"] = str(count)
    if request.gpus:
        limits[marks.WHOLE_GPUS[0]] = str(request.gpus)
    requests = {
        **limits,
        **({"cpu": f"{request.cpu}m"} if request.cpu else {}),
        **({"memory": str(request.memory)} if request.memory else {}),
    }
    return {"requests": requests, "limits": limits}


def _marks(asked: Submission, group: TaskGroup) -> dict[str, str]:
    """What is to be said to the scheduler beyond what a pod can say."""
    job = asked.job
    told = {
        marks.ARRAY: "true" if asked.members else "",
        marks.QUEUE: "" if job.queue == "default" else job.queue,
        marks.CLASS: "" if job.job_class is JobClass.TRAINING else job.job_class.value,
        marks.MODELS: ",".join(job.models),
        marks.PREEMPTIBLE: "" if job.preemptible is None else str(job.preemptible).lower(),
        marks.REQUIRED_LEVEL: job.gang.topology.required or group.topology.required,
        marks.PREFERRED_LEVEL: job.gang.topology.preferred or group.topology.preferred,
    }
    return {key: value for key, value in told.items() if value}
