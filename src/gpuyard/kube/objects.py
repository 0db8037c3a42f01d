"""Projections of API objects: the fields that scheduling reads, and nothing else.

Called by the reflector (which decodes into them) and by `worlds.kubernetes` (which translates them). A field that the
API may leave out has a default, and one that it may write as null allows None, so that whatever an API server accepted
can be read. Names are the API's; a kind of its own ends in `Object`. Times stay text until somebody asks (`moment`).
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from gpuyard.kube.quantities import Quantity

GRANTED_GPUS = "gpuyard.dev/gpus"
"""On a pod, written with its Binding: the UUIDs that it was given."""
Labels = dict[str, str]
Amounts = dict[str, Quantity]


class Projection(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The base of them all. None holds a cycle, so the garbage collector need not look."""


@lru_cache(maxsize=65536)
def moment(text: str | None) -> float:
    """Seconds since the epoch; 0 where there is no time that could be told."""
    try:
        then = datetime.fromisoformat(text) if text else datetime.fromtimestamp(0, UTC)
    except ValueError:
        return 0.0
    return (then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp()


# --- what all have -------------------------------------------------------------------------------


class OwnerReference(Projection, frozen=True):
    """Who made it. At most one of several is the controller."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(Projection, frozen=True):
    """The part every object has."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Labels | None = None
    annotations: Labels | None = None
    owner_references: list[OwnerReference] | None = None

    def label(self, key: str) -> str:
        """Its value; "" without it."""
        return (self.labels or {}).get(key, "")

    def annotation(self, key: str) -> str:
        """Its value; "" without it."""
        return (self.annotations or {}).get(key, "")

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages it."""
        return next((owner for owner in self.owner_references or () if owner.controller), None)

    @property
    def key(self) -> str:
        """Its name among all of its kind: `namespace/name`, or the name of what has no namespace."""
        return sys.intern(f"{self.namespace}/{self.name}" if self.namespace else self.name)


class AnyObject(Projection, frozen=True):
    """An object of a kind that nobody here knows more about."""

    metadata: Metadata = Metadata()
    api_version: str = ""
    kind: str = ""


class Requirement(Projection, frozen=True):
    """One expression over labels: In, NotIn, Exists, DoesNotExist, and on nodes Gt and Lt."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(Projection, frozen=True):
    """All must hold; an empty selector selects everything, none at all selects nothing."""

    match_labels: Labels | None = None
    match_expressions: list[Requirement] | None = None


class Condition(Projection, frozen=True):
    """One condition of a status."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


# --- pods ----------------------------------------------------------------------------------------


class NodeTerm(Projection, frozen=True):
    """All expressions and fields must hold; a term without any matches nothing."""

    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeTerms(Projection, frozen=True):
    """Any one suffices."""

    node_selector_terms: list[NodeTerm] | None = None


class PreferredNodeTerm(Projection, frozen=True):
    """A wish for nodes, 1 to 100."""

    weight: int = 0
    preference: NodeTerm = NodeTerm()


class NodeAffinity(Projection, frozen=True):
    """Where a pod must and would like to run."""

    required_during_scheduling_ignored_during_execution: NodeTerms | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredNodeTerm] | None = None


class PodTerm(Projection, frozen=True):
    """Pods that are selected, in these namespaces, within one domain of the key."""

    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class PreferredPodTerm(Projection, frozen=True):
    """A wish for neighbours, 1 to 100."""

    weight: int = 0
    pod_affinity_term: PodTerm = PodTerm()


class PodAffinity(Projection, frozen=True):
    """Neighbours that a pod must have and would like, or must not have and would rather not."""

    required_during_scheduling_ignored_during_execution: list[PodTerm] | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredPodTerm] | None = None


class Affinity(Projection, frozen=True):
    """All three of them."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class SpreadConstraint(Projection, frozen=True):
    """How evenly selected pods lie over the domains of a key."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class PodToleration(Projection, frozen=True):
    """Which taints a pod bears."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Resources(Projection, frozen=True):
    """What a container, or a pod as a whole, asks for."""

    requests: Amounts | None = None
    limits: Amounts | None = None


class ContainerPort(Projection, frozen=True):
    """A port; only those of the host matter."""

    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = ""


class Container(Projection, frozen=True):
    """A container, or an init container; one that restarts always is a sidecar."""

    name: str = ""
    resources: Resources | None = None
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None


class ClaimedVolume(Projection, frozen=True):
    """A volume by the name of its claim."""

    claim_name: str = ""
    read_only: bool = False


class Volume(Projection, frozen=True):
    """Only volumes with claims matter; an ephemeral one's is named `<pod>-<volume>`."""

    name: str = ""
    persistent_volume_claim: ClaimedVolume | None = None
    ephemeral: dict[str, object] | None = None


class PodClaim(Projection, frozen=True):
    """A claim on devices (DRA)."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class SchedulingGate(Projection, frozen=True):
    """Whoever put it there lifts it."""

    name: str = ""


class SchedulingGroup(Projection, frozen=True):
    """The upstream group of a pod."""

    pod_group_name: str | None = None


class PodSpec(Projection, frozen=True):
    """What is asked for."""

    scheduler_name: str = ""
    node_name: str = ""
    node_selector: Labels | None = None
    affinity: Affinity | None = None
    tolerations: list[PodToleration] | None = None
    topology_spread_constraints: list[SpreadConstraint] | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: Amounts | None = None
    resources: Resources | None = None
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    scheduling_group: SchedulingGroup | None = None
    volumes: list[Volume] | None = None
    resource_claims: list[PodClaim] | None = None
    restart_policy: str = ""
    active_deadline_seconds: int | None = None
    termination_grace_period_seconds: int | None = None


class WaitingState(Projection, frozen=True):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class BegunState(Projection, frozen=True):
    """That a container runs or ran is enough."""


class ContainerState(Projection, frozen=True):
    """One of the three; of those that wait the cause is told on."""

    waiting: WaitingState | None = None
    running: BegunState | None = None
    terminated: BegunState | None = None


class DeviceHealth(Projection, frozen=True):
    """A device that a container holds."""

    resource_id: str = msgspec.field(default="", name="resourceID")
    health: str = ""


class DeviceStatus(Projection, frozen=True):
    """The devices of one resource."""

    name: str = ""
    resources: list[DeviceHealth] | None = None


class ContainerStatus(Projection, frozen=True):
    """What the kubelet gave a container, which after a resize may be more than it asks for now."""

    name: str = ""
    allocated_resources: Amounts | None = None
    resources: Resources | None = None
    allocated_resources_status: list[DeviceStatus] | None = None
    state: ContainerState | None = None


class ClaimStatus(Projection, frozen=True):
    """The claim that was made for a pod from a template."""

    name: str = ""
    resource_claim_name: str | None = None


class PodStatus(Projection, frozen=True):
    """What has become of it."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    allocated_resources: Amounts | None = None
    resources: Resources | None = None
    nominated_node_name: str = ""
    start_time: str | None = None
    resource_claim_statuses: list[ClaimStatus] | None = None


class PodTemplate(Projection, frozen=True):
    """What pods are made from."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()


class PodObject(Projection, frozen=True):
    """A pod."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
    own_node: str = ""
    """Its node, where it shares its spec with pods on other nodes; ask for `node_name`."""
    own_start: str = ""
    """When its kubelet took it on, where it shares its status with others; ask for `start_time`."""

    @property
    def node_name(self) -> str:
        """The node that it is bound to; "" if to none."""
        return self.own_node or self.spec.node_name

    @property
    def start_time(self) -> str:
        """When its kubelet took it on; "" before that."""
        return self.own_start or self.status.start_time or ""


# --- nodes ---------------------------------------------------------------------------------------


class NodeTaint(Projection, frozen=True):
    """A taint as the API has it."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Projection, frozen=True):
    """What its operator says."""

    unschedulable: bool = False
    taints: list[NodeTaint] | None = None


class NodeStatus(Projection, frozen=True):
    """What its kubelet says."""

    capacity: Amounts | None = None
    allocatable: Amounts | None = None
    conditions: list[Condition] | None = None


class NodeObject(Projection, frozen=True):
    """A node."""

    metadata: Metadata = Metadata()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


# --- budgets, claims -----------------------------------------------------------------------------


class BudgetSpec(Projection, frozen=True):
    """Whom a PodDisruptionBudget covers."""

    selector: LabelSelector | None = None


class BudgetStatus(Projection, frozen=True):
    """How many may go now, as of a generation."""

    disruptions_allowed: int = 0
    observed_generation: int = 0


class BudgetObject(Projection, frozen=True):
    """A PodDisruptionBudget."""

    metadata: Metadata = Metadata()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


class ClaimAllocation(Projection, frozen=True):
    """Where the devices of a claim can be reached."""

    node_selector: NodeTerms | None = None


class DeviceClaimStatus(Projection, frozen=True):
    """Whether it has its devices."""

    allocation: ClaimAllocation | None = None


class DeviceClaimObject(Projection, frozen=True):
    """A ResourceClaim."""

    metadata: Metadata = Metadata()
    status: DeviceClaimStatus = DeviceClaimStatus()


class NamespaceObject(Projection, frozen=True):
    """A namespace: its labels say what its pods may do."""

    metadata: Metadata = Metadata()
