"""What reading one object rests on beside it: queues, levels, labels that are asked for, how GPUs are divided, volumes.

Asked and told by `observe`. Whoever reads otherwise once one of these is another is put down to be looked at anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gpuyard.kube.objects import PodObject
from gpuyard.model.node import Node
from gpuyard.model.queue import Queue
from gpuyard.worlds.kubernetes import queues
from gpuyard.worlds.kubernetes.asking import company
from gpuyard.worlds.kubernetes.asking.marks import ReadingSettings
from gpuyard.worlds.kubernetes.asking.volumes import Storage
from gpuyard.worlds.kubernetes.cache import Cache
from gpuyard.worlds.kubernetes.queues import NO_QUEUES, ClusterQueues


class Settled:
    """The settings by which a cluster is read, as they are by now."""

    def __init__(self, cache: Cache, site: ReadingSettings) -> None:
        self._cache = cache
        self._site = site
        self.settings = site
        self.tree: ClusterQueues = NO_QUEUES
        """Queues of the cluster; while it has none, those of the site hold."""
        self.site_queues: tuple[Queue, ...] = ()
        self._replicas: dict[str, int] = {}
        """Into how many parts devices are divided, by node, where they are."""

    @property
    def queues(self) -> tuple[Queue, ...]:
        """The cluster's own; where it has none, those of the site."""
        return self.tree.queues if self._cache.queues.objects else self.site_queues

    def read_queues(self) -> bool:
        """Who may use which; whether anything of it is other than it was. Then every gang is looked at anew."""
        self._cache.dirty.queues = False
        tree = queues.tree_of(self._cache.queues.objects.values())
        site = self._site if not self._cache.queues.objects else None
        if tree == self.tree and self.settings.has_queues == (site is None):
            return False
        self.tree = tree
        named = site.queues if site else tree.namespaces
        homes = site.namespace_queues if site else tree.by_namespace
        self.settings = replace(self.settings, queues=named, namespace_queues=homes, has_queues=site is None)
        self._cache.look_at_every_gang()
        return True

    def know_storage(self, storage: Storage) -> None:
        """Claims, volumes and classes as far as they were seen by now."""
        self.settings = replace(self.settings, storage=storage)

    def hear_of_levels(self, node: Node) -> None:
        """A level that no node bore before may be what a gang's tier means."""
        found = frozenset(level for level, _ in node.domains)
        if not found <= self.settings.borne:
            self.settings = replace(self.settings, borne=self.settings.borne | found)
            self._cache.look_at_every_gang()

    def hear_of_replicas(self, node: str, count: int | None) -> bool:
        """A part of a device is the same wherever it is had: as large as the largest on any node. Whether it is another
        now. A node that offers no devices (None) may have lost them for a moment: its word is kept."""
        if count:
            self._replicas[node] = count
        elif count is not None:
            self._replicas.pop(node, None)
        fewest = min(self._replicas.values(), default=self._site.replicas)
        if fewest == self.settings.replicas:
            return False
        self.settings = replace(self.settings, replicas=fewest)
        self._cache.dirty.nodes.update(self._replicas)
        self._cache.look_at_every_gang()
        self._cache.dirty.loads.update(self._cache.strangers)
        return True

    def hear_of_labels(self, seen: Iterable[PodObject]) -> bool:
        """Labels that a selector mentions tell pods apart from now on. Whether any is new: every gang is looked at anew
        then."""
        keys = frozenset(key for pod in seen for key in company.label_keys(pod.spec))
        if keys <= self.settings.label_keys:
            return False
        self.settings = replace(self.settings, label_keys=self.settings.label_keys | keys)
        self._cache.look_at_every_gang()
        return True
