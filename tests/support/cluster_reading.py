"""Scenarios of a cluster: API objects in, the model's nodes and jobs, or a named refusal, out. No server.

A file under tests/scenarios/kubernetes holds `scenarios:`, a list of

    - name: a sentence saying what the user gets      # unique; the test's id
      settings: {fractions: true}                     # optional: fields of ReadingSettings; levels: [] is the default
      served: [JobSet.jobset.x-k8s.io]                # optional: kinds that the cluster has beside those of its objects
      owners: [jobset-v0.8.yaml]                      # optional: recorded objects of tests/support/kube/owners
      objects: [...]                                  # API objects by their kind; see below
      expect:
        nodes: {n0: {gpus: 8, ...}}                   # keys of a snapshot's node, compared one by one; null: left out
        jobs: {team/train: {tasks: 2, ...}}           # the same for jobs; jobs that are not named must not be there
        refused: {team/x: SharedCount}                # the gang, and why
        remarks: {team/x: [gpuyard.dev/class]}        # what was left aside
        parked: [team/x-0]                            # pods whose owner is not known yet
        back: {team/train: suspend Job.batch team/train}    # how a gang is taken back
        budgets: {team/pdb: {allowed: 1, ...}}        # keys of a snapshot's budget
        plan: {...}                                   # what a plan of the whole does; see expectations.py

Objects are written as the API has them, with these defaults: namespace `team`, a uid of kind and name, made at the
scenario's moment, pods of ours. `times: 3` stands for three, `{i}` being 0, 1, 2. Pods that are bound get the lowest
GPUs of their node, in order of their names. Whatever is read is written as a snapshot and read again: it must be the
same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import msgspec
import yaml

from gpuyard.brain import foresee
from gpuyard.files import parse_snapshot
from gpuyard.files.reading.fleet import ONLY_QUEUE
from gpuyard.files.writing import budget_document, job_document, node_document, snapshot_document
from gpuyard.kube import objects as shapes
from gpuyard.kube import owners as kinds
from gpuyard.kube import storage
from gpuyard.kube.definitions import gpu_nodes
from gpuyard.kube.objects import NodeObject, PodObject, Projection
from gpuyard.model.job import Job
from gpuyard.model.node import Budget, Node, Pool
from gpuyard.model.queue import Queue
from gpuyard.model.snapshot import Snapshot
from gpuyard.worlds.kubernetes import gangs, nodes, pods
from gpuyard.worlds.kubernetes.asking import company
from gpuyard.worlds.kubernetes.asking.levels import DEFAULT_LEVELS, Levels, labels_of
from gpuyard.worlds.kubernetes.asking.marks import ReadingSettings
from gpuyard.worlds.kubernetes.asking.volumes import Storage, limits_of
from gpuyard.worlds.kubernetes.budgets import budgets_of
from gpuyard.worlds.kubernetes.gangs import Gathered
from gpuyard.worlds.kubernetes.gathering.controllers import KUBEFLOW
from gpuyard.worlds.kubernetes.gathering.layouts import Owners, Parked
from gpuyard.worlds.kubernetes.gathering.members import place_of
from gpuyard.worlds.kubernetes.keeping.seats import NO_DEVICES, seats_on
from tests.support.expectations import Result, differences
from tests.support.scenario import NOW, ScenarioError

FOLDER = Path(__file__).resolve().parent.parent / "scenarios" / "kubernetes"
RECORDED = Path(__file__).resolve().parent / "kube" / "owners"
KEYS = {"name", "settings", "served", "owners", "objects", "expect"}
EXPECTED = {"nodes", "jobs", "refused", "remarks", "parked", "back", "budgets", "plan"}
SHAPES: dict[str, type[Projection]] = {
    "Pod": PodObject, "Node": NodeObject, "Job": kinds.JobObject, "JobSet": kinds.JobSetObject,
    "LeaderWorkerSet": kinds.LeaderWorkerSetObject, "RayCluster": kinds.RayClusterObject,
    "PodGroup": kinds.PodGroupObject, "StatefulSet": kinds.ReplicasObject, "TrainJob": kinds.TrainJobObject,
    "PodDisruptionBudget": shapes.BudgetObject, "PersistentVolumeClaim": storage.VolumeClaimObject,
    "PersistentVolume": storage.VolumeObject, "StorageClass": storage.StorageClassObject,
    "ResourceClaim": shapes.DeviceClaimObject, "CSINode": storage.CsiNodeObject,
    "GpuNode": gpu_nodes.GpuNodeObject,
    **{name.split(".")[0]: kinds.KubeflowObject for name in KUBEFLOW},
}  # fmt: skip
CLUSTER_WIDE = {"Node", "PersistentVolume", "StorageClass", "CSINode", "GpuNode"}

Document = dict[str, Any]


@dataclass(frozen=True)
class ClusterScenario:
    """One cluster, and what must be read from it."""

    name: str
    entry: Document
    file: str


def load_all() -> list[ClusterScenario]:
    """Every scenario, in the order of files and of their lines; names are unique."""
    found = [scenario for path in sorted(FOLDER.glob("*.yaml")) for scenario in _load(path)]
    names = [scenario.name for scenario in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ScenarioError(f"two scenarios are named {sorted(twice)}")
    return found


def _load(path: Path) -> Iterator[ClusterScenario]:
    for entry in yaml.safe_load(path.read_text(encoding="utf-8"))["scenarios"]:
        if unknown := set(entry) - KEYS | set(entry["expect"]) - EXPECTED:
            raise ScenarioError(f"{path.name}: {entry.get('name')} has unknown keys {sorted(unknown)}")
        yield ClusterScenario(entry["name"], entry, path.name)


# --- what is read ----------------------------------------------------------------------------------


@dataclass
class Read:
    """A cluster in the model's words."""

    nodes: dict[str, Node]
    gathered: dict[str, Gathered]
    parked: list[str]
    foreign: list[Job]
    levels: tuple[str, ...]
    queues: tuple[str, ...]
    budgets: tuple[Budget, ...]

    @property
    def jobs(self) -> dict[str, Job]:
        found = [each.job for each in self.gathered.values() if each.job is not None]
        return {job.name: job for job in (*found, *self.foreign)}

    def snapshot(self, now: float) -> Snapshot:
        """The whole as a moment."""
        pools = tuple(Pool(name) for name in sorted({node.pool for node in self.nodes.values()} - {""}))
        jobs = tuple(self.jobs[name] for name in sorted(self.jobs))
        queues = tuple(Queue(name) for name in self.queues) or (ONLY_QUEUE,)
        return Snapshot(
            now=now,
            topology=self.levels,
            pools=pools,
            nodes=tuple(self.nodes.values()),
            queues=queues,
            budgets=self.budgets,
            jobs=jobs,
        )


class Cluster:
    """The objects of a scenario, by kind."""

    def __init__(self, entry: Document) -> None:
        self.settings = _settings(entry.get("settings", {}))
        documents = [each for name in entry.get("owners", ()) for each in _recorded(name)]
        documents += [made for each in entry["objects"] for made in _times(each)]
        self.documents = [_with_defaults(document) for document in documents]
        self.objects = {
            (_kind(document), _key(document)): msgspec.convert(document, SHAPES[document["kind"]], strict=False)
            for document in self.documents
        }
        keys = [company.label_keys(pod.spec) for pod in self.of(PodObject)]
        self.settings = replace(self.settings, label_keys=frozenset().union(*keys))
        self.settings = replace(self.settings, storage=self._storage())
        served = {kind for kind, _ in self.objects} | set(entry.get("served", ())) | {"Job.batch"}
        self.owners = Owners(self.objects, frozenset(served))

    def _storage(self) -> Storage:
        claims = {found.metadata.key: found for found in self.of(storage.VolumeClaimObject)}
        in_use = {
            f"{pod.metadata.namespace}/{volume.persistent_volume_claim.claim_name}": pod.metadata.uid
            for pod in self.of(PodObject)
            for volume in pod.spec.volumes or ()
            if pod.spec.node_name and volume.persistent_volume_claim
        }
        return Storage(
            claims,
            {found.metadata.name: found for found in self.of(storage.VolumeObject)},
            {found.metadata.name: found for found in self.of(storage.StorageClassObject)},
            {found.metadata.key: found for found in self.of(shapes.DeviceClaimObject)},
            {found.metadata.name: found for found in self.of(storage.CsiNodeObject)},
            Counter(driver for found in self.of(storage.CsiNodeObject) for driver in limits_of(found)),
            in_use,
        )

    def of(self, shape: type[Any]) -> list[Any]:
        return [found for found in self.objects.values() if isinstance(found, shape)]

    def read(self) -> Read:
        mine: list[PodObject] = [pod for pod in self.of(PodObject) if pods.is_ours(pod, self.settings)]
        others: list[PodObject] = [pod for pod in self.of(PodObject) if not pods.is_ours(pod, self.settings)]
        known = {}
        for node in self.of(NodeObject):
            if nodes.is_managed(node):
                there = [pod for pod in others if pod.spec.node_name == node.metadata.name]
                load = pods.load_of(there, self._taken_by)
                told = self.objects.get((gpu_nodes.KIND, node.metadata.name))
                agent = told if isinstance(told, gpu_nodes.GpuNodeObject) else None
                plain = nodes.node_of(node, load, settings=self.settings)
                known[node.metadata.name] = nodes.with_agent(plain, agent, self.settings)
        borne = frozenset(level for node in known.values() for level, _ in node.domains)
        self.settings = replace(self.settings, borne=borne)
        seats = self._seats([*mine, *others], known)
        gathered, parked = self._gather(mine, seats, known)
        jobs = [each.job for each in gathered.values() if each.job is not None]
        meant = {expressions for job in jobs for expressions in company.meant_by(job.task_groups())}
        foreign = []
        for pod in others:
            held = seats.get(pod.metadata.uid, NO_DEVICES)
            minds = company.keeps_apart(pod.spec) or company.is_meant(pod.metadata, meant)
            if pod.spec.node_name in known and not pods.is_over(pod) and (held[0] or minds):
                foreign.append(gangs.foreign_of(pod, held[0], held[1], self.settings))
        levels = tuple(level for level, _ in self.settings.levels)
        budgets = budgets_of(self.of(shapes.BudgetObject), gathered.values())
        return Read(known, gathered, parked, foreign, levels, tuple(self.settings.queues), budgets)

    def _taken_by(self, pod: PodObject) -> dict[str, int]:
        return pods.taken_by(pod) | pods.attached_by(pod, self.settings.storage)

    def _seats(self, bound: list[PodObject], known: Mapping[str, Node]) -> dict[str, Any]:
        seats: dict[str, Any] = {}
        for node in known.values():
            there = [pod for pod in bound if pod.spec.node_name == node.name and not pods.is_over(pod)]
            seats |= seats_on(node, [(pod, pods.devices_of(pod, self.settings)) for pod in there])
        return seats

    def _gather(
        self, mine: list[PodObject], seats: Mapping[str, Any], known: Mapping[str, Node]
    ) -> tuple[dict[str, Gathered], list[str]]:
        members: dict[str, list[PodObject]] = {}
        parked = []
        for pod in mine:
            seat = gangs.seat_of(pod, self.owners)
            if isinstance(seat, Parked):
                parked.append(pod.metadata.key)
            else:
                members.setdefault(seat.gang, []).append(pod)
        places = {
            pod.metadata.uid: place_of(pod, *seats.get(pod.metadata.uid, ((), ())))
            for pod in mine
            if pod.spec.node_name in known
        }
        gathered = {}
        for name, gang in members.items():
            found = gangs.gather(gang, self.owners, self.settings, places)
            assert isinstance(found, Gathered)
            gathered[name] = found
        return gathered, parked


def _settings(given: Document) -> ReadingSettings:
    change: Document = {k: _levels(v) if k == "levels" else v for k, v in given.items()}
    if "queues" in change:
        change["queues"] = {name: frozenset(spaces or ()) for name, spaces in change["queues"].items()}
    return replace(ReadingSettings(levels=(("rack", ("rack",)),)), **change)


def _levels(given: list[str | list[str]]) -> Levels:
    """Each by its name, or with the labels that tell it; none given means those that are known anyhow."""
    named = [(each, labels_of(each)) if isinstance(each, str) else (each[0], tuple(each[1:])) for each in given]
    return tuple(named) or DEFAULT_LEVELS


def _recorded(name: str) -> list[Document]:
    return [each for each in yaml.safe_load_all((RECORDED / name).read_text(encoding="utf-8")) if each]


def _times(entry: Document) -> list[Document]:
    count = entry.get("times")
    rest = {key: value for key, value in entry.items() if key != "times"}
    if count is None:
        return [rest]
    return [json.loads(json.dumps(rest).replace("{i}", str(i))) for i in range(count)]


def _kind(document: Document) -> str:
    group = document["apiVersion"].rpartition("/")[0]
    return f"{document['kind']}.{group}" if group else document["kind"]


def _key(document: Document) -> str:
    metadata = document["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else metadata["name"]


def _with_defaults(document: Document) -> Document:
    kind = document["kind"]
    if kind not in SHAPES:
        raise ScenarioError(f"there is no kind {kind}")
    metadata = {
        "uid": f"{kind}-{document['metadata']['name']}",
        "creationTimestamp": NOW,
        **({} if kind in CLUSTER_WIDE else {"namespace": "team"}),
        **document["metadata"],
    }
    made = {
        "apiVersion": {"Pod": "v1", "Node": "v1", "Job": "batch/v1", "GpuNode": "gpuyard.dev/v1"}.get(kind, ""),
        **document,
        "metadata": metadata,
    }
    if kind == "Pod":
        made["spec"] = {"schedulerName": "gpuyard", **made.get("spec", {})}
        made["status"] = {"phase": "Running" if made["spec"].get("nodeName") else "Pending", **made.get("status", {})}
    if kind == "Node":
        status = made.get("status", {})
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        offered = {"pods": "110", **status.get("allocatable", status.get("capacity", {}))}
        made["status"] = {**ready, **status, "allocatable": offered}
    return made


# --- what is expected ------------------------------------------------------------------------------


def judged(scenario: ClusterScenario, now: float) -> list[str]:
    """Everything that is not as the scenario says."""
    read = Cluster(scenario.entry).read()
    expect = scenario.entry["expect"]
    snapshot = read.snapshot(now)
    problems = [*_documents("node", expect.get("nodes", {}), {n: node_document(v) for n, v in read.nodes.items()})]
    jobs = {name: job_document(job, now) for name, job in read.jobs.items()}
    problems += _documents("job", expect.get("jobs", {}), jobs)
    problems += [f"job {name} is there: {jobs[name]}" for name in sorted(jobs.keys() - expect.get("jobs", {}).keys())]
    problems += _same("refused", expect, {n: g.refusal.reason.value for n, g in read.gathered.items() if g.refusal})
    problems += _same(
        "remarks", expect, {n: [r.about for r in g.remarks] for n, g in read.gathered.items() if g.remarks}
    )
    problems += _same("parked", expect, read.parked, [])
    back = {n: f"{g.way.value} {g.owner_kind} {g.owner}".strip() for n, g in read.gathered.items()}
    problems += _documents("way back of", {"": expect.get("back", {})}, {"": back})
    budgets = {budget.name: budget_document(budget) for budget in read.budgets}
    problems += _documents("budget", expect.get("budgets", {}), budgets)
    again = parse_snapshot(json.dumps(snapshot_document(snapshot)), scenario.file, now)
    problems += [
        f"read from its own snapshot it is not the same: {one} / {two}" for one, two in _parted(again, snapshot)
    ]
    if "plan" in expect:
        problems += differences(expect["plan"], Result(snapshot, foresee.outlook(snapshot)))
    return problems


def _parted(one: Snapshot, two: Snapshot) -> Iterator[tuple[object, object]]:
    """What two moments do not have in common."""
    pairs: list[tuple[Any, Any]] = list(zip((*one.nodes, *one.jobs), (*two.nodes, *two.jobs), strict=True))
    for mine, other in pairs:
        yield from (
            (f"{each.name} {getattr(mine, each.name)}", getattr(other, each.name))
            for each in fields(mine)
            if getattr(mine, each.name) != getattr(other, each.name)
        )
    if replace(one, nodes=(), jobs=()) != replace(two, nodes=(), jobs=()):
        yield one, two


def _documents(what: str, wanted: Document, found: Mapping[str, Document]) -> Iterator[str]:
    for name, keys in wanted.items():
        if name not in found:
            yield f"there is no {what} {name}; there is {sorted(found)}"
            continue
        for key, value in (keys or {}).items():
            if found[name].get(key) != value:
                yield f"{what} {name}: {key} is {found[name].get(key)}, not {value}"


def _same(key: str, expect: Document, found: Any, nothing: Any = None) -> list[str]:
    wanted = expect.get(key, {} if nothing is None else nothing)
    return [] if wanted == found else [f"{key}: {found}, not {wanted}"]
