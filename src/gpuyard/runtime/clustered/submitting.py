"""A job of ours as objects of a cluster: an Indexed Job, and a headless Service by which its tasks find each other.

Called by the command line for `--kube`. Pure: a submission in, manifests out, or one sentence that says what a cluster
cannot have. What the scheduler reads are the annotations of `asking.marks`; everything else is Kubernetes' own.
"""

from __future__ import annotations

import re
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


def manifests_of(asked: Submission, namespace: str, scheduler: str = "gpuyard") -> list[Manifest]:
    """What is made for it, in order; the first is the Job."""
    job, group = asked.job, _group(asked)
    if not NAME.fullmatch(job.name):
        raise Refused(f"A Job cannot be called '{job.name[:60]}': small letters, digits and -, at most 51 of them.")
    metadata = {"name": job.name, "namespace": namespace, "labels": dict(MANAGED)}
    spec: Manifest = {
        "completionMode": "Indexed",
        "parallelism": group.tasks,
        "completions": group.tasks,
        "backoffLimit": job.run.retries if job.run is not None else 0,
        **({"suspend": True} if job.on_hold else {}),
        **({"activeDeadlineSeconds": max(1, round(job.time_limit))} if job.time_limit else {}),
        "template": {
            "metadata": {"annotations": _marks(job, group), "labels": dict(MANAGED)},
            "spec": _pod(job, group, scheduler),
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
        (asked.members, "an array: submit one Job for each member"),
        (asked.after, "waiting for another job (after)"),
        (len(groups) != 1, "several groups of tasks: write a JobSet"),
        (job.run is None or not job.run.command, "a job without a command"),
        (
            job.run is not None and not job.run.image,
            "a job without an image (--image, run.image): nodes have no files of yours",
        ),
        (any(each.request.shared for each in groups), "part of a GPU: nobody there holds tasks to their part"),
        (isinstance(job.priority, int), "a priority by number: name a PriorityClass"),
        (len(groups) == 1 and groups[0].min != groups[0].tasks, "fewer tasks than it asks for (min): write a JobSet"),
        (job.run is not None and job.run.tty, "a terminal: `kubectl run -it`, then schedulerName gpuyard"),
    ):
        if wrong:
            raise Refused(f"On a cluster `yard` cannot submit {told}.")
    return groups[0]


def _pod(job: Job, group: TaskGroup, scheduler: str) -> Manifest:
    assert job.run is not None
    container: Manifest = {
        "name": "main",
        "image": job.run.image,
        "command": list(job.run.command),
        "env": [*_environment(job, group), *({"name": name, "value": value} for name, value in job.run.env)],
        "resources": _resources(group.request),
        **({"workingDir": job.run.workdir} if job.run.workdir else {}),
    }
    return {
        "schedulerName": scheduler,
        "restartPolicy": "Never",
        **({"priorityClassName": job.priority} if isinstance(job.priority, str) else {}),
        **({"subdomain": job.name} if group.tasks > 1 else {}),
        **({"nodeSelector": dict(group.node_selector)} if group.node_selector else {}),
        "containers": [container],
    }


def _environment(job: Job, group: TaskGroup) -> list[Manifest]:
    """As on a machine of one's own: which task of which job it is, and where the first of them listens."""

    def field(name: str, path: str) -> Manifest:
        return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}

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


def _marks(job: Job, group: TaskGroup) -> dict[str, str]:
    """What is to be said to the scheduler beyond what a pod can say."""
    told = {
        marks.QUEUE: "" if job.queue == "default" else job.queue,
        marks.CLASS: "" if job.job_class is JobClass.TRAINING else job.job_class.value,
        marks.MODELS: ",".join(job.models),
        marks.PREEMPTIBLE: "" if job.preemptible is None else str(job.preemptible).lower(),
        marks.REQUIRED_LEVEL: job.gang.topology.required or group.topology.required,
        marks.PREFERRED_LEVEL: job.gang.topology.preferred or group.topology.preferred,
    }
    return {key: value for key, value in told.items() if value}
