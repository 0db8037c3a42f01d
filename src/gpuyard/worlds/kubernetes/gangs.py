"""Pods as jobs of the model. Pure: API objects in, values out, or a refusal by name.

`seat_of(pod, owners)` tells the gang a pod is in (its job's name), or that its owner is not known yet (`Parked`);
`gather(pods, owners, settings, places)` makes the job of all pods of one gang, with who sits where; `places` has where
they are or will be. First match of the rules decides. `foreign_of(pod, gpus, ...)` is a pod of others that matters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuyard.kube.objects import PodObject, moment
from gpuyard.model.job import MAIN, AffinityTerm, Bundle, Expression, Job, Placement, TaskGroup, one_group
from gpuyard.model.outside import text
from gpuyard.model.resources import Request
from gpuyard.model.topology import ANYWHERE, TopologyAsk
from gpuyard.worlds.kubernetes import pods
from gpuyard.worlds.kubernetes.asking import company, readable
from gpuyard.worlds.kubernetes.asking.marks import DEFAULTS, ReadingSettings
from gpuyard.worlds.kubernetes.asking.refusals import Refusal, RefusalName, Remark
from gpuyard.worlds.kubernetes.gathering import controllers, kept_back, members, naming
from gpuyard.worlds.kubernetes.gathering.controllers import BY_OWNER, SINGLE
from gpuyard.worlds.kubernetes.gathering.groups import KUEUE, MARKED, POD_GROUP
from gpuyard.worlds.kubernetes.gathering.holdings import Held, parted
from gpuyard.worlds.kubernetes.gathering.layouts import Layout, Owners, Parked, Rule, Seat, Way
from gpuyard.worlds.kubernetes.gathering.members import Chair, Places, Seating, place_of
from gpuyard.worlds.kubernetes.gathering.wishes import GangWishes, wishes_of

RULES: tuple[Rule, ...] = (MARKED, POD_GROUP, KUEUE, *BY_OWNER, SINGLE)
"""The table of gangs, row by row: the first that knows a pod has it."""

NO_PLACES: Places = {}


@dataclass(frozen=True, slots=True)
class Gathered:
    """A gang as it is now. Without a job where there is nothing to run: it is over, or suspended."""

    name: str
    job: Job | None
    refusal: Refusal | None = None
    chairs: tuple[Chair, ...] = ()
    """Every member, with the group and number that placements of a plan name."""
    way: Way = Way.DELETE
    owner_kind: str = ""
    owner: str = ""
    """`namespace/name` of who is suspended."""
    remarks: tuple[Remark, ...] = ()
    unborn: bool = False
    """Whether members that do not exist yet may be given their places."""
    hindrance: str = ""
    """Why it cannot be taken back without harm, in words."""
    resizable: bool = False
    """Whether its owner may be made smaller and larger."""

    @property
    def bound(self) -> frozenset[str]:
        """Uids of those that have their node."""
        return frozenset(chair.pod.metadata.uid for chair in self.chairs if pods.is_bound(chair.pod))


def seat_of(pod: PodObject, owners: Owners) -> Seat | Parked:
    """Which gang it is in. One that has its node waits for nobody to be known: it holds what it holds."""
    for rule in RULES:
        found = rule.seat(pod, owners, rule)
        if isinstance(found, Parked) and pods.is_bound(pod):
            return controllers.alone(pod, owners)
        if found is not None:
            return naming.seat(found) if isinstance(found, Seat) else found
    raise AssertionError("the last rule takes every pod")


def gather(
    gang: Sequence[PodObject], owners: Owners, settings: ReadingSettings = DEFAULTS, places: Places = NO_PLACES
) -> Gathered | Parked:
    """The job of all pods of one gang that there are, those that ended included."""
    found = [seat_of(pod, owners) for pod in gang]
    parked = next((each for each in found if isinstance(each, Parked)), None)
    if parked is not None:
        return parked
    sitting = [_sitting(pod, seat, places) for pod, seat in zip(gang, found, strict=True) if isinstance(seat, Seat)]
    first = next(seat for seat in found if isinstance(seat, Seat))
    layout = first.rule.layout(first.gang, gang, owners, settings)
    if isinstance(layout, Refusal):
        return Gathered(first.gang, None, layout)
    layout = naming.layout(layout)
    mark = kept_back.mark_of(layout.owner) if layout.suspended else None
    if mark is not None:  # by us: it waits for a place, and for nobody's leave
        layout = replace(layout, suspended=False, promised=True)
    there = [pod for pod in gang if not pods.is_over(pod)]
    wishes = wishes_of(layout, there or gang, settings)
    seating = members.seated(layout, sitting, settings, places)
    for told in (wishes, seating):
        if isinstance(told, Refusal):
            return _gathered(layout, None, told)
    assert isinstance(wishes, GangWishes)
    assert isinstance(seating, Seating)
    job = _job(layout, wishes, seating, places) if there else None
    if job is not None and mark is not None:
        job = replace(job, waiting_since=mark.at)
    return _gathered(layout, job, None, seating.chairs, wishes.remarks)


def orphaned(name: str, parked: Parked) -> Gathered:
    """A pod that waits for what it belongs to."""
    kind, told = parked.kind.partition(".")[0], parked.key.rpartition("/")[2]
    words = f"it belongs to the {kind} {told}, which is not there"
    return Gathered(name, None, Refusal(RefusalName.OWNER_UNKNOWN, words))


def _sitting(pod: PodObject, seat: Seat, places: Places) -> members.Sitting:
    """One that is on its way to a node has the number that it was sent there with."""
    sent = places.get(pod.metadata.uid) if seat.number is None and not pods.is_bound(pod) else None
    return pod, seat.role, sent.task if sent is not None else seat.number


def _gathered(
    layout: Layout,
    job: Job | None,
    refusal: Refusal | None,
    chairs: tuple[Chair, ...] = (),
    remarks: tuple[Remark, ...] = (),
) -> Gathered:
    owner = layout.owner.key if layout.owner is not None and layout.owner_kind else ""
    return Gathered(
        layout.name, job, refusal, chairs, layout.way, layout.owner_kind, owner, remarks, layout.promised,
        layout.hindrance, layout.resizable,
    )  # fmt: skip


def _job(layout: Layout, wishes: GangWishes, seating: Seating, places: Places) -> Job:
    made = [pods.submitted(chair.pod) for chair in seating.chairs]
    started = [moment(chair.pod.start_time) for chair in seating.chairs if chair.pod.start_time]
    placed = tuple(members.placed(seating.chairs, places))
    return Job(
        name=layout.name,
        gang=_gang(seating.groups, wishes.topology),
        queue=wishes.queue,
        user=seating.chairs[0].pod.metadata.namespace,
        job_class=wishes.job_class,
        priority=wishes.priority,
        preemptible=wishes.preemptible,
        submitted=moment(layout.owner.creation_timestamp) if layout.owner else min(made),
        started=min(started) if started and placed else None,
        models=wishes.models,
        time_limit=wishes.time_limit,
        placements=placed,
        on_hold=bool(held_for := _held_for(layout, seating.chairs, places)),
        held_for=held_for,
        takes=not any(chair.pod.spec.preemption_policy == "Never" for chair in seating.chairs),
        family=layout.family,
    )


def _gang(groups: tuple[TaskGroup, ...], topology: TopologyAsk) -> Bundle:
    if len(groups) == 1:
        return one_group(groups[0], topology)
    return Bundle("", groups, len(groups), topology)


def _held_for(layout: Layout, chairs: Sequence[Chair], places: Places) -> str:
    """Why none of it may start now, in words; "" if some may."""
    if layout.suspended:
        kind, name = layout.owner_kind.partition(".")[0], layout.owner.name if layout.owner else ""
        return f"its {kind} {name} is suspended"
    there = [chair.pod for chair in chairs if not pods.is_over(chair.pod)]
    if all(members.is_away(pod, places) for pod in there):
        return "its pods are on nodes that are not looked after here"
    waiting = [pod for pod in there if not pods.is_bound(pod)]
    if not waiting or not all(map(pods.is_gated, waiting)):
        return ""
    gates = sorted({gate.name for pod in waiting for gate in pod.spec.scheduling_gates or ()})
    return text.line(f"scheduling gate{'s' if len(gates) > 1 else ''} {', '.join(gates)}")


def held_back(job: Job, why: str) -> Job:
    """The same job, not to be started now."""
    return job if job.on_hold else replace(job, on_hold=True, held_for=text.line(why))


def kept_off(job: Job, nodes: tuple[str, ...]) -> Job:
    """The same job, on any node but these."""
    elsewhere = (AffinityTerm((Expression("metadata.name", "NotIn", nodes),)),)
    groups = tuple(replace(group, terms=(*group.terms, elsewhere)) for group in job.task_groups())
    return replace(job, gang=_gang(groups, job.gang.topology))


def left_of(pod: PodObject, place: Placement, settings: ReadingSettings) -> Job:
    """A pod of ours that has its place, or is on its way there, and whose gang is refused by now: it keeps what it
    holds, not its devices alone."""
    request = pods.with_devices(pods.held_by(pod, settings), place.gpus, place.mig)
    return _standing(pod, request, replace(place, group=MAIN, task=0), settings)


def unread_of(pod: PodObject, gpus: tuple[int, ...], mig: tuple[str, ...]) -> Job:
    """A pod of ours that runs and cannot be read: the devices that it holds are nobody else's."""
    name = f"{pod.metadata.namespace}/pod/{pod.metadata.name}"
    request = Request(mig=tuple(sorted(Counter(mig).items()))) if mig else Request(gpus=len(gpus))
    place, made = place_of(pod, gpus, mig), pods.submitted(pod)
    group = TaskGroup(request=request)
    return Job(name, one_group(group), queue="", submitted=made, started=made, placements=(place,), foreign=True)


def foreign_of(pod: PodObject, gpus: tuple[int, ...], mig: tuple[str, ...], settings: ReadingSettings) -> Job:
    """A pod that is not ours and holds GPUs, or is a neighbour that matters: not ours to move. What else it takes is
    counted with its node. What one request cannot say, several parts of devices, is told as groups beside the first."""
    found = parted((gpus, mig), pods.devices_of(pod, settings))
    (first, seat), *rest = [(pods.with_devices(request, *held), held) for request, held in found]
    job = _standing(pod, first, place_of(pod, *seat), settings)
    beside = [(request, held) for request, held in rest if not request.cpu_only]
    return _with_beside(job, pod, beside) if beside else job


def _with_beside(job: Job, pod: PodObject, beside: Sequence[tuple[Request, Held]]) -> Job:
    """What it holds alike is one group. As a neighbour it counts once, by its first group."""
    alike: dict[Request, list[Held]] = {}
    for request, held in beside:
        alike.setdefault(request, []).append(held)
    groups, places = list(job.task_groups()), list(job.placements)
    for number, (request, seats) in enumerate(alike.items(), 1):
        name = f"{MAIN}-{number}"
        groups.append(TaskGroup(name, len(seats), len(seats), request))
        places += [replace(place_of(pod, *held), group=name, task=task) for task, held in enumerate(seats)]
    return replace(job, gang=_gang(tuple(groups), job.gang.topology), placements=tuple(places))


def _standing(pod: PodObject, request: Request, place: Placement, settings: ReadingSettings) -> Job:
    name = f"{pod.metadata.namespace}/pod/{pod.metadata.name}"
    known = company.known_as(pod.spec, pod.metadata, settings)
    group = readable.values(TaskGroup(request=request, labels=known.labels, apart=known.apart))
    made = pods.submitted(pod)
    return Job(name, one_group(group), queue="", submitted=made, started=made, placements=(place,), foreign=True)


def refused_job(name: str, gang: Sequence[PodObject], refusal: Refusal, queue: str) -> Job:
    """A gang that cannot be had here, as people are shown it: held, and why; in no queue it is nobody's here. The brain
    is never asked about it."""
    found = pods.task_of(gang[0]) if refusal.reason is not RefusalName.SET_APART else refusal
    group = replace(found if isinstance(found, TaskGroup) else TaskGroup(), tasks=len(gang), min=len(gang))
    made = min(map(pods.submitted, gang))
    user = gang[0].metadata.namespace
    job = Job(name, one_group(group), queue=queue, user=user, submitted=made, foreign=not queue)
    return held_back(job, str(refusal))


def left_together(name: str, left: Sequence[Job], refusal: Refusal) -> Job:
    """All that pods of a refused gang hold, as people are shown it: it runs, in nobody's queue."""
    kinds = {group: f"{MAIN}-{n}" if n else MAIN for n, group in enumerate(dict.fromkeys(map(_only_group, left)))}
    seats = [(job.placements[0], kinds[_only_group(job)]) for job in left]
    members = {kind: [place for place, other in seats if other == kind] for kind in kinds.values()}
    groups = (replace(g, name=k, tasks=len(members[k]), min=len(members[k])) for g, k in kinds.items())
    job = replace(
        left[0],
        name=name,
        gang=_gang(tuple(groups), ANYWHERE),
        user=name.partition("/")[0],
        submitted=min(job.submitted for job in left),
        started=min((job.started for job in left if job.started is not None), default=None),
        placements=tuple(replace(p, group=k, task=n) for k, there in members.items() for n, p in enumerate(there)),
    )
    return held_back(job, str(refusal))


def _only_group(job: Job) -> TaskGroup:
    return job.task_groups()[0]
