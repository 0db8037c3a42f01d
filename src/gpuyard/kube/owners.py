"""Projections of what makes pods: Jobs, and the kinds of other projects, each with the version it was read from.

Called by `worlds.kubernetes`. An owner tells how many members there will be and what they are made from; kinds that are
not here are read as `AnyObject`.
"""

from __future__ import annotations

from gpuyard.kube.objects import Condition, LabelSelector, Metadata, PodTemplate, Projection
from gpuyard.kube.quantities import Quantity

# --- batch/v1 ------------------------------------------------------------------------------------


class FailureCondition(Projection, frozen=True):
    """A condition of a failed pod."""

    type: str = ""
    status: str = ""


class ExitCodes(Projection, frozen=True):
    """How containers of a failed pod ended: `In` or `NotIn` these."""

    operator: str = ""
    values: list[int] | None = None


class FailureRule(Projection, frozen=True):
    """What a Job does about a pod that failed so."""

    action: str = ""
    on_exit_codes: ExitCodes | None = None
    on_pod_conditions: list[FailureCondition] | None = None


class FailurePolicy(Projection, frozen=True):
    """The first rule that matches decides."""

    rules: list[FailureRule] | None = None


class JobSpec(Projection, frozen=True):
    """A Job's wish."""

    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    suspend: bool | None = None
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None
    pod_failure_policy: FailurePolicy | None = None
    managed_by: str | None = None
    template: PodTemplate = PodTemplate()


class JobStatus(Projection, frozen=True):
    """How far it is."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0
    completed_indexes: str = ""
    failed_indexes: str | None = None
    start_time: str | None = None
    """Since when its deadline counts: begun anew when it is resumed."""
    conditions: list[Condition] | None = None


class JobObject(Projection, frozen=True):
    """A Job."""

    metadata: Metadata = Metadata()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


# --- apps/v1 -------------------------------------------------------------------------------------


class ReplicaSpec(Projection, frozen=True):
    """Of a StatefulSet, ReplicaSet, Deployment, DaemonSet."""

    replicas: int | None = None
    pod_management_policy: str = ""
    selector: LabelSelector | None = None
    template: PodTemplate = PodTemplate()


class ReplicasObject(Projection, frozen=True):
    """A StatefulSet, ReplicaSet, Deployment or DaemonSet."""

    metadata: Metadata = Metadata()
    spec: ReplicaSpec = ReplicaSpec()


# --- jobset.x-k8s.io/v1alpha2 --------------------------------------------------------------------


class JobTemplate(Projection, frozen=True):
    """What a JobSet's Jobs are made from."""

    metadata: Metadata = Metadata()
    spec: JobSpec = JobSpec()


class JobDependency(Projection, frozen=True):
    """Another replicated job that must come first."""

    name: str = ""
    status: str = ""


class ReplicatedJob(Projection, frozen=True):
    """So many Jobs alike."""

    name: str = ""
    replicas: int | None = None
    template: JobTemplate = JobTemplate()
    depends_on: list[JobDependency] | None = None


class StartupPolicy(Projection, frozen=True):
    """`InOrder`: each replicated job once the one before it is ready."""

    startup_policy_order: str = ""


class JobSetSpec(Projection, frozen=True):
    """A JobSet's wish."""

    suspend: bool | None = None
    replicated_jobs: list[ReplicatedJob] | None = None
    startup_policy: StartupPolicy | None = None
    managed_by: str | None = None


class JobSetObject(Projection, frozen=True):
    """A JobSet."""

    metadata: Metadata = Metadata()
    spec: JobSetSpec = JobSetSpec()


# --- leaderworkerset.x-k8s.io/v1 -----------------------------------------------------------------


class LeaderWorkerTemplate(Projection, frozen=True):
    """One group: a leader and size − 1 workers."""

    size: int | None = None
    leader_template: PodTemplate | None = None
    worker_template: PodTemplate = PodTemplate()


class LeaderWorkerSpec(Projection, frozen=True):
    """A LeaderWorkerSet's wish."""

    replicas: int | None = None
    startup_policy: str = ""
    leader_worker_template: LeaderWorkerTemplate = LeaderWorkerTemplate()


class LeaderWorkerSetObject(Projection, frozen=True):
    """A LeaderWorkerSet."""

    metadata: Metadata = Metadata()
    spec: LeaderWorkerSpec = LeaderWorkerSpec()


# --- kubeflow.org/v1, trainer.kubeflow.org/v1alpha1 ----------------------------------------------


class KubeflowReplicas(Projection, frozen=True):
    """So many pods alike."""

    replicas: int | None = None
    template: PodTemplate = PodTemplate()


class KubeflowScheduling(Projection, frozen=True):
    """What it asks of a gang scheduler."""

    min_available: int | None = None
    queue: str | None = None
    priority_class: str | None = None


class RunPolicy(Projection, frozen=True):
    """How it is run."""

    suspend: bool | None = None
    active_deadline_seconds: int | None = None
    scheduling_policy: KubeflowScheduling | None = None


class ElasticPolicy(Projection, frozen=True):
    """Between how many workers it runs."""

    min_replicas: int | None = None
    max_replicas: int | None = None


Replicas = dict[str, KubeflowReplicas]


class KubeflowSpec(Projection, frozen=True):
    """Each kind has its own key for the same thing."""

    run_policy: RunPolicy | None = None
    elastic_policy: ElasticPolicy | None = None
    launcher_creation_policy: str = ""
    """Of an MPIJob (v2beta1): `WaitForWorkersReady` makes the launcher last."""
    pytorch_replica_specs: Replicas | None = None
    tf_replica_specs: Replicas | None = None
    mpi_replica_specs: Replicas | None = None
    xgb_replica_specs: Replicas | None = None
    paddle_replica_specs: Replicas | None = None
    jax_replica_specs: Replicas | None = None

    @property
    def replica_specs(self) -> Replicas:
        """Whichever it has."""
        of_its_kind = (
            self.pytorch_replica_specs,
            self.tf_replica_specs,
            self.mpi_replica_specs,
            self.xgb_replica_specs,
            self.paddle_replica_specs,
            self.jax_replica_specs,
        )
        return next((specs for specs in of_its_kind if specs), {})


class KubeflowObject(Projection, frozen=True):
    """A PyTorchJob, TFJob, MPIJob, XGBoostJob, PaddleJob or JAXJob."""

    metadata: Metadata = Metadata()
    spec: KubeflowSpec = KubeflowSpec()


class TrainJobSpec(Projection, frozen=True):
    """A TrainJob becomes a JobSet; only its suspension is its own."""

    suspend: bool | None = None


class TrainJobObject(Projection, frozen=True):
    """A TrainJob."""

    metadata: Metadata = Metadata()
    spec: TrainJobSpec = TrainJobSpec()


# --- ray.io/v1 -----------------------------------------------------------------------------------


class RayHead(Projection, frozen=True):
    """The head."""

    template: PodTemplate = PodTemplate()


class RayWorkers(Projection, frozen=True):
    """A group of workers; each replica is so many hosts."""

    group_name: str = ""
    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    num_of_hosts: int | None = None
    suspend: bool | None = None
    template: PodTemplate = PodTemplate()


class RayClusterSpec(Projection, frozen=True):
    """A RayCluster's wish."""

    suspend: bool | None = None
    enable_in_tree_autoscaling: bool | None = None
    head_group_spec: RayHead = RayHead()
    worker_group_specs: list[RayWorkers] | None = None


class RayClusterObject(Projection, frozen=True):
    """A RayCluster."""

    metadata: Metadata = Metadata()
    spec: RayClusterSpec = RayClusterSpec()


# --- pod groups: scheduling.k8s.io, scheduling.x-k8s.io, scheduling.volcano.sh, scheduling.run.ai -


class GangPolicy(Projection, frozen=True):
    """Upstream's minimum."""

    min_count: int | None = None


class SchedulingPolicy(Projection, frozen=True):
    """Upstream: a gang, or (`basic`) none."""

    gang: GangPolicy | None = None


class TopologyKey(Projection, frozen=True):
    """Upstream: all in one domain of this label."""

    key: str = ""


class SchedulingConstraints(Projection, frozen=True):
    """Upstream's constraints."""

    topology: list[TopologyKey] | None = None


class NetworkTopology(Projection, frozen=True):
    """Volcano: `hard` or `soft`, up to a tier."""

    mode: str = ""
    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""


class SubGroupPolicy(Projection, frozen=True):
    """Volcano: groups inside the group, told apart by labels."""

    name: str = ""
    sub_group_size: int | None = None
    min_sub_groups: int | None = None
    match_label_keys: list[str] | None = None
    network_topology: NetworkTopology | None = None


class TopologyConstraint(Projection, frozen=True):
    """KAI: levels by the labels of nodes."""

    topology: str = ""
    required_topology_level: str = ""
    preferred_topology_level: str = ""


class SubGroup(Projection, frozen=True):
    """KAI: a group inside the group."""

    name: str = ""
    parent: str | None = None
    min_member: int | None = None
    min_sub_group: int | None = None
    topology_constraint: TopologyConstraint | None = None


class PodGroupSpec(Projection, frozen=True):
    """The four kinds together; each sets its own."""

    min_member: int | None = None
    min_task_member: dict[str, int] | None = None
    min_resources: dict[str, Quantity] | None = None
    queue: str = ""
    priority_class_name: str = ""
    priority: int | None = None
    preemptibility: str = ""
    network_topology: NetworkTopology | None = None
    sub_group_policy: list[SubGroupPolicy] | None = None
    topology_constraint: TopologyConstraint | None = None
    sub_groups: list[SubGroup] | None = None
    scheduling_policy: SchedulingPolicy | None = None
    scheduling_constraints: SchedulingConstraints | None = None
    disruption_mode: object = None


class PodGroupObject(Projection, frozen=True):
    """A group of pods by its own object."""

    metadata: Metadata = Metadata()
    api_version: str = ""
    spec: PodGroupSpec = PodGroupSpec()
