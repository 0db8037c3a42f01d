"""Whatever happens to a cluster, in whatever order it is heard of: in the end the brain knows what one who comes later
and hears all at once is told, and no GPU is anybody's twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
from hypothesis import strategies as st

from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.kube.definitions.gpu_nodes import GpuNodeObject
from gpuyard.kube.objects import BudgetObject, NodeObject, PodObject
from gpuyard.kube.owners import (
    JobObject,
    JobSetObject,
    KubeflowObject,
    LeaderWorkerSetObject,
    PodGroupObject,
    RayClusterObject,
)  # fmt: skip
from gpuyard.kube.storage import CsiNodeObject, StorageClassObject, VolumeClaimObject
from gpuyard.model.job import NAMESPACE, Job, Placement
from gpuyard.model.queue import Queue
from gpuyard.model.resources import WHOLE
from gpuyard.model.snapshot import Snapshot
from gpuyard.worlds.kubernetes import pods
from gpuyard.worlds.kubernetes.asking.marks import DEFAULTS, TASK
from gpuyard.worlds.kubernetes.cache import Cache
from gpuyard.worlds.kubernetes.keeping.objects import Objects
from gpuyard.worlds.kubernetes.observe import ClusterObserver
from gpuyard.worlds.kubernetes.queues import QueueObject
from tests.support.laws import law
from tests.support.pretend import StillClock

Document = dict[str, Any]
NODES, NAMES = ("n0", "n1"), ("a", "b", "c", "d")
JOB, JOBSET, VOLCANO = "Job.batch", "JobSet.jobset.x-k8s.io", "PodGroup.scheduling.volcano.sh"
LWS, RAY, TORCH = "LeaderWorkerSet.leaderworkerset.x-k8s.io", "RayCluster.ray.io", "PyTorchJob.kubeflow.org"
KINDS: dict[str, tuple[str, Any]] = {
    JOB: ("g-a", JobObject), JOBSET: ("s", JobSetObject), VOLCANO: ("pg", PodGroupObject),
    LWS: ("l", LeaderWorkerSetObject), RAY: ("r", RayClusterObject), TORCH: ("t", KubeflowObject),
}  # fmt: skip
"""What makes pods: each kind with the name of its only object. One is called as a pod is."""
SETTINGS = replace(DEFAULTS, label_keys=frozenset(("app", NAMESPACE)))
"""What labels somebody once asked for is asked of all from then on: here from the beginning."""
SHUNS = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}]}}  # fmt: skip


@law(st.integers(0, 2**32))
def test_who_hears_of_a_cluster_bit_by_bit_knows_what_is_there(seed: int):
    story = Story(Random(seed))
    for _ in range(story.dice.randint(5, 40)):
        story.go_on()
    story.land()
    story.look()
    later = story.one_who_comes_later()
    assert _differing(_known(story.observer), _known(later)) == []
    assert _differing(story.observer.nodes, later.nodes) == []
    assert _differing(story.observer.refused, later.refused) == []
    assert _differing(story.observer.free, later.free) == []
    assert story.observer.budgets.told == later.budgets.told
    heard = {name: _bare(row.described()) for name, row in story.fleet.jobs.items()}
    assert _differing(heard, _known(story.observer)) == []
    assert _twice(story.observer.jobs.values()) == []


def _differing(mine: Mapping[str, object], theirs: Mapping[str, object]) -> list[tuple[str, object, object]]:
    names = sorted({*mine, *theirs})
    return [(name, mine.get(name), theirs.get(name)) for name in names if mine.get(name) != theirs.get(name)]


def _known(observer: ClusterObserver) -> dict[str, Job]:
    return {name: _bare(job) for name, job in observer.jobs.items()}


def _bare(job: Job) -> Job:
    """Without what rests on the order of things: which of equal devices, since when it is stale."""
    places = sorted(
        (replace(place, gpus=()) for place in job.placements), key=lambda place: (place.uid, place.group, place.task)
    )
    return replace(job, placements=tuple(places), stale_since=None, stale_grace=None)


def _twice(jobs: Any) -> list[object]:
    held: Counter[tuple[str, int]] = Counter()
    for job in jobs:
        parts = {group.name: group.request.share or WHOLE for group in job.task_groups()}
        for place in job.placements:
            held.update({(place.node, gpu): parts[place.group] for gpu in place.gpus})
    return [device for device, amount in held.items() if amount > WHOLE]


class Story:
    """One cluster, and what happens to it."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.cache = Cache()
        self.observer = ClusterObserver(self.cache, SETTINGS, StillClock(0.0))
        self.observer.settled.site_queues = (Queue("default"),)
        self.fleet = Fleet(Snapshot(now=0.0, queues=self.observer.settled.site_queues))
        self.owners: dict[str, Objects[Any]] = {kind: self.cache.owner_kind(kind) for kind in KINDS}
        self.births = 0
        self.late: list[tuple[Objects[PodObject], PodObject]] = []
        """Pods that are gone, which is heard of later."""
        self.stored = False

    def go_on(self) -> None:
        """Something happens, and perhaps it is looked at."""
        often = (self.pod, self.pod, self.pod, self.other, self.node, self.owner, self.bind)
        self.dice.choice((*often, self.budget, self.queue, self.agent, self.drivers, self.store, self.land))()
        if self.dice.random() < 0.5:
            self.look()

    def land(self) -> None:
        """What has gone is heard of."""
        for objects, gone in self.late:
            if (there := objects.get(gone.metadata.key)) is not None and there.metadata.uid == gone.metadata.uid:
                objects.drop(gone.metadata.key)
        self.late.clear()

    def look(self) -> None:
        self.fleet.apply(self.observer.events())

    def one_who_comes_later(self) -> ClusterObserver:
        """Who knows the same objects, and was told of all of them at once."""
        cache = Cache()
        later = ClusterObserver(cache, SETTINGS, StillClock(0.0))
        later.settled.site_queues = self.observer.settled.site_queues
        later._meant = self.observer._meant  # who was once sought is told of for good
        owners = {kind: cache.owner_kind(kind) for kind in KINDS}
        for (kind, _), each in self.cache.owners.owners.objects.items():
            owners[kind].put(each)  # also those who are gone and whose pods still are
        for mine, theirs in (
            (self.observer.storage.claims, later.storage.claims),
            (self.observer.storage.classes, later.storage.classes),
            (self.observer.storage.nodes, later.storage.nodes),
            (self.cache.queues, cache.queues),
            (self.cache.gpu_nodes, cache.gpu_nodes),
            (self.cache.nodes, cache.nodes),
            (self.cache.pods, cache.pods),
            (self.cache.others, cache.others),
            (self.cache.budgets, cache.budgets),
        ):
            _copy(mine, theirs)
        for kind, objects in owners.items():
            for key in sorted(objects.objects.keys() - self.owners[kind].objects.keys()):
                objects.drop(key)
        for uid in self.cache.assumed:
            place = self.cache.assumed.get(uid)
            key = next(pod.metadata.key for pod in self.cache.pods.objects.values() if pod.metadata.uid == uid)
            assert place is not None
            cache.assumed.put(place, key)
            later.storage.assumed(cache.pods.objects[key])
            cache.look_at(cache.gang_of(key))
        if self.stored:
            later.storage.watch()
        list(later.events())
        return later

    # --- what happens --------------------------------------------------------------------------------

    def node(self) -> None:
        """It comes, changes, goes, or is another one of the same name."""
        dice, name = self.dice, self.dice.choice(NODES)
        if dice.random() < 0.2:
            self.cache.nodes.drop(name)
            return
        before = self.cache.nodes.get(name)
        again = before is not None and dice.random() < 0.7
        uid = before.metadata.uid if before is not None and again else self._born(name)
        gpus = dice.choice(("8", "8", "9") if again else ("8", "8", "9", "0"))  # who loses all keeps them for a while
        shared = "gpu.shared" in str(before.status) if before is not None and again else dice.random() < 0.2
        device = {"nvidia.com/gpu.shared": "24"} if shared else {"nvidia.com/gpu": gpus}
        amounts = {**(device if gpus != "0" else {}), "cpu": dice.choice("89"), "pods": "9"}
        labels = {"zone": dice.choice("ab"), **({"gpuyard.dev/pool": "p"} if dice.random() < 0.3 else {})}
        labels["nvidia.com/gpu.replicas"] = dice.choice("23" if shared else "1112")
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
        document = {"metadata": {"name": name, "uid": uid, "labels": labels}, "status": status}
        document["spec"] = {"unschedulable": dice.random() < 0.2}
        self.cache.nodes.put(msgspec.convert(document, NodeObject))

    def pod(self) -> None:
        self._some_pod(self.cache.pods, "gpuyard")

    def other(self) -> None:
        self._some_pod(self.cache.others, "default-scheduler")

    def _some_pod(self, objects: Objects[PodObject], scheduler: str) -> None:
        """It comes, gets its node, runs, is told to go, ends, goes; or another one of its name is heard of, be it of
        another scheduler: then it may be heard of before the end of the first is."""
        dice = self.dice
        key = f"team/g-{dice.choice(NAMES)}"
        before = objects.get(key)
        if before is None or dice.random() < 0.15:
            another = self.cache.others if objects is self.cache.pods else self.cache.pods
            if (gone := another.get(key)) is not None:
                self.late.append((another, gone))
            if dice.random() < 0.5:
                self.land()
            objects.put(self._new_pod(key, scheduler))
        elif dice.random() < 0.2:
            objects.drop(key)
        else:
            now = self._changed(_as_seen(before))
            over = objects is self.cache.others and pods.is_over(now)  # whose watch tells an end as if it were gone
            objects.drop(key) if over else objects.put(now)

    def _new_pod(self, key: str, scheduler: str) -> PodObject:
        dice = self.dice
        space, name = key.split("/")
        metadata: Document = {"name": name, "namespace": space, "uid": self._born(name)}
        metadata["labels"] = {"app": dice.choice("xy")}
        metadata["creationTimestamp"] = f"2026-01-01T00:{self.births % 60:02}:00Z"
        device = dice.choice(("nvidia.com/gpu", "nvidia.com/gpu", "nvidia.com/gpu", "nvidia.com/gpu.shared"))
        limits = {"cpu": "1", **({device: "1"} if dice.random() < 0.7 else {})}
        if scheduler != "gpuyard" and device in limits and dice.random() < 0.3:  # what one of ours is refused for
            limits |= {"nvidia.com/gpu.shared": dice.choice("23")}
        spec: Document = {"schedulerName": scheduler, "containers": [{"name": "a", "resources": {"limits": limits}}]}
        self._whose(metadata)
        if dice.random() < 0.1:
            spec["nodeSelector"] = {"nvidia.com/gpu.replicas": "2"}
        if dice.random() < 0.15:
            spec["affinity"] = SHUNS
        if dice.random() < 0.15:
            spec["schedulingGates"] = [{"name": "later"}]
        if dice.random() < 0.15:
            spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
        if dice.random() < 0.05:
            spec["tolerations"] = [{"key": "k", "operator": "Gt", "value": "1"}]
        if scheduler != "gpuyard" or dice.random() < 0.2:
            spec["nodeName"] = dice.choice(NODES)
        document = {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
        return msgspec.convert(document, PodObject)

    def _whose(self, metadata: Document) -> None:
        """By itself, of an owner of some kind, of a group by its mark, of a queue."""
        dice, labels, one = self.dice, metadata["labels"], self.dice.choice("01")
        match dice.choice(("", "", "job", "jobset", "group", "marked", "leader", "ray", "torch", "kueue", "queue")):
            case "job":
                owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "g-a", "uid": "j", "controller": True}
                metadata["ownerReferences"] = [owner]
                metadata["annotations"] = {"batch.kubernetes.io/job-completion-index": dice.choice("012")}
            case "jobset":
                prefix = "jobset.sigs.k8s.io/"
                labels |= {prefix + "jobset-name": "s", prefix + "replicatedjob-name": dice.choice("wv")}
            case "group":
                metadata["annotations"] = {"scheduling.volcano.sh/group-name": "pg"}
            case "marked":
                metadata["annotations"] = {"gpuyard.dev/gang": "m", "gpuyard.dev/gang-tasks": "2"}
            case "leader":
                prefix = "leaderworkerset.sigs.k8s.io/"
                labels |= {prefix + "name": "l", prefix + "group-index": "0", prefix + "worker-index": one}
            case "ray":
                kind = dice.choice(("head", "worker"))
                labels |= {"ray.io/cluster": "r", "ray.io/node-type": kind, "ray.io/group": "w"}
            case "torch":
                prefix, role = "training.kubeflow.org/", dice.choice(("master", "worker"))
                labels |= {prefix + "job-name": "t", prefix + "replica-type": role, prefix + "replica-index": one}
            case "kueue":
                labels["kueue.x-k8s.io/pod-group-name"] = "k"
                metadata["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": "2"}
            case "queue":
                labels["gpuyard.dev/queue"] = dice.choice(("red", "blue"))

    def _changed(self, pod: PodObject) -> PodObject:
        dice, status, metadata, spec = self.dice, pod.status, pod.metadata, pod.spec
        node = pod.node_name
        match dice.choice(("bound", "phase", "phase", "going", "gates", "labels", "same")):
            case "bound" if not spec.scheduling_gates:
                node = node or dice.choice(NODES)
            case "phase" if node and status.phase not in ("Succeeded", "Failed"):
                phase = dice.choice(("Running", "Running", "Succeeded", "Failed"))
                status = msgspec.structs.replace(status, phase=phase, start_time="2026-01-01T01:00:00Z")
            case "going":
                metadata = msgspec.structs.replace(metadata, deletion_timestamp="2026-01-01T02:00:00Z")
            case "gates":
                spec = msgspec.structs.replace(spec, scheduling_gates=None)
            case "labels":
                labels = {**(metadata.labels or {}), "app": dice.choice("xyz")}
                metadata = msgspec.structs.replace(metadata, labels=labels)
        return PodObject(metadata, msgspec.structs.replace(spec, node_name=node), status)

    def owner(self) -> None:
        """It comes, changes, goes."""
        dice, kind = self.dice, self.dice.choice(tuple(KINDS))
        name, shape = KINDS[kind]
        if dice.random() < 0.25:
            self.owners[kind].drop(f"team/{name}")
            return
        metadata = {"name": name, "namespace": "team", "uid": "j", "creationTimestamp": "2025-12-31T00:00:00Z"}
        self.owners[kind].put(msgspec.convert({"metadata": metadata, **self._owner(kind)}, shape))

    def _owner(self, kind: str) -> Document:
        dice, count = self.dice, self.dice.randint(1, 3)
        match kind.partition(".")[0]:
            case "Job":
                spec = {"parallelism": count, "completions": dice.choice((count, 5)), "completionMode": "Indexed"}
                spec["suspend"] = dice.random() < 0.2
                status = {"completedIndexes": dice.choice(("", "0")), "failedIndexes": dice.choice(("", "1"))}
                return {"spec": spec, "status": status}
            case "JobSet":
                specs = [{"parallelism": dice.randint(0, 2)} for _ in "wv"]
                jobs = [{"name": role, "template": {"spec": of}} for role, of in zip("wv", specs, strict=True)]
                return {"spec": {"replicatedJobs": jobs}}
            case "LeaderWorkerSet":
                policy = dice.choice(("", "LeaderReady"))
                return {"spec": {"startupPolicy": policy, "leaderWorkerTemplate": {"size": count}}}
            case "RayCluster":
                workers = {"groupName": "w", "replicas": count, "minReplicas": dice.randint(0, 2)}
                return {"spec": {"suspend": dice.random() < 0.2, "workerGroupSpecs": [workers]}}
            case "PyTorchJob":
                return {"spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": count}}}}
        return {"spec": {"minMember": count}}

    def budget(self) -> None:
        dice = self.dice
        name = dice.choice("pq")
        if dice.random() < 0.3:
            self.cache.budgets.drop(f"team/{name}")
            return
        metadata = {"name": name, "namespace": "team", "uid": name, "generation": dice.randint(1, 2)}
        selector = dice.choice((None, {}, {"matchLabels": {"app": "x"}}))
        status = {"disruptionsAllowed": dice.randint(0, 2), "observedGeneration": dice.randint(1, 2)}
        document = {"metadata": metadata, "spec": {"selector": selector}, "status": status}
        self.cache.budgets.put(msgspec.convert(document, BudgetObject))

    def bind(self) -> None:
        """We send a pod to a node; it is there, or the binding failed."""
        dice = self.dice
        if len(self.cache.assumed) and dice.random() < 0.6:
            uid = dice.choice(sorted(self.cache.assumed))
            place = self.cache.assumed.get(uid)
            pod = next(pod for pod in self.cache.pods.objects.values() if pod.metadata.uid == uid)
            if dice.random() < 0.3 or place is None or pod.node_name:
                self.cache.assumed.end(uid)
                self.cache.devices.pop(uid, None)
                self.cache.look_at(self.cache.gang_of(pod.metadata.key))
                self.observer.storage.assumed(pod)
                return
            there = msgspec.structs.replace(pod.spec, node_name=place.node)
            notes = {**(pod.metadata.annotations or {}), TASK: str(place.task)}
            self.cache.pods.put(PodObject(msgspec.structs.replace(pod.metadata, annotations=notes), there, pod.status))
            return
        self.look()
        for name, free in sorted(self.observer.free.items()):
            job = self.observer.jobs.get(name)
            groups = job.task_groups() if job is not None and not (job.placements or job.on_hold) else ()
            if not groups or len(free) < sum(group.min for group in groups) or any(g.request.share for g in groups):
                continue
            for (group, task), uid in sorted(free.items()):
                self._send(group, task, uid, next(g.request.gpus for g in groups if g.name == group))
            return

    def _send(self, group: str, task: int, uid: str, gpus: int) -> None:
        pod = next(pod for pod in self.cache.pods.objects.values() if pod.metadata.uid == uid)
        for node in self.observer.nodes.values():
            told = [place for job in self.observer.jobs.values() for place in job.placements]
            coming = [place for each in self.cache.assumed if (place := self.cache.assumed.get(each)) is not None]
            held = {gpu for place in (*told, *coming) if place.node == node.name for gpu in place.gpus}
            idle = [gpu.index for gpu in node.gpus if gpu.index not in held]
            if len(idle) >= gpus:
                place = Placement(node.name, tuple(idle[:gpus]), group, task, assigned=True, uid=uid)
                self.cache.assumed.put(place, pod.metadata.key)
                self.cache.devices[uid] = (place.gpus, ())
                self.cache.look_at(self.cache.gang_of(pod.metadata.key))
                self.observer.storage.assumed(pod)
                return

    def queue(self) -> None:
        """The cluster has queues of its own, for whom, or has none any more."""
        dice, name = self.dice, self.dice.choice(("red", "blue", "default"))
        if dice.random() < 0.4:
            self.cache.queues.drop(name)
            return
        document = {"metadata": {"name": name}, "spec": {"namespaces": dice.choice((None, ["team"], ["else"]))}}
        self.cache.queues.put(msgspec.convert(document, QueueObject))

    def agent(self) -> None:
        """Who looks after a node's GPUs tells of them, or is gone."""
        dice, name = self.dice, self.dice.choice(NODES)
        if dice.random() < 0.4:
            self.cache.gpu_nodes.drop(name)
            return
        uuids = [f"{name}-{index}-{dice.choice('ab')}" for index in range(dice.choice((8, 9)))]
        gpus = [{"index": index, "uuid": uuid} for index, uuid in enumerate(uuids)]
        health = {"gpus": [{"uuid": uuid, "health": "healthy"} for uuid in uuids]}
        document = {"metadata": {"name": name}, "spec": {"gpus": gpus, "clique": dice.choice("cd")}, "status": health}
        self.cache.gpu_nodes.put(msgspec.convert(document, GpuNodeObject))

    def drivers(self) -> None:
        """How many volumes a node attaches."""
        dice, name = self.dice, self.dice.choice(NODES)
        driver = {"name": "x", "allocatable": dice.choice((None, {"count": 1}))}
        document = {"metadata": {"name": name}, "spec": {"drivers": [driver]}}
        self.observer.storage.nodes.put(msgspec.convert(document, CsiNodeObject))

    def store(self) -> None:
        """Claims are looked at from now on; one comes, is bound, goes."""
        dice, storage = self.dice, self.observer.storage
        if not self.stored:
            self.stored = True
            storage.watch()
            return
        if dice.random() < 0.2:
            made = {"metadata": {"name": "k"}, "provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer"}
            storage.classes.put(msgspec.convert(made, StorageClassObject))
        elif dice.random() < 0.2:
            storage.claims.drop("team/c")
        else:
            metadata = {"name": "c", "namespace": "team", "uid": "c"}
            document = {"metadata": metadata, "spec": {"storageClassName": "k"}, "status": {"phase": "Pending"}}
            storage.claims.put(msgspec.convert(document, VolumeClaimObject))

    def _born(self, name: str) -> str:
        self.births += 1
        return f"{name}-{self.births}"


def _copy(mine: Objects[Any], theirs: Objects[Any]) -> None:
    for each in mine.objects.values():
        theirs.put(_as_seen(each) if isinstance(each, PodObject) else each)


def _as_seen(pod: PodObject) -> PodObject:
    """As the API server has it: its node in its spec."""
    spec = msgspec.structs.replace(pod.spec, node_name=pod.node_name)
    return PodObject(pod.metadata, spec, msgspec.structs.replace(pod.status, start_time=pod.start_time or None))
