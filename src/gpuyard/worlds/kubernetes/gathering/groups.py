"""Gangs that say so themselves: our own mark, pod groups of four projects, Kueue's pod groups.

How they are taken back is their owner's way; what it is, is asked of `controllers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpuyard.kube.objects import PodObject
from gpuyard.kube.owners import NetworkTopology, PodGroupObject, ReplicasObject, TopologyConstraint
from gpuyard.model.outside import text
from gpuyard.model.topology import ANYWHERE, TopologyAsk
from gpuyard.worlds.kubernetes.asking import levels
from gpuyard.worlds.kubernetes.asking.marks import GANG, GANG_MIN, GANG_TASKS, ReadingSettings
from gpuyard.worlds.kubernetes.asking.refusals import Refusal, RefusalName
from gpuyard.worlds.kubernetes.gathering import controllers
from gpuyard.worlds.kubernetes.gathering.layouts import GangRole, Layout, Owners, Parked, Rule, Seat, Way, number

UPSTREAM = "PodGroup.scheduling.k8s.io"
PLUGINS = "PodGroup.scheduling.x-k8s.io"
VOLCANO = "PodGroup.scheduling.volcano.sh"
KAI = "PodGroup.scheduling.run.ai"

_KUEUE_GROUP, _KUEUE_TOTAL = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
_VOLCANO_NAMES = ("scheduling.volcano.sh/group-name", "scheduling.k8s.io/group-name")
_VOLCANO_TASK, _KAI_SUBGROUP = "volcano.sh/task-spec", "kai.scheduler/subgroup-name"


# --- our own mark --------------------------------------------------------------------------------


def _marked_seat(pod: PodObject, owners: Owners, rule: Rule) -> Seat | None:
    name = pod.metadata.annotation(GANG) or pod.metadata.label(GANG)
    return Seat(f"{pod.metadata.namespace}/gang/{name}", rule, number=_told_number(pod)) if name else None


def _marked_layout(name: str, pods: Sequence[PodObject], owners: Owners, settings: ReadingSettings) -> Layout:
    told = [_positive(pod.metadata.annotation(GANG_TASKS)) for pod in pods]
    least = [_positive(pod.metadata.annotation(GANG_MIN)) for pod in pods]
    tasks = max((n for n in told if n), default=None)
    return _taken_back_as_its_owner(
        Layout(name, least=max((n for n in least if n), default=tasks), roles=(GangRole(tasks=tasks),)), pods, owners
    )


def _positive(text: str) -> int | None:
    return number(text) or None


# --- pod groups ----------------------------------------------------------------------------------


def _group_of(pod: PodObject) -> tuple[str, str] | None:
    """The kind and name of its group."""
    group = pod.spec.scheduling_group
    if group is not None and group.pod_group_name:
        return UPSTREAM, group.pod_group_name
    named = pod.metadata.label("scheduling.x-k8s.io/pod-group")
    if named:
        return PLUGINS, named
    volcano = next((name for key in _VOLCANO_NAMES if (name := pod.metadata.annotation(key))), "")
    if volcano:
        return VOLCANO, volcano
    kai = pod.metadata.annotation("pod-group-name")
    return (KAI, kai) if kai else None


def _group_seat(pod: PodObject, owners: Owners, rule: Rule) -> Seat | Parked | None:
    named = _group_of(pod)
    if named is None:
        return None
    found = owners.find(named[0], f"{pod.metadata.namespace}/{named[1]}", PodGroupObject)
    if not isinstance(found, PodGroupObject):
        return found
    policy = found.spec.scheduling_policy
    if named[0] == UPSTREAM and (policy is None or policy.gang is None):
        return None  # a group, and no gang
    role = pod.metadata.label(_KAI_SUBGROUP) or pod.metadata.annotation(_VOLCANO_TASK)
    gang = f"{pod.metadata.namespace}/podgroup/{named[1]}"
    return Seat(gang, rule, role, _told_number(pod)) if role else Seat(gang, rule, number=_told_number(pod))


def _group_layout(name: str, pods: Sequence[PodObject], owners: Owners, settings: ReadingSettings) -> Layout | Refusal:
    kind, group = _group_of(pods[0]) or ("", "")
    found = owners.find(kind, f"{pods[0].metadata.namespace}/{group}", PodGroupObject)
    if not isinstance(found, PodGroupObject):
        return _taken_back_as_its_owner(Layout(name), pods, owners)
    spec = found.spec
    topology = _topology(found, settings)
    roles = _group_roles(found, settings)
    for asked in (topology, *roles):
        if isinstance(asked, Refusal):
            return asked
    gang = spec.scheduling_policy.gang if spec.scheduling_policy else None
    layout = Layout(
        name,
        owner=found.metadata,
        roles=tuple(role for role in roles if isinstance(role, GangRole)),
        least=gang.min_count if gang else spec.min_member,
        topology=topology if isinstance(topology, TopologyAsk) else ANYWHERE,
        queue=spec.queue,
        preemptible={"preemptible": True, "non-preemptible": False}.get(spec.preemptibility.lower()),
    )
    return _taken_back_as_its_owner(layout, pods, owners)


def _group_roles(group: PodGroupObject, settings: ReadingSettings) -> list[GangRole | Refusal]:
    """Groups inside the group: KAI's subgroups, Volcano's minimum by task."""
    tasks = [GangRole(name, least=least) for name, least in sorted((group.spec.min_task_member or {}).items())]
    roles: list[GangRole | Refusal] = [*tasks]
    if group.spec.sub_group_policy:
        roles.append(_no_counterpart(group, "subGroupPolicy"))
    above = {inner.parent for inner in group.spec.sub_groups or () if inner.parent}
    for inner in group.spec.sub_groups or ():
        if inner.name in above:  # its members are those of the groups inside it
            if inner.topology_constraint is not None or inner.min_sub_group is not None:
                roles.append(_no_counterpart(group, f"subGroups, of which {inner.name} has others inside it"))
            continue
        asked = _levels(inner.topology_constraint, settings)
        roles.append(
            asked if isinstance(asked, Refusal) else GangRole(inner.name, None, inner.min_member, topology=asked)
        )
    return roles


def _no_counterpart(group: PodGroupObject, field: str) -> Refusal:
    told = f"its PodGroup {group.metadata.name} has {field}: groups inside groups have no conditions of their own here"
    return Refusal(RefusalName.NO_COUNTERPART, told)


def _topology(group: PodGroupObject, settings: ReadingSettings) -> TopologyAsk | Refusal:
    spec = group.spec
    if spec.network_topology is not None:
        return _tier(spec.network_topology, settings)
    if spec.topology_constraint is not None:
        return _levels(spec.topology_constraint, settings)
    keys = spec.scheduling_constraints.topology if spec.scheduling_constraints else None
    return known_levels(keys[0].key if keys else "", "", settings)


def _levels(asked: TopologyConstraint | None, settings: ReadingSettings) -> TopologyAsk | Refusal:
    if asked is None:
        return ANYWHERE
    return known_levels(asked.required_topology_level, asked.preferred_topology_level, settings)


def known_levels(required: str, preferred: str, settings: ReadingSettings) -> TopologyAsk | Refusal:
    """The levels that labels mean. One that is required and that nobody settled cannot be kept."""
    if required and not settings.level(required):
        known, asked = levels.told(settings.levels), required[: text.KEY_MAX]
        told = f"it requires one domain of {asked}, which is no level of this cluster; levels: {known}"
        return Refusal(RefusalName.TOPOLOGY_UNKNOWN, told)
    return TopologyAsk(settings.level(required), settings.level(preferred))


def _tier(asked: NetworkTopology, settings: ReadingSettings) -> TopologyAsk | Refusal:
    """Volcano counts tiers from the inside; one beyond the outermost level asks for nothing.

    Levels that no node bears are no tiers; where no node bears any, all count, and who requires one waits for it.
    """
    known = [level for level, _ in reversed(settings.levels)]
    names = [level for level in known if level in settings.borne] or known
    tier = asked.highest_tier_allowed or 0
    level = asked.highest_tier_name or (names[tier - 1] if 0 < tier <= len(names) else "")
    return known_levels(level, "", settings) if asked.mode != "soft" else known_levels("", level, settings)


# --- Kueue ---------------------------------------------------------------------------------------


def _kueue_seat(pod: PodObject, owners: Owners, rule: Rule) -> Seat | None:
    name = pod.metadata.label(_KUEUE_GROUP)
    return Seat(f"{pod.metadata.namespace}/kueue/{name}", rule, number=_told_number(pod)) if name else None


def _kueue_layout(name: str, pods: Sequence[PodObject], owners: Owners, settings: ReadingSettings) -> Layout:
    """Its controller makes no pods anew: they are deleted, and their owner does."""
    total = max((n for pod in pods if (n := number(pod.metadata.annotation(_KUEUE_TOTAL)))), default=None)
    hindrance = controllers.hindrance_of_deleting(pods, owners)
    return Layout(name, roles=(GangRole(tasks=total),), least=total, way=Way.DELETE, hindrance=hindrance)


# --- both ----------------------------------------------------------------------------------------


def _told_number(pod: PodObject) -> int | None:
    return controllers.ordinal(pod)


def _taken_back_as_its_owner(layout: Layout, pods: Sequence[PodObject], owners: Owners) -> Layout:
    """The way of whatever made the pods; more than one owner has only the pods in common."""
    layout = replace(layout, promised=_in_order(pods, owners))
    made = {maker.uid if (maker := pod.metadata.controller) is not None else "" for pod in pods}
    owner = controllers.of_owner(pods[0], owners) if len(made) == 1 else None
    if owner is None or owner.way is Way.DELETE:
        return replace(layout, hindrance=controllers.hindrance_of_deleting(pods, owners))
    return replace(
        layout,
        way=owner.way,
        owner_kind=owner.owner_kind,
        owner=owner.owner or layout.owner,
        hindrance=owner.hindrance,
        suspended=owner.suspended,
        deadline=owner.deadline,
    )


def _in_order(pods: Sequence[PodObject], owners: Owners) -> bool:
    """Whether a StatefulSet makes each of them once the one before it runs."""
    owner = pods[0].metadata.controller
    if owner is None or owner.kind != "StatefulSet":
        return False
    found = owners.find("StatefulSet.apps", f"{pods[0].metadata.namespace}/{owner.name}", ReplicasObject)
    return isinstance(found, ReplicasObject) and found.spec.pod_management_policy != "Parallel"


MARKED = Rule("gpuyard.dev/gang", _marked_seat, _marked_layout)
POD_GROUP = Rule("PodGroup", _group_seat, _group_layout)
KUEUE = Rule("Kueue pod group", _kueue_seat, _kueue_layout)
