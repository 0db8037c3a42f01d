"""Gangs by whoever makes their pods: JobSet, LeaderWorkerSet, Ray, Kubeflow, Job; and pods that are none.

Each row has how a pod is known as a member and what its owner says of all members, also of those that do not exist yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuyard.kube.objects import Metadata, PodObject, moment
from gpuyard.kube.owners import (
    ExitCodes,
    JobObject,
    JobSetObject,
    JobSpec,
    KubeflowObject,
    LeaderWorkerSetObject,
    RayClusterObject,
    RayWorkers,
    ReplicatedJob,
)  # fmt: skip
from gpuyard.worlds.kubernetes.asking.marks import ARRAY, FULL_SIZE, GANG_MIN, RESIZABLE, TASK, ReadingSettings
from gpuyard.worlds.kubernetes.gathering.layouts import GangRole, Layout, Owners, Parked, Rule, Seat, Way, number

JOB, JOBSET = "Job.batch", "JobSet.jobset.x-k8s.io"
LWS, RAY = "LeaderWorkerSet.leaderworkerset.x-k8s.io", "RayCluster.ray.io"
KUBEFLOW = tuple(
    f"{name}.kubeflow.org" for name in ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob")
)

_JOBSET, _LWS, _RAY, _TRAINING = (
    "jobset.sigs.k8s.io/", "leaderworkerset.sigs.k8s.io/", "ray.io/", "training.kubeflow.org/",
)  # fmt: skip
_KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
_OWN_CONTROLLERS = ("kubernetes.io/job-controller", "jobset.sigs.k8s.io/jobset-controller")
_MAKERS = ("ReplicaSet", "StatefulSet", "ReplicationController", "RayCluster", *(n.split(".")[0] for n in KUBEFLOW))
"""Kinds that make a pod anew that was deleted, and do not mind."""
_STOPPED = (137, 143)
"""What a container ends with that was killed, or stopped when asked."""
_INDEX = "batch.kubernetes.io/job-completion-index"
_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
INDEXES_MAX = 100_000
"""No Indexed Job has more."""
HEAD, LEADER, WORKER = "head", "leader", "worker"


def ordinal(pod: PodObject) -> int | None:
    """Which of its siblings a pod is: by completion, worker, replica or pod index, else as its Binding kept it."""
    metadata = pod.metadata
    for key in (_INDEX, _LWS + "worker-index", _TRAINING + "replica-index", "apps.kubernetes.io/pod-index", TASK):
        told = number(metadata.label(key) or metadata.annotation(key))
        if told is not None:
            return told
    return None


# --- JobSet --------------------------------------------------------------------------------------


def _jobset_seat(pod: PodObject, owners: Owners, rule: Rule) -> Seat | Parked | None:
    name, role = pod.metadata.label(_JOBSET + "jobset-name"), pod.metadata.label(_JOBSET + "replicatedjob-name")
    if not name:
        return None
    found = owners.find(JOBSET, f"{pod.metadata.namespace}/{name}", JobSetObject)
    if not isinstance(found, JobSetObject):
        return found
    gang = f"{pod.metadata.namespace}/jobset/{name}"
    made = next((job for job in found.spec.replicated_jobs or () if job.name == role), None)
    place = number(pod.metadata.label(_JOBSET + "job-index")) or 0
    index = number(pod.metadata.annotation(_INDEX) or pod.metadata.label(_INDEX))
    told = None if made is None or index is None else place * _pods_of(made.template.spec) + index
    return Seat(f"{gang}/{role}" if _in_turn(found) else gang, rule, role, told)


def _jobset_layout(name: str, pods: Sequence[PodObject], owners: Owners, settings: ReadingSettings) -> Layout:
    key = f"{pods[0].metadata.namespace}/{pods[0].metadata.label(_JOBSET + 'jobset-name')}"
    found = owners.find(JOBSET, key, JobSetObject)
    if not isinstance(found, JobSetObject):
        return Layout(name)
    mine = pods[0].metadata.label(_JOBSET + "replicatedjob-name") if _in_turn(found) else ""
    roles = (_replicated(job) for job in found.spec.replicated_jobs or () if mine in ("", job.name))
    way, hindrance = _way_of(found.metadata, found.spec.managed_by)
    return Layout(
        name,
        owner=found.metadata,
        roles=tuple(role for role in roles if role.tasks),
        way=way,
        hindrance=hindrance or ("suspending it would stop its other jobs too" if mine else ""),
        owner_kind=JOBSET,
        suspended=bool(found.spec.suspend),
        promised=bool(found.metadata.annotation(_EXCLUSIVE) or pods[0].metadata.annotation(_EXCLUSIVE)),
        deadline=_deadline(job.template.spec for job in found.spec.replicated_jobs or ()),
    )


def _in_turn(jobset: JobSetObject) -> bool:
    """Whether its jobs wait for one another: as one gang none would ever start."""
    policy = jobset.spec.startup_policy
    waits = any(job.depends_on for job in jobset.spec.replicated_jobs or ())
    return waits or (policy is not None and policy.startup_policy_order == "InOrder")


def _replicated(job: ReplicatedJob) -> GangRole:
    replicas = 1 if job.replicas is None else max(0, job.replicas)
    return GangRole(job.name, replicas * _pods_of(job.template.spec), template=job.template.spec.template)


def _pods_of(spec: JobSpec) -> int:
    """How many of its pods there are at once."""
    parallel = 1 if spec.parallelism is None else spec.parallelism
    return min(parallel, parallel if spec.completions is None else spec.completions)


def _deadline(specs: Iterator[JobSpec]) -> int | None:
    return min((spec.active_deadline_seconds for spec in specs if spec.active_deadline_seconds), default=None)


# --- LeaderWorkerSet -----------------------------------------------------------------------------


def _lws_seat(pod: PodObject, owners: Owners, rule: Rule) -> Seat | Parked | None:
    name, group = pod.metadata.label(_LWS + "name"), pod.metadata.label(_LWS + "group-index")
    if not (name and group):
        return None
    found = owners.find(LWS, f"{pod.metadata.namespace}/{name}", LeaderWorkerSetObject)
    if isinstance(found, Parked):
        return found
    index = number(pod.metadata.label(_LWS + "worker-index")) or 0
    gang = f"{pod.metadata.namespace}/leaderworkerset/{name}-{group}"
    return Seat(gang, rule, WORKER, index - 1) if index else Seat(gang, rule, LEADER, 0)


def _lws_layout(name: str, pods: Sequence[PodObject], owners: Owners, settings: ReadingSettings) -> Layout:
    key = f"{pods[0].metadata.namespace}/{pods[0].metadata.label(_LWS + 'name')}"
    found = owners.find(LWS, key, LeaderWorkerSetObject)
    told = max((n for pod in pods if (n := number(pod.metadata.annotation(_LWS + "size")))), default=None)
    if not isinstance(found, LeaderWorkerSetObject):
        roles = (GangRole(LEADER, 1), GangRole(WORKER, told - 1)) if told and told > 1 else (GangRole(LEADER, 1),)
        return Layout(name, roles=roles, way=Way.DELETE_LEADER)
    template = found.spec.leader_worker_template
    size = told or template.size or 1
    leader = GangRole(LEADER, 1, template=template.leader_template or template.worker_template)
    workers = (GangRole(WORKER, size - 1, template=template.worker_template),) if size > 1 else ()
    exclusive = found.metadata.annotation(_LWS + "exclusive-topology")
    return Layout(
        name,
        owner=found.metadata,
        roles=(leader, *workers),
        way=Way.DELETE_LEADER,
        owner_kind=LWS,
        promised=bool(exclusive) or found.spec.startup_policy == "LeaderReady",
    )


# --- Ray -----------------------------------------------------------------------------------------


def _ray_seat(pod: PodObject, owners: Owners, rule: Rule) -> Seat | Parked | None:
    """The pod that submits a RayJob has no node type, for it comes once the cluster is up; one that cleans up after it
    has another, for it comes when the cluster is gone. Both are none of it."""
    name, kind = pod.metadata.label(_RAY + "cluster"), pod.metadata.label(_RAY + "node-type")
    if not name or kind not in (HEAD, WORKER):
        return None
    found = owners.find(RAY, f"{pod.metadata.namespace}/{name}", RayClusterObject)
    if not isinstance(found, RayClusterObject):
        return found
    role = HEAD if kind == HEAD else pod.metadata.label(_RAY + "group") or WORKER
    return Seat(f"{pod.metadata.namespace}/raycluster/{name}", rule, role, ordinal(pod))


def _ray_layout(name: str, pods: Sequence[PodObject], owners: Owners, settings: ReadingSettings) -> Layout:
    found = owners.find(
        RAY, f"{pods[0].metadata.namespace}/{pods[0].metadata.label(_RAY + 'cluster')}", RayClusterObject
    )
    if not isinstance(found, RayClusterObject):
        return Layout(name)
    workers = (_ray_workers(group) for group in found.spec.worker_group_specs or () if not group.suspend)
    way, hindrance = _way_of(found.metadata)
    return Layout(
        name,
        owner=found.metadata,
        roles=(
            GangRole(HEAD, 1, template=found.spec.head_group_spec.template),
            *(role for role in workers if role.tasks),
        ),
        way=way,
        hindrance=hindrance,
        owner_kind=RAY,
        suspended=bool(found.spec.suspend),
    )


def _ray_workers(group: RayWorkers) -> GangRole:
    """The autoscaler changes the number, within bounds that hold for whoever writes it; the minimum is the gang."""
    hosts, fewest = max(1, group.num_of_hosts or 1), max(0, group.min_replicas or 0)
    replicas = max(fewest, fewest if group.replicas is None else group.replicas)
    most = replicas if group.max_replicas is None else max(fewest, group.max_replicas)
    tasks = min(replicas, most) * hosts
    return GangRole(group.group_name or WORKER, tasks, fewest * hosts, template=group.template)


# --- Kubeflow ------------------------------------------------------------------------------------


def _kubeflow_seat(pod: PodObject, owners: Owners, rule: Rule) -> Seat | Parked | None:
    name = pod.metadata.label(_TRAINING + "job-name")
    if not name:
        return None
    kind, found = _kubeflow(pod, owners)
    if not isinstance(found, KubeflowObject):
        return found
    role = pod.metadata.label(_TRAINING + "replica-type") or pod.metadata.label(_TRAINING + "job-role")
    gang = f"{pod.metadata.namespace}/{kind.partition('.')[0].lower()}/{name}"
    return Seat(gang, rule, role.lower() or WORKER, ordinal(pod))


def _kubeflow(pod: PodObject, owners: Owners) -> tuple[str, KubeflowObject | Parked | None]:
    """Its owner: of the kind that it names, else of whichever kind has the name."""
    key = f"{pod.metadata.namespace}/{pod.metadata.label(_TRAINING + 'job-name')}"
    named = pod.metadata.controller
    kinds = [kind for kind in KUBEFLOW if named is not None and kind.startswith(named.kind + ".")] or list(KUBEFLOW)
    looked = [(kind, owners.find(kind, key, KubeflowObject)) for kind in kinds]
    there = [each for each in looked if isinstance(each[1], KubeflowObject)]
    return (there or [each for each in looked if each[1] is not None] or [("", None)])[0]


def _kubeflow_layout(name: str, pods: Sequence[PodObject], owners: Owners, settings: ReadingSettings) -> Layout:
    kind, found = _kubeflow(pods[0], owners)
    if not isinstance(found, KubeflowObject):
        return Layout(name)
    policy, elastic = found.spec.run_policy, found.spec.elastic_policy
    scheduling = policy.scheduling_policy if policy else None
    fewest = elastic.min_replicas if elastic else None
    roles = []
    for role, made in sorted(found.spec.replica_specs.items()):
        tasks = 1 if made.replicas is None else made.replicas
        least = min(fewest, tasks) if fewest is not None and role == "Worker" else None
        roles.append(GangRole(role.lower(), tasks, least, template=made.template))
    way, hindrance = _way_of(found.metadata)
    return Layout(
        name,
        owner=found.metadata,
        roles=tuple(role for role in roles if role.tasks),
        least=scheduling.min_available if scheduling else None,
        way=way,
        hindrance=hindrance,
        owner_kind=kind,
        suspended=bool(policy and policy.suspend),
        promised=found.spec.launcher_creation_policy == "WaitForWorkersReady",
        queue=(scheduling.queue or "") if scheduling else "",
        deadline=policy.active_deadline_seconds if policy else None,
    )


# --- Job -----------------------------------------------------------------------------------------


def _job_of(pod: PodObject, owners: Owners) -> JobObject | Parked | None:
    """Its Job; not one that was made later under the name of the Job that made it."""
    owner = pod.metadata.controller
    if owner is None or owner.kind != "Job" or not owner.api_version.startswith("batch/"):
        return None
    found = owners.find(JOB, f"{pod.metadata.namespace}/{owner.name}", JobObject)
    return None if isinstance(found, JobObject) and _is_successor(found.metadata, pod, owner.uid) else found


def _is_successor(job: Metadata, pod: PodObject, uid: str) -> bool:
    """Whether it was made after the pod was, and so did not make it. Pods may outlive their Job: they are left behind
    on purpose, or their node does not answer."""
    return job.uid != uid and moment(pod.metadata.creation_timestamp) < moment(job.creation_timestamp)


def _job_seat(pod: PodObject, owners: Owners, rule: Rule) -> Seat | Parked | None:
    found = _job_of(pod, owners)
    if not isinstance(found, JobObject):
        return found
    return Seat(found.metadata.key, rule, number=ordinal(pod)) if _is_gang(found.spec) else None


def _is_gang(spec: JobSpec) -> bool:
    """An indexed Job all of whose pods run at once; or one of a single pod, which is taken back as a gang is."""
    parallel = 1 if spec.parallelism is None else spec.parallelism
    if parallel <= 1 and spec.completions in (None, 1):
        return True
    array = spec.template.metadata.annotation(ARRAY) == "true"
    return spec.completion_mode == "Indexed" and parallel == spec.completions and not array


def _job_layout(name: str, pods: Sequence[PodObject], owners: Owners, settings: ReadingSettings) -> Layout:
    found = _job_of(pods[0], owners)
    if not isinstance(found, JobObject):
        return Layout(name)
    spec = found.spec
    ended = frozenset(_indexes(found.status.completed_indexes))
    failed = frozenset(_indexes(found.status.failed_indexes or ""))
    way, hindrance = _way_of(found.metadata, spec.managed_by)
    tasks, full = max(1, _pods_of(spec)), full_size(found)
    if ended or any(pod.status.phase == "Succeeded" for pod in pods):
        full = 0  # the work is being finished by those who are there: nobody is begun for it any more
    least = number(spec.template.metadata.annotation(GANG_MIN)) or None
    return Layout(
        name,
        owner=found.metadata,
        roles=(GangRole(tasks=max(tasks, full), least=least, template=spec.template, ended=ended, failed=failed),),
        promised=full > tasks,
        resizable=_is_resizable(found) and way is Way.SUSPEND,
        way=way,
        hindrance="" if way is Way.DELETE and _bears_disruption(spec) else hindrance,
        owner_kind=JOB,
        suspended=bool(spec.suspend),
        deadline=spec.active_deadline_seconds,
    )


def full_size(job: JobObject) -> int:
    """How many a Job had before it was made smaller by us; 0 if it was not."""
    told = number(job.metadata.annotation(FULL_SIZE)) or 0
    return min(told, INDEXES_MAX) if _is_resizable(job) else 0


def _is_resizable(job: JobObject) -> bool:
    """Whether Kubernetes lets its size be changed, and whoever made it does: numbers beyond the size are not run."""
    spec = job.spec
    told = spec.template.metadata.annotation(RESIZABLE) or job.metadata.annotation(RESIZABLE)
    return told == "true" and spec.completion_mode == "Indexed" and spec.parallelism == spec.completions


def _indexes(text: str) -> Iterator[int]:
    """`0,2-4` as numbers."""
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        low, high = number(first), number(last or first)
        if low is not None and high is not None:
            yield from range(low, min(high, low + INDEXES_MAX) + 1)


# --- pods that are no gang -----------------------------------------------------------------------


def _single_seat(pod: PodObject, owners: Owners, rule: Rule) -> Seat:
    return Seat(name_alone(pod, pod.metadata.key, owners), rule, number=0)


def name_alone(pod: PodObject, key: str, owners: Owners) -> str:
    """Of the job that a pod of no gang is: its own; where a Job has the same, a word more tells them apart."""
    taken = (JOB, key) in owners.objects
    return f"{pod.metadata.namespace}/pod/{pod.metadata.name}" if taken else key


def _single_layout(name: str, pods: Sequence[PodObject], owners: Owners, settings: ReadingSettings) -> Layout:
    hindrance = hindrance_of_deleting(pods, owners)
    return Layout(name, roles=(GangRole(tasks=1),), way=Way.DELETE, hindrance=hindrance, family=_family(pods[0]))


# --- taken back without harm ---------------------------------------------------------------------


def is_suspended(owner: object) -> bool:
    """Whether it makes no pods for now, and has those go that there are."""
    if isinstance(owner, KubeflowObject):
        return bool(owner.spec.run_policy and owner.spec.run_policy.suspend)
    return isinstance(owner, JobObject | JobSetObject | RayClusterObject) and bool(owner.spec.suspend)


def suspension(kind: str, suspend: bool) -> dict[str, object]:
    """Its spec with that alone changed."""
    return {"runPolicy": {"suspend": suspend}} if kind in KUBEFLOW else {"suspend": suspend}


def _way_of(owner: Metadata, managed_by: str | None = None) -> tuple[Way, str]:
    """By suspending the owner, unless somebody else does that and would undo it; then why deleting would harm."""
    above = owner.controller
    keeper = f"{above.kind} {above.name}" if above is not None and above.kind != "CronJob" else ""
    if owner.label(_KUEUE_QUEUE):
        keeper = "Kueue"
    elif managed_by and managed_by not in _OWN_CONTROLLERS:
        keeper = managed_by
    told = f"{keeper} suspends and resumes {owner.name}, and a deleted pod would count as failed"
    return (Way.DELETE, told) if keeper else (Way.SUSPEND, "")


def hindrance_of_deleting(pods: Sequence[PodObject], owners: Owners) -> str:
    """Why these pods cannot be deleted without harm; "" if whoever made them makes them anew and minds nothing."""
    for pod in pods:
        job, owner = _job_of(pod, owners), pod.metadata.controller
        if owner is None:
            return f"nobody would make the pod {pod.metadata.name} anew"
        if job is None and owner.kind not in _MAKERS:
            return f"it is not known that the {owner.kind} {owner.name} would make the pod {pod.metadata.name} anew"
        if isinstance(job, JobObject) and not _bears_disruption(job.spec):
            told = "counts a deleted pod as failed: its podFailurePolicy does not ignore DisruptionTarget"
            return f"the Job {job.metadata.name} {told}"
    return ""


def _bears_disruption(spec: JobSpec) -> bool:
    """Whether a pod that was taken back does not count as failed. The first rule that matches decides, and one about
    exit codes may match the code that a pod ends with because it was told to."""
    for rule in (spec.pod_failure_policy.rules if spec.pod_failure_policy else None) or ():
        if rule.action != "Ignore" and rule.on_exit_codes is not None and _is_met_by_stopping(rule.on_exit_codes):
            return False
        on = rule.on_pod_conditions or ()
        if any(c.type == "DisruptionTarget" and c.status in ("", "True") for c in on):
            return rule.action == "Ignore"
    return False


def _is_met_by_stopping(codes: ExitCodes) -> bool:
    return any((code in (codes.values or ())) != (codes.operator == "NotIn") for code in _STOPPED)


def _family(pod: PodObject) -> str:
    """Whose replicas a pod is one of: its owner, and of a ReplicaSet the Deployment above it."""
    owner = pod.metadata.controller
    if owner is None:
        return ""
    name = owner.name.removesuffix(f"-{pod.metadata.label('pod-template-hash') or '?'}")
    return f"{pod.metadata.namespace}/{name}"


JOBSETS = Rule("JobSet", _jobset_seat, _jobset_layout)
LEADER_WORKERS = Rule("LeaderWorkerSet", _lws_seat, _lws_layout)
RAY_CLUSTERS = Rule("RayCluster", _ray_seat, _ray_layout)
TRAININGS = Rule("Kubeflow", _kubeflow_seat, _kubeflow_layout)
JOBS = Rule("Job", _job_seat, _job_layout)
SINGLE = Rule("pod", _single_seat, _single_layout)
BY_OWNER = (JOBSETS, LEADER_WORKERS, RAY_CLUSTERS, TRAININGS, JOBS)


def alone(pod: PodObject, owners: Owners) -> Seat:
    """The pod as a job by itself, whatever it may belong to."""
    return _single_seat(pod, owners, SINGLE)


def of_owner(pod: PodObject, owners: Owners) -> Layout | None:
    """The gang that the pod's owner would make of it, were it not in another."""
    for rule in BY_OWNER:
        seat = rule.seat(pod, owners, rule)
        if isinstance(seat, Seat):
            found = rule.layout(seat.gang, (pod,), owners, ReadingSettings())
            return found if isinstance(found, Layout) else None
    if isinstance(_job_of(pod, owners), JobObject):  # whose pods are a gang for another reason
        return _job_layout("", (pod,), owners, ReadingSettings())
    return _single_layout("", (pod,), owners, ReadingSettings())
