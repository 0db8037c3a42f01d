"""What pods were granted against what they hold: whom a kubelet asks for, and where it went another way."""

from __future__ import annotations

from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from gpuyard.agent.pods import grants, holding
from gpuyard.agent.pods import podresources_pb2 as api
from gpuyard.agent.pods.account import PodAccount
from gpuyard.agent.pods.grants import Grant
from gpuyard.agent.pods.holding import PodHolding
from gpuyard.agent.pods.readiness import Readiness
from gpuyard.kube.definitions import gpu_nodes
from gpuyard.kube.gpu_grants import event_name
from gpuyard.kube.objects import PodObject

GPU = "nvidia.com/gpu"


def pod(name: str, gpus: str, *sizes: int, phase: str = "Pending", made: int = 0) -> PodObject:
    containers = [{"name": f"c{n}", "resources": {"limits": {GPU: str(size)}}} for n, size in enumerate(sizes)]
    return msgspec.convert(
        {
            "metadata": {
                "name": name, "namespace": "ns", "uid": f"uid-{name}",
                "creationTimestamp": f"2026-11-16T09:00:{made:02}Z", "annotations": {"gpuyard.dev/gpus": gpus},
            },
            "spec": {"containers": [{"name": "plain"}, *containers]},
            "status": {"phase": phase},
        },
        PodObject,
    )  # fmt: skip


def grant(name: str, gpus: str, *sizes: int, made: int = 0) -> Grant:
    found = grants.granted(pod(name, gpus, *(sizes or (len(gpus.split(",")),)), made=made), GPU)
    assert found is not None
    return found


def held(name: str, **containers: str) -> PodHolding:
    return PodHolding(f"ns/{name}", {key: tuple(gpus.split(",")) if gpus else () for key, gpus in containers.items()})


def by_key(*all_: PodHolding) -> dict[str, PodHolding]:
    return {each.key: each for each in all_}


def test_a_binding_names_gpus_and_containers_have_them_in_their_order():
    assert grant("p", "a,b,c", 1, 2).parts == (("c0", ("a",)), ("c1", ("b", "c")))


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_is_granted_nothing(phase: str):
    assert grants.granted(pod("p", "a", 1, phase=phase), GPU) is None


def test_a_pod_whose_binding_named_none_minds_none():
    assert grants.granted(pod("p", "", 1), GPU) is None


def test_of_two_that_ask_for_as_many_the_one_is_meant_that_the_kubelet_has():
    older, younger = grant("older", "a,b", made=1), grant("younger", "c,d", made=2)
    assert grants.chosen([older, younger], by_key(held("younger", c0="")), "abcd", 2) == ("c", "d")
    assert grants.chosen([older, younger], by_key(held("older", c0="")), "abcd", 2) == ("a", "b")


def test_where_the_kubelet_does_not_say_whom_it_has_the_oldest_is_meant():
    assert grants.chosen([grant("b", "b", made=2), grant("a", "a", made=1)], None, "ab", 1) == ("a",)


def test_whoever_has_its_own_is_not_meant_again():
    both = [grant("first", "a", made=1), grant("second", "b", made=2)]
    assert grants.chosen(both, by_key(held("first", c0="a"), held("second", c0="")), "abc", 1) == ("b",)


def test_the_second_container_of_a_pod_gets_the_second_part():
    assert grants.chosen([grant("p", "a,b", 1, 1)], by_key(held("p", c0="a", c1="")), "bc", 1) == ("b",)


@pytest.mark.parametrize(("available", "size"), [("ac", 2), ("ab", 1)])
def test_what_is_not_free_or_of_another_size_is_not_chosen(available: str, size: int):
    assert grants.chosen([grant("p", "a,b")], by_key(held("p", c0="")), available, size) == ()


def test_a_difference_is_of_gpus_and_not_of_their_order():
    two = [grant("same", "a,b"), grant("other", "c")]
    having = [held("same", c0="b,a"), held("other", c0="d"), held("strange", c0="e")]
    assert [(each.key, gpus) for each, gpus in grants.differences(two, having)] == [("ns/other", ("d",))]


def test_who_holds_nothing_yet_does_not_differ():
    assert grants.differences([grant("p", "a")], [held("p", c0="")]) == []


# --- the account ---------------------------------------------------------------------------------


class Bound:
    """Knows some at once and more when it reads."""

    def __init__(self, known: list[Grant], more: list[Grant]) -> None:
        self._known, self._more = known, more
        self.reads: list[float] = []
        self.told: list[Any] = []

    def grants(self) -> list[Grant]:
        return self._known

    def read(self, seconds: float) -> list[Grant]:
        self.reads.append(seconds)
        return [*self._known, *self._more]

    def tell(self, method: str, path: str, body: Any) -> None:
        self.told.append((method, path, body))

    def ask(self, method: str, path: str, body: Any, kind: str, seconds: float) -> int:
        raise NotImplementedError


class Still:
    def now(self) -> float:
        return 1_800_000_000.0

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None: ...


def account(monkeypatch: pytest.MonkeyPatch, bound: Bound, *having: PodHolding) -> PodAccount:
    monkeypatch.setattr(holding, "holdings", lambda *_: list(having))
    return PodAccount(bound, Still(), lambda _: None, GPU, "node-a")


def test_a_miss_reads_the_cluster_once_for_a_tenth_of_a_second_and_then_falls_back(monkeypatch: pytest.MonkeyPatch):
    bound = Bound([grant("known", "a")], [grant("late", "b,c")])
    made = account(monkeypatch, bound, held("known", c0=""), held("late", c0=""))
    assert made.chosen("abcd", 1) == ("a",)
    assert bound.reads == []
    assert made.chosen("abcd", 2) == ("b", "c")
    assert made.chosen("abcd", 3) == ()
    assert bound.reads == [0.1, 0.1]
    assert {each[0]["how"]: each[1] for family in made.families() for each in family.series if each[0]} == {
        "known": 1, "read": 1, "nearest": 1,
    }  # fmt: skip


def test_a_difference_is_an_event_once_and_a_metric_while_it_lasts(monkeypatch: pytest.MonkeyPatch):
    bound = Bound([grant("p", "a")], [])
    made = account(monkeypatch, bound, held("p", c0="b"))
    made.look()
    made.look()
    ((method, path, event),) = bound.told
    assert (method, path) == ("POST", "/apis/events.k8s.io/v1/namespaces/ns/events")
    assert (event["reason"], event["regarding"]["uid"]) == ("OtherGpus", "uid-p")
    assert event["note"] == "bound to a; the kubelet gave b"
    assert made.differ == 1
    monkeypatch.setattr(holding, "holdings", lambda *_: [])
    made.look()
    assert made.differ == 0


def test_whoever_holds_a_gpu_is_named_with_it(monkeypatch: pytest.MonkeyPatch):
    made = account(monkeypatch, Bound([], []), held("p", c0="a", c1="b"))
    made.look()
    assert {gpu: (who.namespace, who.pod, who.container) for gpu, (who,) in made.holders().items()} == {
        "a": ("ns", "p", "c0"), "b": ("ns", "p", "c1"),
    }  # fmt: skip


def test_a_kubelet_that_says_nothing_is_told_of_once(tmp_path: Path):
    said: list[str] = []
    made = PodAccount(None, Still(), said.append, GPU, "node-a", tmp_path / "none.sock")
    made.look()
    made.look()
    assert len(said) == 1
    assert "does not tell what its pods hold" in said[0]
    assert made.chosen("ab", 1) == ()


def test_what_a_kubelet_lists_is_read_by_resource(tmp_path: Path):
    containers = [
        api.ContainerResources(
            name="c",
            devices=[
                api.ContainerDevices(resource_name=GPU, device_ids=["a"]),
                api.ContainerDevices(resource_name=GPU, device_ids=["b"]),
                api.ContainerDevices(resource_name="x/y", device_ids=["z"]),
            ],
        )
    ]
    answer = api.ListPodResourcesResponse(
        pod_resources=[api.PodResources(name="p", namespace="ns", containers=containers)]
    )
    method = grpc.unary_unary_rpc_method_handler(
        lambda *_: answer, api.ListPodResourcesRequest.FromString, lambda message: message.SerializeToString()
    )
    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": method}),))
    server.add_insecure_port(f"unix:{tmp_path / 'k.sock'}")
    server.start()
    assert holding.holdings(tmp_path / "k.sock", GPU) == [held("p", c="a,b")]
    server.stop(0)


# --- whether devices can be had ------------------------------------------------------------------


class Door:
    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, Any]] = []

    def ask(self, method: str, path: str, body: Any, kind: str, seconds: float) -> int:
        self.asked.append((path.partition("?")[0], body))
        return self.answers.pop(0)


@pytest.mark.parametrize(("answers", "told"), [((201, 200), True), ((404,), True), ((0,), False), ((200, 409), False)])
def test_readiness_is_told_as_a_condition_of_the_nodes_own_object(answers: tuple[int, ...], told: bool):
    door = Door(*answers)
    assert Readiness(door, Still(), "node-a").tell(False) is told
    assert door.asked[0][0] == "/apis/gpuyard.dev/v1/gpunodes/node-a"
    if len(answers) == 2:
        path, body = door.asked[1]
        (condition,) = body["status"]["conditions"]
        assert path == "/apis/gpuyard.dev/v1/gpunodes/node-a/status"
        assert (condition["type"], condition["status"]) == ("PluginReady", "False")


@pytest.mark.parametrize(("status", "away"), [("False", True), ("True", False), ("Unknown", False)])
def test_a_plugin_is_away_only_if_that_is_said(status: str, away: bool):
    conditions = {"status": {"conditions": [{"type": "PluginReady", "status": status}]}}
    assert gpu_nodes.plugin_is_away(msgspec.convert(conditions, gpu_nodes.GpuNodeObject)) is away
    assert not gpu_nodes.plugin_is_away(None)


def test_what_an_annotation_says_stands_in_the_agents_log_short_and_on_one_line(monkeypatch: pytest.MonkeyPatch):
    lines: list[str] = []
    made = account(monkeypatch, Bound([grant("p", "\x1b[2J\nall is well" + "x" * 9000)], []), held("p", c0="b"))
    made.say = lines.append
    made.look()
    (line,) = lines
    assert line.isprintable()
    assert len(line) < 200


def test_one_difference_is_one_event_whoever_tells_it_first(monkeypatch: pytest.MonkeyPatch):
    bound = Bound([grant("p", "a")], [])
    account(monkeypatch, bound, held("p", c0="b")).look()
    account(monkeypatch, bound, held("p", c0="b")).look()
    account(monkeypatch, bound, held("p", c0="c")).look()
    names = [event["metadata"]["name"] for _, _, event in bound.told]
    assert names[0] == names[1] == event_name("p", "uid-p", "bound to a; the kubelet gave b")
    assert names[2] != names[0]
