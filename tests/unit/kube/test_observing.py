"""What the brain is told of a cluster, change by change, and that it is what one who comes later is told at once."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gpuyard.brain.foresee import Foresight
from gpuyard.files import parse_snapshot
from gpuyard.files.reading.fleet import ONLY_QUEUE
from gpuyard.files.writing import snapshot_document
from gpuyard.kube.definitions.gpu_nodes import GpuNodeObject
from gpuyard.kube.objects import BudgetObject, NodeObject, PodObject
from gpuyard.kube.owners import JobObject, PodGroupObject
from gpuyard.kube.storage import VolumeClaimObject, VolumeObject
from gpuyard.model.events import BudgetsChanged, Event, JobGone, JobSeen, NodeSeen
from gpuyard.model.job import Job, Placement
from gpuyard.model.reasons import Code
from gpuyard.model.resources import WHOLE
from gpuyard.model.snapshot import Snapshot
from gpuyard.worlds.kubernetes import nodes, pods
from gpuyard.worlds.kubernetes.asking.marks import DEFAULTS, QUEUE
from gpuyard.worlds.kubernetes.cache import Cache
from gpuyard.worlds.kubernetes.gathering.groups import VOLCANO
from gpuyard.worlds.kubernetes.observe import ClusterObserver
from gpuyard.worlds.kubernetes.observing import refused
from gpuyard.worlds.kubernetes.queues import QueueObject
from tests.support.kube.fake_kubelet import FakeNode, condition, pod
from tests.support.pretend import StillClock

GPU = {"name": "a", "resources": {"limits": {"nvidia.com/gpu": "1"}}}


class Seen:
    """A cache, filled by hand, and what is told of it."""

    def __init__(self) -> None:
        self.cache = Cache()
        self.observer = ClusterObserver(self.cache, DEFAULTS, StillClock(0.0))

    def node(
        self, name: str = "n0", gpus: int = 8, labels: dict[str, str] | None = None, offered: int | None = None
    ) -> None:
        amounts = FakeNode(name, gpus=gpus).amounts
        allocatable = amounts | ({} if offered is None else {"nvidia.com/gpu": str(offered)})
        status = {"capacity": amounts, "allocatable": allocatable, "conditions": [condition()]}
        metadata = {"name": name, "uid": name, "labels": labels or {}}
        self.cache.nodes.put(msgspec.convert({"metadata": metadata, "status": status}, NodeObject))

    def pod(
        self, name: str, node: str = "n0", labels: dict[str, str] | None = None,
        owners: list[Any] | None = None, notes: dict[str, str] | None = None, namespace: str = "default", uid: str = "",
        **spec: Any,
    ) -> None:  # fmt: skip
        document = pod(name, 1, labels=labels or {}, **({"nodeName": node} if node else {}), **spec)
        document["metadata"] |= {"namespace": namespace, "uid": uid or name, "ownerReferences": owners or []}
        document["metadata"]["annotations"] = notes or {}
        document["status"] = {"phase": "Running" if node else "Pending"}
        self.cache.pods.put(msgspec.convert(document, PodObject))

    def stranger(self, name: str, node: str = "n0", uid: str = "", namespace: str = "kube-system", **spec: Any) -> None:
        document = pod(name, 0, scheduler="default-scheduler", nodeName=node, **spec)
        document["metadata"] |= {"namespace": namespace, "uid": uid or name}
        self.cache.others.put(msgspec.convert(document | {"status": {"phase": "Running"}}, PodObject))

    def budget(self, name: str, allowed: int, labels: dict[str, str], generation: int = 1, observed: int = 1) -> None:
        document = {
            "metadata": {"name": name, "namespace": "default", "uid": name, "generation": generation},
            "spec": {"selector": {"matchLabels": labels}},
            "status": {"disruptionsAllowed": allowed, "observedGeneration": observed},
        }
        self.cache.budgets.put(msgspec.convert(document, BudgetObject))

    def told(self) -> list[Event]:
        return list(self.observer.events())

    def allowed(self) -> dict[str, tuple[int | None, tuple[str, ...]]]:
        """What was told of budgets, which is what one who comes later is told too."""
        self.told()
        later = ClusterObserver(self.cache, DEFAULTS, StillClock(0.0))
        later.forget()
        list(later.events())
        assert later.budgets.told == self.observer.budgets.told
        return {budget.name: (budget.allowed, budget.jobs) for budget in self.observer.budgets.told}


@pytest.fixture
def seen() -> Seen:
    seen = Seen()
    seen.node()
    return seen


def test_a_budget_is_told_after_the_jobs_that_it_names(seen: Seen):
    seen.budget("pdb", 1, {"app": "web"})
    seen.pod("web-0", labels={"app": "web"})
    kinds = [type(event) for event in seen.told()]
    assert kinds.index(BudgetsChanged) > kinds.index(JobSeen)
    assert seen.allowed() == {"default/pdb": (1, ("default/web-0",))}


def test_a_budget_follows_its_controller_and_its_pods(seen: Seen):
    seen.budget("pdb", 1, {"app": "web"})
    seen.pod("web-0", labels={"app": "web"})
    seen.pod("web-1", labels={"app": "web"})
    seen.pod("other", labels={"app": "db"})
    assert seen.allowed() == {"default/pdb": (1, ("default/web-0", "default/web-1"))}
    seen.budget("pdb", 0, {"app": "web"})
    assert seen.told() == [BudgetsChanged(seen.observer.budgets.told)]
    assert seen.allowed() == {"default/pdb": (0, ("default/web-0", "default/web-1"))}
    seen.cache.pods.drop("default/web-0")
    assert [type(event) for event in seen.told()] == [JobGone, BudgetsChanged]
    assert seen.allowed() == {"default/pdb": (0, ("default/web-1",))}
    seen.budget("pdb", 3, {"app": "db"}, generation=2, observed=2)
    assert seen.allowed() == {"default/pdb": (3, ("default/other",))}
    seen.cache.budgets.drop("default/pdb")
    assert seen.allowed() == {}


def test_the_first_budget_of_a_namespace_covers_pods_that_were_seen_before_it(seen: Seen):
    for index in range(3):
        seen.pod(f"web-{index}", labels={"app": "web"})
    seen.told()
    assert seen.observer.gathered == {}  # nothing of pods like these is kept beside their jobs
    seen.budget("pdb", 2, {"app": "web"})
    assert seen.allowed() == {"default/pdb": (2, tuple(f"default/web-{index}" for index in range(3)))}


def test_how_a_pod_like_others_is_taken_back_is_told_when_it_is_asked_for(seen: Seen):
    seen.pod("web-0")
    seen.told()
    found = seen.observer.gathered_of("default/web-0")
    assert found is not None
    assert [chair.pod.metadata.name for chair in found.chairs] == ["web-0"]
    assert found.hindrance == seen.observer.hindrance("default/web-0") == "nobody would make the pod web-0 anew"
    assert seen.observer.gathered_of("default/nobody") is None


def test_a_pod_of_unknown_devices_gets_none_that_somebody_is_on_its_way_to(seen: Seen):
    seen.pod("ours", node="")
    seen.told()
    seen.cache.assumed.put(Placement("n0", (0,), uid="ours"), "default/ours")
    seen.cache.devices["ours"] = ((0,), ())
    seen.pod("other")
    seen.told()
    assert seen.cache.devices["other"] == ((1,), ())


OF_A_JOB = [{"apiVersion": "batch/v1", "kind": "Job", "name": "gone", "uid": "gone", "controller": True}]


def test_a_bound_pod_whose_owner_is_gone_holds_its_gpus_for_one_who_begins_then(seen: Seen):
    seen.cache.owner_kind("Job.batch")
    seen.pod("left", owners=OF_A_JOB)
    seen.told()
    assert [place.gpus for place in seen.observer.jobs["default/left"].placements] == [(0,)]
    assert seen.observer.refused == {}


def test_a_pod_that_waits_for_what_it_belongs_to_is_told_so_until_that_is_there(seen: Seen):
    groups = seen.cache.owner_kind(VOLCANO)
    seen.pod("early", node="", notes={"scheduling.volcano.sh/group-name": "late"})
    assert not any(isinstance(event, JobSeen) for event in seen.told())
    told = {name: str(refusal) for name, refusal in seen.observer.refused.items()}
    assert told == {"default/early": "OwnerUnknown: it belongs to the PodGroup late, which is not there"}
    late = {"metadata": {"name": "late", "namespace": "default", "uid": "late"}, "spec": {"minMember": 1}}
    groups.put(msgspec.convert(late, PodGroupObject))
    assert [event.job.name for event in seen.told() if isinstance(event, JobSeen)] == ["default/podgroup/late"]
    assert seen.observer.refused == {}


def test_a_budget_whose_controller_has_not_seen_its_change_allows_nothing(seen: Seen):
    seen.pod("web-0", labels={"app": "web"})
    seen.budget("pdb", 5, {"app": "web"}, generation=2, observed=1)
    assert seen.allowed() == {"default/pdb": (0, ("default/web-0",))}


def test_two_budgets_that_come_to_meet_on_a_pod_allow_nothing_until_one_of_them_goes(seen: Seen):
    seen.pod("web-0", labels={"app": "web", "tier": "front"})
    seen.budget("one", 1, {"app": "web"})
    assert seen.allowed()["default/one"][0] == 1
    seen.budget("two", 1, {"tier": "front"})
    assert {name: allowed for name, (allowed, _) in seen.allowed().items()} == {"default/one": 0, "default/two": 0}
    seen.cache.budgets.drop("default/two")
    assert seen.allowed()["default/one"][0] == 1


def test_a_budget_that_covers_nobody_of_ours_is_not_told(seen: Seen):
    seen.pod("web-0", labels={"app": "web"})
    seen.told()
    seen.budget("theirs", 1, {"app": "elsewhere"})
    assert seen.told() == []


def test_what_others_take_of_a_node_is_counted_with_their_slots_and_ports(seen: Seen):
    seen.told()
    ports = [{"containerPort": 80, "hostPort": 80}]
    seen.stranger("proxy", containers=[{"name": "main", "ports": ports, "resources": {"requests": {"cpu": "2"}}}])
    seen.stranger("dns")
    seen.told()
    taken = seen.observer.nodes["n0"].taken
    assert (taken.cpu, dict(taken.extras)) == (3000, {"pods": 2, "port/TCP/80": 1})


def test_what_a_pod_still_uses_while_it_shrinks_as_a_whole_is_taken_until_it_is_told_otherwise(seen: Seen):
    def shrinking(still: str) -> None:
        for scheduler, kept in (("gpuyard", seen.cache.pods), ("default-scheduler", seen.cache.others)):
            spec = {"nodeName": "n0", "resources": {"requests": {"cpu": "1"}}}
            document = pod(scheduler, 0, scheduler=scheduler, **spec)
            document["metadata"] |= {"namespace": "default", "uid": scheduler}
            status = {"phase": "Running", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": still}}}
            kept.put(msgspec.convert(document | {"status": status}, PodObject))

    shrinking("4")
    seen.told()
    assert seen.observer.nodes["n0"].taken.cpu == 3000 + 4000, "what ours asks for is its job's"
    shrinking("2")
    seen.told()
    assert seen.observer.nodes["n0"].taken.cpu == 1000 + 2000


def test_a_clique_that_only_the_agent_tells_is_the_place_of_its_node(seen: Seen):
    seen.told()
    told = {"metadata": {"name": "n0", "uid": "g"}, "spec": {"clique": "u.1"}}
    seen.cache.gpu_nodes.put(msgspec.convert(told, GpuNodeObject))
    assert seen.told() == [NodeSeen(seen.observer.nodes["n0"])]
    assert dict(seen.observer.nodes["n0"].domains)["clique"] == "u.1"


def test_a_tier_is_another_level_once_nodes_have_one_further_inside(seen: Seen):
    asked = {"minMember": 1, "networkTopology": {"mode": "hard", "highestTierAllowed": 1}}
    group = {"metadata": {"name": "g", "namespace": "default", "uid": "g"}, "spec": asked}
    seen.cache.owner_kind(VOLCANO).put(msgspec.convert(group, PodGroupObject))
    document = pod("p", 1)
    document["metadata"] |= {"namespace": "default", "uid": "p", "annotations": {"scheduling.k8s.io/group-name": "g"}}
    seen.cache.pods.put(msgspec.convert(document, PodObject))
    seen.node("n1", labels={"network.topology.nvidia.com/spine": "s"})
    seen.told()
    assert [job.gang.topology.required for job in seen.observer.jobs.values()] == ["spine"]
    seen.node("n2", labels={"network.topology.nvidia.com/leaf": "l"})
    seen.told()
    assert [job.gang.topology.required for job in seen.observer.jobs.values()] == ["block"]


def apart_from(app: str) -> dict[str, Any]:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def neighbours(seen: Seen) -> set[str]:
    """Jobs of others that were told, which is what one who comes later is told too."""
    seen.told()
    later = ClusterObserver(seen.cache, DEFAULTS, StillClock(0.0))
    later.forget()
    list(later.events())
    assert later.jobs == seen.observer.jobs
    return {name for name, job in later.jobs.items() if job.foreign}


def test_pods_of_others_are_told_as_soon_as_a_selector_means_them(seen: Seen):
    seen.stranger("db", labels={"app": "db"})
    seen.stranger("web", labels={"app": "web"})
    assert neighbours(seen) == set()
    seen.pod("ours", "", namespace="kube-system", affinity=apart_from("db"))
    assert neighbours(seen) == {"kube-system/pod/db"}
    seen.stranger("more", labels={"app": "db"})
    assert neighbours(seen) == {"kube-system/pod/db", "kube-system/pod/more"}
    seen.stranger("db", labels={"app": "quiet"})
    assert neighbours(seen) == {"kube-system/pod/more"}


def test_a_pod_of_others_that_keeps_apart_is_told_and_ours_are_known_by_what_it_means(seen: Seen):
    seen.pod("ours", node="", labels={"app": "db"})
    seen.told()
    assert seen.observer.jobs["default/ours"].task_groups()[0].labels == ()
    seen.stranger("loner", affinity=apart_from("db"))
    assert neighbours(seen) == {"kube-system/pod/loner"}
    assert ("app", "db") in seen.observer.jobs["default/ours"].task_groups()[0].labels


def given(cpu: str) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}


def test_what_a_pod_still_holds_while_it_is_resized_is_counted_until_its_kubelet_has_taken_it_back(seen: Seen):
    def pod_of(name: str, sink: Any, status: dict[str, Any]) -> None:
        main = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]
        document = pod(name, 0, nodeName="n0") | {"status": {"phase": "Running"} | status}
        document["metadata"] |= {"namespace": "default", "uid": name}
        document["spec"]["containers"] = main
        sink.put(msgspec.convert(document, PodObject))

    def taken() -> int:
        seen.told()
        return seen.observer.nodes["n0"].taken.cpu

    for sink, asked in ((seen.cache.pods, 0), (seen.cache.others, 1000)):
        pod_of("p", sink, {})
        assert taken() == asked
        pod_of("p", sink, given("8"))
        assert taken() == asked + 7000
        pod_of("p", sink, given("1"))
        assert taken() == asked
        pod_of("p", sink, given("8"))
        sink.drop("default/p")
        assert taken() == 0


def held(seen: Seen, key: str) -> dict[str, Any]:
    """What a bound pod of ours is told to hold, as one who comes later is told too."""
    seen.told()
    later = ClusterObserver(seen.cache, DEFAULTS, StillClock(0.0))
    later.forget()
    list(later.events())
    assert later.jobs == seen.observer.jobs
    request = seen.observer.jobs[key].task_groups()[0].request
    return {"gpus": request.gpus, "mig": request.mig, "cpu": request.cpu, **dict(request.extras)}


NO_QUEUE = {"gpuyard.dev/queue": "nobody-has-it"}


def test_a_pod_of_a_gang_that_is_refused_by_now_keeps_all_that_it_holds(seen: Seen):
    ports = [{"containerPort": 80, "hostPort": 80}]
    asked = {"requests": {"nvidia.com/gpu": "1", "cpu": "2", "ephemeral-storage": "1Gi"}}
    odd = [{"key": "a", "operator": "Lt", "value": "1"}]
    for name, spec in (("queue", dict[str, Any]()), ("toleration", {"tolerations": odd})):
        document = pod(name, 1, nodeName="n0", **spec)
        document["metadata"] |= {"namespace": "default", "uid": name, "annotations": NO_QUEUE if not spec else {}}
        document["spec"]["containers"] = [{"name": "main", "resources": asked, "ports": ports}]
        seen.cache.pods.put(msgspec.convert(document | {"status": {"phase": "Running"}}, PodObject))
        extras = {"ephemeral-storage": 1 << 30, "pods": 1, "port/TCP/80": 1}
        assert held(seen, f"default/pod/{name}" if not spec else f"default/{name}") == {
            "gpus": 1, "mig": (), "cpu": 2000, **extras,
        }  # fmt: skip


def test_a_pod_that_goes_from_one_refused_gang_to_another_holds_what_it_holds(seen: Seen):
    seen.pod("moved", notes=NO_QUEUE | {"gpuyard.dev/gang": "one"})
    assert held(seen, "default/pod/moved")["gpus"] == 1
    seen.pod("moved", notes=NO_QUEUE)
    assert held(seen, "default/pod/moved")["gpus"] == 1
    job = {"metadata": {"name": "moved", "namespace": "default", "uid": "j"}, "spec": {"parallelism": 1}}
    seen.cache.owner_kind("Job.batch").put(msgspec.convert(job, JobObject))
    assert held(seen, "default/pod/moved")["gpus"] == 1
    seen.pod("moved")
    assert held(seen, "default/pod/moved")["gpus"] == 1


def test_a_pod_that_is_on_its_way_while_its_gang_is_refused_holds_its_place(seen: Seen):
    seen.pod("ours", "", notes=NO_QUEUE)
    seen.cache.assumed.put(Placement("n0", (3,), uid="ours", assigned=True), "default/ours")
    seen.cache.devices["ours"] = ((3,), ())
    seen.told()
    told = seen.observer.jobs["default/pod/ours"]
    assert ([place.gpus for place in told.placements], told.task_groups()[0].request.gpus) == ([(3,)], 1)
    seen.pod("ours", "n0", notes=NO_QUEUE)
    seen.told()
    assert [place.gpus for place in seen.observer.jobs["default/pod/ours"].placements] == [(3,)]


def test_a_bound_pod_whose_refused_group_is_known_last_holds_what_it_holds(seen: Seen):
    jobs, groups = seen.cache.owner_kind("Job.batch"), seen.cache.owner_kind(VOLCANO)
    for order in ("late", "later"):
        seen.pod(order, notes=NO_QUEUE | {"scheduling.k8s.io/group-name": order})
        metadata = {"name": order, "namespace": "default", "uid": order}
        jobs.put(msgspec.convert({"metadata": metadata, "spec": {"parallelism": 1}}, JobObject))
        groups.put(msgspec.convert({"metadata": metadata, "spec": {"minMember": 1}}, PodGroupObject))
        if order == "later":
            seen.cache.dirty.gangs = dict(reversed(seen.cache.dirty.gangs.items()))
        seen.told()
        assert [place.gpus for place in seen.observer.jobs[f"default/pod/{order}"].placements] != []


def test_pods_of_others_that_could_not_be_had_here_hold_their_devices(seen: Seen):
    seen.node("cut", gpus=2)
    amounts = {"nvidia.com/gpu": "2", "nvidia.com/mig-1g.10gb": "2", "cpu": "8", "pods": "9"}
    document = {"metadata": {"name": "cut", "uid": "cut"}, "status": {"capacity": amounts, "allocatable": amounts}}
    seen.cache.nodes.put(msgspec.convert(document, NodeObject))
    both = [{"name": "a", "resources": {"requests": {"nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "1"}}}]
    seen.stranger("both", "cut", containers=both)
    sliced = [{"name": "a", "resources": {"requests": {"nvidia.com/mig-1g.10gb": "1"}}}]
    seen.stranger("sliced", "cut", containers=sliced, tolerations=[{"key": "a", "operator": "Lt", "value": "1"}])
    assert held(seen, "kube-system/pod/both")["gpus"] == 1
    _, slices = seen.observer.jobs["kube-system/pod/both"].task_groups()
    assert slices.request.mig == (("1g.10gb", 1),)
    assert held(seen, "kube-system/pod/sliced")["mig"] == (("1g.10gb", 1),)


# --- mistakes of ours ---------------------------------------------------------------------------------------


@pytest.fixture
def mistaken(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Reading stumbles over pods that bear a note, and over nodes that bear a label."""
    group_of, node_of = pods.group_of, nodes.node_of

    def stumbling_group(spec: Any, metadata: Any, *rest: Any) -> Any:
        if metadata.annotation("odd"):
            raise KeyError("odd")
        return group_of(spec, metadata, *rest)

    def stumbling_node(node: Any, *rest: Any) -> Any:
        if node.metadata.label("odd"):
            raise KeyError("odd")
        return node_of(node, *rest)

    monkeypatch.setattr(pods, "group_of", stumbling_group)
    monkeypatch.setattr(nodes, "node_of", stumbling_node)
    return seen


TOLD = "reading it fails (KeyError: 'odd'); this is a bug of GPUYard: please report it"


def test_a_pod_that_cannot_be_read_keeps_nobody_else_from_being_heard_of_and_is_told_so(mistaken: Seen):
    stumbled: list[str] = []
    mistaken.observer.stumbled = lambda name, error: stumbled.append(f"{name} {error!r}")
    for name in ("a", "odd", "z"):
        mistaken.pod(name, node="", notes={"odd": "x"} if name == "odd" else None)
    told = [event.job.name for event in mistaken.told() if isinstance(event, JobSeen)]
    assert sorted(told) == ["default/a", "default/z"]
    refusal = mistaken.observer.refused["default/odd"]
    assert (refusal.reason.value, refusal.message) == ("SetApart", TOLD)
    assert stumbled == ["default/odd KeyError('odd')"]
    mistaken.pod("odd", node="")
    assert [event.job.name for event in mistaken.told() if isinstance(event, JobSeen)] == ["default/odd"]
    assert mistaken.observer.refused == {}


def test_a_pod_that_cannot_be_read_any_more_goes_on_holding_its_gpu(mistaken: Seen):
    mistaken.pod("odd")
    (job,) = [event.job for event in mistaken.told() if isinstance(event, JobSeen)]
    mistaken.pod("odd", notes={"odd": "x"})
    mistaken.pod("other")
    seen_now = mistaken.told()
    assert JobGone("default/odd") in seen_now
    held = {each.job.name: each.job for each in seen_now if isinstance(each, JobSeen)}
    assert held["default/pod/odd"].placements[0].gpus == job.placements[0].gpus == (0,)
    assert held["default/pod/odd"].foreign
    assert held["default/other"].placements[0].gpus == (1,)


def test_a_node_that_cannot_be_read_any_more_gets_nothing_new_until_it_can(mistaken: Seen):
    mistaken.node("n1")
    mistaken.told()
    mistaken.node("n1", labels={"odd": "x"})
    mistaken.node("n2", labels={"odd": "x"})
    mistaken.node("n3")
    told = {event.node.name: event.node.closed for event in mistaken.told() if isinstance(event, NodeSeen)}
    assert told.keys() == {"n1", "n3"}
    assert (told["n1"] and told["n1"].reason, told["n3"]) == (TOLD, None)
    mistaken.node("n1")
    assert [event.node.closed for event in mistaken.told() if isinstance(event, NodeSeen)] == [None]


# --- another one of the same name --------------------------------------------------------------------


@pytest.mark.parametrize("first", ["n0", "n1"])
def test_a_pod_of_others_that_comes_anew_on_another_node_holds_its_gpu_there(seen: Seen, first: str):
    seen.node("n1")
    other = "n1" if first == "n0" else "n0"
    seen.stranger("db-0", first, containers=[GPU])
    seen.told()
    seen.cache.others.drop("kube-system/db-0")
    seen.stranger("db-0", other, containers=[GPU], uid="later")
    seen.told()
    [place] = seen.observer.jobs["kube-system/pod/db-0"].placements
    assert (place.node, place.gpus) == (other, (0,))


def test_a_pod_that_comes_anew_as_ours_holds_its_gpu_though_the_end_of_the_first_is_heard_of_last(seen: Seen):
    job = {"metadata": {"name": "web-0", "namespace": "default", "uid": "j"}, "spec": {}}
    seen.cache.owner_kind("Job.batch").put(msgspec.convert(job, JobObject))  # so that the pod goes by another name
    seen.stranger("web-0", namespace="default", containers=[GPU])
    seen.told()
    seen.pod("web-0", uid="later")
    seen.told()
    seen.cache.others.drop("default/web-0")
    seen.told()
    [place] = seen.observer.jobs["default/pod/web-0"].placements
    assert (place.node, place.uid) == ("n0", "later")


def test_a_claim_is_followed_for_a_pod_though_the_end_of_the_first_of_its_name_is_heard_of_last(seen: Seen):
    claimed = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    storage = seen.observer.storage
    storage.watch()
    seen.stranger("web-0", namespace="default", volumes=claimed)
    seen.pod("web-0", node="", volumes=claimed, uid="later")
    seen.cache.others.drop("default/web-0")
    seen.told()
    assert "not there" in str(seen.observer.refused["default/web-0"])
    claim = {"metadata": {"name": "c", "namespace": "default"}, "spec": {}, "status": {"phase": "Pending"}}
    storage.claims.put(msgspec.convert(claim, VolumeClaimObject))
    seen.told()
    assert "not bound" in str(seen.observer.refused["default/web-0"])


def test_a_volume_that_is_said_to_lie_in_another_zone_keeps_its_pod_to_that(seen: Seen):
    storage = seen.observer.storage
    storage.watch()
    seen.pod("p", node="", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
    claim = {
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"volumeName": "v"},
        "status": {"phase": "Bound"},
    }
    storage.claims.put(msgspec.convert(claim, VolumeClaimObject))

    def zones(label: str) -> set[str]:
        """Those that the pod is kept to while the volume is labelled so."""
        metadata = {"name": "v", "labels": {"topology.kubernetes.io/zone": label}}
        spec = {"claimRef": {"namespace": "default", "name": "c"}}
        storage.volumes.put(msgspec.convert({"metadata": metadata, "spec": spec}, VolumeObject))
        seen.told()
        (terms,) = seen.observer.jobs["default/p"].task_groups()[0].terms
        return {value for term in terms for each in term.expressions for value in each.values}

    assert zones("a") == {"a"}
    assert zones("b__c") == {"b", "c"}


def test_another_node_of_the_same_name_has_no_gpus_but_its_own(seen: Seen):
    seen.told()
    bare = {"metadata": {"name": "n0", "uid": "later", "labels": {"gpuyard.dev/pool": "cpu"}}}
    seen.cache.nodes.put(msgspec.convert({**bare, "status": {"conditions": [condition()]}}, NodeObject))
    seen.told()
    assert (seen.observer.nodes["n0"].gpus, seen.observer.nodes["n0"].closed) == ((), None)


def test_a_budget_that_was_changed_allows_nothing_whatever_of_it_was_changed(seen: Seen):
    seen.pod("p", labels={"app": "x"})
    seen.budget("b", 1, {"app": "x"})
    assert seen.allowed() == {"default/b": (1, ("default/p",))}
    seen.budget("b", 1, {"app": "x"}, generation=2)
    assert seen.allowed() == {"default/b": (0, ("default/p",))}


def test_a_pod_that_is_on_its_way_to_a_node_that_is_gone_is_not_sent_anywhere_else_yet(seen: Seen):
    seen.pod("p", node="")
    seen.told()
    assert seen.observer.free["default/p"]
    seen.cache.assumed.put(Placement("n0", (0,), uid="p", assigned=True), "default/p")
    seen.cache.look_at("default/p")
    seen.told()
    seen.cache.nodes.drop("n0")
    seen.told()
    assert "default/p" not in seen.observer.free
    seen.cache.assumed.end("p")
    seen.cache.look_at("default/p")
    seen.told()
    assert seen.observer.free["default/p"]


def test_a_pod_that_somebody_else_bound_elsewhere_has_none_of_the_gpus_that_it_was_sent_to(seen: Seen):
    seen.node("n1")
    seen.pod("there", node="n1")
    seen.pod("p", node="")
    seen.told()
    seen.cache.assumed.put(Placement("n0", (0,), uid="p", assigned=True), "default/p")
    seen.cache.devices["p"] = (0,), ()
    seen.pod("p", node="n1")
    seen.pod("third", node="n0")
    seen.told()
    held = [seen.observer.jobs[f"default/{name}"].placements[0].gpus for name in ("there", "p", "third")]
    assert held == [(0,), (1,), (0,)]


def test_a_member_that_has_another_number_is_told_anew(seen: Seen):
    marks = {"gpuyard.dev/gang": "g", "gpuyard.dev/gang-tasks": "2"}
    seen.pod("a", notes=marks | {"gpuyard.dev/task": "1"})
    seen.pod("b", node="", notes=marks)
    seen.told()
    seen.pod("a", notes=marks | {"gpuyard.dev/task": "0"})
    [told] = seen.told()
    assert isinstance(told, JobSeen)
    assert [place.task for place in told.job.placements] == [0]


# --- time-shared devices -----------------------------------------------------------------------------


def divided(name: str, parts: int, offered: int, resource: str) -> NodeObject:
    amounts = {resource: str(offered), "cpu": "64", "pods": "110"}
    metadata = {"name": name, "uid": name, "labels": {"nvidia.com/gpu.replicas": str(parts)}}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [condition()]}
    return msgspec.convert({"metadata": metadata, "status": status}, NodeObject)


@pytest.mark.parametrize("resource", ["nvidia.com/gpu.shared", "nvidia.com/gpu"])
def test_a_part_of_a_time_shared_gpu_is_as_large_as_nodes_tell_and_none_is_had_twice(seen: Seen, resource: str):
    part = [{"name": "a", "resources": {"limits": {resource: "1"}}}]
    says = {"nvidia.com/gpu.sharing-strategy": "time-slicing"}
    for index in range(7):
        seen.pod(f"p{index}", node="t0", containers=part, nodeSelector=says)
    seen.stranger("other", "t0", containers=part, nodeSelector=says)

    def held() -> tuple[int, list[int]]:
        """How large a part is, and how many there are on each device."""
        seen.told()
        names = [*(f"default/p{index}" for index in range(7)), "kube-system/pod/other"]
        jobs = [seen.observer.jobs[name] for name in names]
        [share] = {job.task_groups()[0].request.share for job in jobs}
        return share, sorted(Counter(job.placements[0].gpus for job in jobs).values())

    seen.cache.nodes.put(divided("t0", 4, 8, resource))
    assert held() == (WHOLE // 4, [4, 4])
    seen.cache.nodes.put(divided("t1", 2, 4, resource))
    assert held() == (WHOLE // 2, [2, 2, 2, 2])
    seen.cache.nodes.drop("t1")
    assert held() == (WHOLE // 4, [4, 4])
    seen.cache.nodes.put(divided("t0", 4, 0, resource))
    assert held() == (WHOLE // 4, [4, 4]), "its kubelet starts anew"


def test_who_holds_which_is_worked_out_anew_when_parts_grow_and_devices_stay_as_many(seen: Seen):
    part = [{"name": "a", "resources": {"limits": {"nvidia.com/gpu.shared": "1"}}}]
    for index in range(4):
        seen.pod(f"p{index}", node="t0", containers=part)

    def held() -> list[int]:
        seen.told()
        places = [place for index in range(4) for place in seen.observer.jobs[f"default/p{index}"].placements]
        return sorted(Counter(place.gpus for place in places).values())

    seen.cache.nodes.put(divided("t0", 4, 8, "nvidia.com/gpu.shared"))
    assert held() == [4]
    seen.cache.nodes.put(divided("t0", 2, 4, "nvidia.com/gpu.shared"))
    assert held() == [2, 2]


def test_every_part_that_a_pod_of_others_holds_is_told_as_long_as_it_holds_it(seen: Seen):
    parts = [{"name": "a", "resources": {"limits": {"nvidia.com/gpu.shared": "5"}}}]
    seen.stranger("many", "t0", containers=parts)

    def held() -> list[int]:
        """How many parts it has on each device."""
        seen.told()
        return sorted(Counter(place.gpus for place in seen.observer.jobs["kube-system/pod/many"].placements).values())

    seen.cache.nodes.put(divided("t0", 4, 8, "nvidia.com/gpu.shared"))
    assert held() == [1, 4]
    seen.cache.nodes.put(divided("t0", 2, 4, "nvidia.com/gpu.shared"))
    assert held() == [2, 2], "there are no more"
    seen.cache.nodes.put(divided("t0", 4, 8, "nvidia.com/gpu.shared"))
    assert held() == [1, 4]
    seen.cache.others.drop("kube-system/many")
    assert JobGone("kube-system/pod/many") in seen.told()


def test_of_several_places_of_one_pod_each_that_is_another_is_told(seen: Seen):
    parts = [{"name": "a", "resources": {"limits": {"nvidia.com/gpu.shared": "3"}}}]
    seen.stranger("many", "t0", containers=parts)
    seen.cache.nodes.put(divided("t0", 4, 8, "nvidia.com/gpu.shared"))
    seen.told()
    seen.cache.devices["many"] = (0, 1, 0), ()
    seen.cache.look_at_load("t0")
    [told] = [event for event in seen.told() if isinstance(event, JobSeen)]
    assert [place.gpus for place in told.job.placements] == [(0,), (1,), (0,)]


# --- gangs that are refused, as people are shown them ----------------------------------------------


def shown(seen: Seen) -> dict[str, Job]:
    """Jobs as a snapshot of the whole has them, which can be read again."""
    seen.told()
    nodes = tuple(seen.observer.nodes.values())
    queues = seen.observer.settled.queues or (ONLY_QUEUE,)
    moment = Snapshot(0.0, nodes=nodes, queues=queues, jobs=tuple(seen.observer.jobs.values()))
    moment = refused.shown(moment, seen.observer.refused_gangs(), seen.observer.settled.settings)
    moment = replace(moment, topology=tuple(level for level, _ in DEFAULTS.levels))
    assert parse_snapshot(json.dumps(snapshot_document(moment)), "s.yaml", 0.0) == moment
    return {job.name: job for job in moment.jobs}


def queue(seen: Seen, name: str, *namespaces: str) -> None:
    document = {"metadata": {"name": name, "uid": name}, "spec": {"namespaces": list(namespaces)}}
    seen.cache.queues.put(msgspec.convert(document, QueueObject))


def test_a_gang_that_ran_before_there_were_queues_is_shown_once_as_running_and_in_nobody_elses_queue(seen: Seen):
    for number in range(4):
        seen.pod(f"train-{number}", notes={"gpuyard.dev/gang": "train"})
    assert shown(seen)["default/gang/train"].queue == "default"
    queue(seen, "research", "team-a")
    queue(seen, "speech", "team-b")
    (job,) = shown(seen).values()
    assert (job.name, job.queue, job.foreign) == ("default/gang/train", "", True)
    assert sorted(place.uid for place in job.placements) == [f"train-{number}" for number in range(4)]
    assert [group.tasks for group in job.task_groups()] == [4]
    assert job.held_for == (
        "QueueUnknown: it names no queue, and the queue default does not exist; there is research, speech"
    )


def test_a_gang_of_which_some_wait_is_shown_with_those_who_wait_and_why(seen: Seen):
    for number in range(2):
        seen.pod(f"train-{number}", node="n0" if number else "", notes={"gpuyard.dev/gang": "train"})
    queue(seen, "research", "team-a")
    jobs = shown(seen)
    assert sorted(jobs) == ["default/gang/train", "default/pod/train-1"]
    waits = jobs["default/gang/train"]
    assert (waits.queue, waits.on_hold, waits.task_groups()[0].tasks) == ("", True, 1)
    told = Foresight(Snapshot(0.0, nodes=tuple(seen.observer.nodes.values()), jobs=(waits,))).explanations()
    assert [each.reason.code for each in told] == [Code.HELD]
    assert "it names no queue" in str(told[0].reason)


def test_a_gang_that_is_refused_is_shown_in_the_queue_of_its_namespace(seen: Seen):
    queue(seen, "anybodys")
    queue(seen, "research", "team-a")
    seen.pod("a", node="", namespace="team-a", notes={"gpuyard.dev/topology-required": "nowhere"})
    seen.pod("b", node="", namespace="team-b", notes={"gpuyard.dev/topology-required": "nowhere", QUEUE: "anybodys"})
    seen.pod("c", node="", namespace="team-b", notes={QUEUE: "research"})
    assert {name: job.queue for name, job in shown(seen).items()} == {
        "team-a/a": "research", "team-b/b": "anybodys", "team-b/c": "",
    }  # fmt: skip
