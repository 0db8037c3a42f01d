"""What the members of a gang say about the whole: queue, class, priority, models, limits, topology.

A mark that cannot be read is a remark and the default holds; a queue that does not exist or is not theirs is a refusal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuyard.files.units import Wrong, read_duration
from gpuyard.kube.objects import PodObject
from gpuyard.model.job import JobClass
from gpuyard.model.outside import text
from gpuyard.model.topology import ANYWHERE, TopologyAsk
from gpuyard.worlds.kubernetes.asking import company, unmet
from gpuyard.worlds.kubernetes.asking.marks import (
    CLASS,
    KUEUE_PREFERRED,
    KUEUE_REQUIRED,
    MODELS,
    PREEMPTIBLE,
    PREFERRED_LEVEL,
    QUEUE,
    REQUIRED_LEVEL,
    TIME_LIMIT,
    ReadingSettings,
)  # fmt: skip
from gpuyard.worlds.kubernetes.asking.refusals import Refusal, RefusalName, Remark
from gpuyard.worlds.kubernetes.gathering.groups import known_levels
from gpuyard.worlds.kubernetes.gathering.layouts import Layout, number

_KAI_QUEUE, _KAI_PREEMPTIBLE = "kai.scheduler/queue", "kai.scheduler/preemptibility"
_KAI_REQUIRED, _KAI_PREFERRED = (
    "kai.scheduler/topology-required-placement",
    "kai.scheduler/topology-preferred-placement",
)
_KUEUE_SECONDS = "kueue.x-k8s.io/max-exec-time-seconds"
_VOLCANO_PREEMPTABLE = "volcano.sh/preemptable"
SHOWN = 253
"""So much of a name that is unknown is told again: no name that could be known is longer, but an annotation may be."""
_TRUTH = {"true": True, "false": False}
_KAI_TRUTH = {"preemptible": "true", "non-preemptible": "false"}


@dataclass(frozen=True, slots=True)
class GangWishes:
    """All of them, as the model's job has them."""

    queue: str
    job_class: JobClass
    priority: int | None
    preemptible: bool | None
    models: tuple[str, ...]
    time_limit: float | None
    topology: TopologyAsk
    remarks: tuple[Remark, ...]


class _Marks:
    """The marks of a gang: of its pods, else of its owner; and what was wrong with them."""

    def __init__(self, layout: Layout, pods: Sequence[PodObject]) -> None:
        self._bearers = [*(pod.metadata for pod in pods), *([layout.owner] if layout.owner else [])]
        borne = (each for bearer in self._bearers for each in (bearer.annotations, bearer.labels) if each)
        self._borne = frozenset().union(*borne)
        """All keys that any of them bears: most marks that are asked about are on nobody."""
        self.remarks: list[Remark] = []

    def get(self, *keys: str) -> str:
        """The first there is."""
        there = [key for key in keys if key in self._borne]
        for bearer in self._bearers if there else ():
            for key in there:
                told = bearer.annotation(key) or bearer.label(key)
                if told:
                    return text.plain(told)
        return ""

    def wrong(self, key: str, value: str, wanted: str) -> None:
        """Left aside, with a word."""
        self.remarks.append(Remark(key, f"{key} is {value[:40]!r} and not {wanted}; it is left aside"))


def wishes_of(layout: Layout, pods: Sequence[PodObject], settings: ReadingSettings) -> GangWishes | Refusal:
    """What the gang says of itself."""
    marks = _Marks(layout, pods)
    queue = _queue(marks, layout, pods[0].metadata.namespace, settings)
    topology = _topology(marks, layout, settings)
    for found in (_unmet(marks), queue, topology):
        if isinstance(found, Refusal):
            return found
    if any(company.is_soft(pod.spec) for pod in pods):
        marks.remarks.append(Remark("affinity", "neighbours that a pod only prefers are not looked for"))
    return GangWishes(
        queue=str(queue),
        job_class=_class(marks),
        priority=_priority(pods),
        preemptible=_preemptible(marks, layout),
        models=_models(marks),
        time_limit=_time_limit(marks, layout, pods),
        topology=topology if isinstance(topology, TopologyAsk) else ANYWHERE,
        remarks=tuple(marks.remarks),
    )


def _unmet(marks: _Marks) -> Refusal | None:
    """What another scheduler would have kept to and we cannot; what it would only have tried is remarked."""
    for key, why in unmet.CONDITIONS.items():
        if marks.get(key):
            return Refusal(RefusalName.NO_COUNTERPART, f"it asks by {key} for what is not had here: {why}")
    for key, instead in unmet.WISHES.items():
        if marks.get(key):
            marks.remarks.append(Remark(key, f"{key} is left aside; {instead}"))
    return None


def _queue(marks: _Marks, layout: Layout, namespace: str, settings: ReadingSettings) -> str | Refusal:
    """By its mark, its group, its namespace. Rights are a namespace's, for pods are made by controllers."""
    asked = marks.get(QUEUE) or layout.queue or marks.get(_KAI_QUEUE)
    name = asked or settings.namespace_queues.get(namespace, settings.default_queue)
    if not settings.queues and not settings.has_queues:
        if not asked or asked == settings.default_queue:
            return settings.default_queue
        return Refusal(RefusalName.QUEUE_UNKNOWN, f"it names the queue {name[:SHOWN]}, and this cluster has no queues")
    if name not in settings.queues:
        there = ", ".join(sorted(settings.queues)[:8]) or "none that stands"
        told = f"it names the queue {name[:SHOWN]}, which" if asked else f"it names no queue, and the queue {name}"
        return Refusal(RefusalName.QUEUE_UNKNOWN, f"{told} does not exist; there is {there}")
    allowed = settings.queues[name]
    if allowed and namespace not in allowed:
        return Refusal(RefusalName.QUEUE_FORBIDDEN, f"the queue {name} is not for the namespace {namespace}")
    return name


def _class(marks: _Marks) -> JobClass:
    told = marks.get(CLASS)
    known = {each.value: each for each in JobClass}
    if told and told not in known:
        marks.wrong(CLASS, told, f"one of {', '.join(known)}")
    return known.get(told, JobClass.TRAINING)


def _models(marks: _Marks) -> tuple[str, ...]:
    named = (name.strip() for name in marks.get(MODELS).split(","))
    return tuple(dict.fromkeys(text.named(name) for name in named if name))


def _priority(pods: Sequence[PodObject]) -> int | None:
    """Of a class that was named; the API's 0 is no wish. The lowest, where members differ."""
    named = [pod.spec.priority for pod in pods if pod.spec.priority_class_name and pod.spec.priority is not None]
    return min(named, default=None)


def _preemptible(marks: _Marks, layout: Layout) -> bool | None:
    """As it says; else not, if it would not come back by itself."""
    told = marks.get(PREEMPTIBLE, _VOLCANO_PREEMPTABLE) or _KAI_TRUTH.get(marks.get(_KAI_PREEMPTIBLE), "")
    if told and told not in _TRUTH:
        marks.wrong(PREEMPTIBLE, told, "true or false")
    if told in _TRUTH:
        return _TRUTH[told]
    if layout.preemptible is not None:
        return layout.preemptible
    return False if layout.hindrance else None


def _time_limit(marks: _Marks, layout: Layout, pods: Sequence[PodObject]) -> float | None:
    limits = [float(pod.spec.active_deadline_seconds) for pod in pods if pod.spec.active_deadline_seconds]
    if layout.deadline:
        limits.append(float(layout.deadline))
    seconds = marks.get(_KUEUE_SECONDS)
    told = marks.get(TIME_LIMIT)
    if number(seconds):
        limits.append(float(seconds))
    if told:
        try:
            limits.append(read_duration(told))
        except Wrong:
            marks.wrong(TIME_LIMIT, told, "a duration such as 90s, 10m or 2h")
    return min((limit for limit in limits if limit > 0), default=None)


def _topology(marks: _Marks, layout: Layout, settings: ReadingSettings) -> TopologyAsk | Refusal:
    asked = known_levels(
        marks.get(REQUIRED_LEVEL, KUEUE_REQUIRED, _KAI_REQUIRED),
        marks.get(PREFERRED_LEVEL, KUEUE_PREFERRED, _KAI_PREFERRED),
        settings,
    )
    if isinstance(asked, Refusal):
        return asked
    return TopologyAsk(asked.required or layout.topology.required, asked.preferred or layout.topology.preferred)
