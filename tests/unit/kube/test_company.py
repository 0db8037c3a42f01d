"""Labels by which pods are known to their neighbours: heard of when the first selector mentions them."""

from __future__ import annotations

from typing import Any

import msgspec

from gpuyard.kube.objects import PodObject
from gpuyard.model.events import JobSeen
from gpuyard.worlds.kubernetes.asking.company import label_keys
from gpuyard.worlds.kubernetes.asking.marks import ReadingSettings
from gpuyard.worlds.kubernetes.cache import Cache
from gpuyard.worlds.kubernetes.observe import ClusterObserver


class StandingClock:
    def now(self) -> float:
        return 0.0

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody waits here")


def pod(name: str, labels: dict[str, str], **spec: Any) -> PodObject:
    document = {
        "metadata": {"name": name, "namespace": "team", "uid": name, "labels": labels},
        "spec": {"schedulerName": "gpuyard", "containers": [{"name": "a"}], **spec},
        "status": {"phase": "Pending"},
    }
    return msgspec.convert(document, PodObject)


SEEKS = {
    "podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "cache"}}}
        ]
    }
}


def test_a_pod_without_terms_mentions_no_label():
    assert label_keys(pod("p", {"app": "x"}).spec) == frozenset()


def test_pods_are_told_of_anew_with_labels_that_somebody_seeks():
    cache = Cache()
    observer = ClusterObserver(cache, ReadingSettings(), StandingClock())
    cache.pods.put(pod("cache", {"app": "cache", "other": "1"}))
    first = {event.job.name: event.job for event in observer.events() if isinstance(event, JobSeen)}
    assert first["team/cache"].task_groups()[0].labels == ()
    cache.pods.put(pod("web", {"app": "web"}, affinity=SEEKS))
    then = {event.job.name: event.job for event in observer.events() if isinstance(event, JobSeen)}
    known = dict(then["team/cache"].task_groups()[0].labels)
    assert known == {"app": "cache", "kubernetes.io/metadata.namespace": "team"}
    assert then["team/web"].task_groups()[0].near
