"""What waiting pods are told on themselves: after a while, when the reason changes, and one event for a whole gang."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import gpuyard
from gpuyard.brain.new_nodes import WaitingTold
from gpuyard.kube.client import ApiReply
from gpuyard.kube.objects import PodObject
from gpuyard.model.actions import Waiting
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.snapshot import Snapshot
from gpuyard.worlds.kubernetes.acting.tell import REWORD_S, ConditionTeller
from gpuyard.worlds.kubernetes.asking.refusals import Refusal, RefusalName
from gpuyard.worlds.kubernetes.cache import Cache
from tests.support.kube.fake_kubelet import pod
from tests.support.pretend import StillClock


class Ears:
    """Pods that wait, and what is written on them."""

    def __init__(self) -> None:
        self.clock = StillClock(1000.0)
        self.cache = Cache()
        self.teller = ConditionTeller(self, self.cache, self.clock, "me")  # type: ignore[arg-type]
        self.conditions: list[tuple[str, str, str]] = []
        self.events: list[str] = []
        self.asked = 0
        self.reply = ApiReply(200)
        self.answers: dict[str, WaitingTold] = {}
        self.member("m0")
        self.member("m1")

    def member(self, name: str) -> None:
        document = pod(name, 1)
        notes = {"gpuyard.dev/gang": "ours", "gpuyard.dev/gang-tasks": "2"}
        document["metadata"] |= {"namespace": "d", "uid": name, "annotations": notes}
        self.cache.pods.put(msgspec.convert(document | {"status": {"phase": "Pending"}}, PodObject))

    async def patch(self, path: str, body: bytes, kind: str) -> ApiReply:
        (told,) = msgspec.json.decode(body)["status"]["conditions"]
        self.conditions.append((path.split("/")[-2], told["reason"], told["message"]))
        return self.reply

    async def post(self, path: str, body: bytes) -> ApiReply:
        self.events.append(msgspec.json.decode(body)["note"])
        return ApiReply(201)

    def explain(self, _snapshot: Snapshot) -> dict[str, WaitingTold]:
        self.asked += 1
        return self.answers

    def waits(self, code: Code, message: str, new_nodes: bool = False, budget: str = "") -> None:
        self.answers = {"d/gang/ours": WaitingTold(Reason(code, message=message), new_nodes, budget)}
        self.teller.hear([Waiting("d/gang/ours", Reason(Code.NOT_ENOUGH_GPUS))], {})

    def after(self, seconds: float) -> list[tuple[str, str, str]]:
        """What is told when so much time has passed."""
        self.conditions.clear()
        asyncio.run(self._turn())
        self.clock.at += seconds
        asyncio.run(self._turn())
        return list(self.conditions)

    async def _turn(self) -> None:
        await self.teller.turn(lambda: Snapshot(0.0), self.explain)


@pytest.fixture
def ears() -> Ears:
    return Ears()


def test_a_gang_that_waits_for_a_moment_is_told_nothing_and_nobody_is_asked(ears: Ears):
    ears.waits(Code.NOT_ENOUGH_GPUS, "needs 2")
    assert ears.after(1.0) == []
    assert ears.asked == 0


def test_every_member_is_told_the_whole_sentence_and_the_gang_has_one_event(ears: Ears):
    ears.waits(Code.FRAGMENTED, "those that are free are scattered", new_nodes=True)
    told = ears.after(3.0)
    words = "those that are free are scattered"
    assert told == [("m0", "Unschedulable", words), ("m1", "Unschedulable", words)]
    assert ears.events == [words]
    assert ears.after(30.0) == []
    assert ears.asked == 1


def test_the_budget_that_keeps_others_from_giving_way_is_named_at_once_and_only_within_its_namespace(ears: Ears):
    ears.waits(Code.NOT_ENOUGH_GPUS, "needs 2")
    assert ears.after(3.0) == [("m0", "NotEnoughGpus", "needs 2"), ("m1", "NotEnoughGpus", "needs 2")]
    kept = "needs 2; the disruption budget d/keep keeps those who would give way to it"
    ears.waits(Code.NOT_ENOUGH_GPUS, "needs 2", budget="d/keep")
    assert {words for _, _, words in ears.after(1.0)} == {kept}
    ears.waits(Code.NOT_ENOUGH_GPUS, "needs 2", budget="others/secret")
    (words,) = {words for _, _, words in ears.after(1.0)}
    assert "a disruption budget of another namespace" in words
    assert "secret" not in words


def test_nobody_whom_new_nodes_would_not_help_is_called_unschedulable(ears: Ears):
    ears.waits(Code.NOT_ENOUGH_GPUS, "needs 9 GPUs on one node")
    assert {reason for _, reason, _ in ears.after(3.0)} == {"NotEnoughGpus"}


def test_other_numbers_are_told_by_and_by_and_another_reason_at_once(ears: Ears):
    ears.waits(Code.NOT_ENOUGH_GPUS, "3 are free", new_nodes=True)
    ears.after(3.0)
    ears.waits(Code.NOT_ENOUGH_GPUS, "2 are free", new_nodes=True)
    assert ears.after(3.0) == []
    assert {text for _, _, text in ears.after(REWORD_S)} == {"2 are free"}
    assert len(ears.events) == 1
    ears.waits(Code.FRAGMENTED, "scattered", new_nodes=True)
    assert {text for _, _, text in ears.after(1.0)} == {"scattered"}
    assert ears.events[-1] == "scattered"


def test_a_member_that_came_anew_is_told_alone_and_without_another_event(ears: Ears):
    ears.waits(Code.NOT_ENOUGH_GPUS, "3 are free", new_nodes=True)
    ears.after(3.0)
    ears.cache.pods.drop("d/m1")
    ears.member("m2")
    assert ears.after(1.0) == [("m2", "Unschedulable", "3 are free")]
    assert len(ears.events) == 1


def test_what_the_scheduler_before_us_told_is_not_told_again(ears: Ears):
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "3 are free"}
    for name in ("m0", "m1"):
        known: Any = ears.cache.pods.objects[f"d/{name}"]
        status = msgspec.convert({"phase": "Pending", "conditions": [condition]}, type(known.status))
        ears.cache.pods.put(msgspec.structs.replace(known, status=status))
    ears.waits(Code.NOT_ENOUGH_GPUS, "3 are free", new_nodes=True)
    assert ears.after(3.0) == []


def test_who_cannot_be_explained_is_told_what_the_plan_said_and_who_is_refused_is_told_by_name(ears: Ears):
    ears.teller.hear([Waiting("d/gang/ours", Reason(Code.SET_APART, message="set apart"))], {})
    assert ears.after(3.0)[0] == ("m0", "SetApart", "set apart")
    ears.teller.hear([], {"d/gang/ours": Refusal(RefusalName.VOLUME_UNBOUND, "its claim is not there")})
    assert ears.after(3.0)[0] == ("m0", "VolumeUnbound", "its claim is not there")


def test_explaining_that_takes_long_is_asked_for_seldom(ears: Ears):
    real = ears.explain

    def slow(_snapshot: Snapshot) -> dict[str, WaitingTold]:
        ears.clock.at += 1.0
        return real(_snapshot)

    ears.explain = slow  # type: ignore[method-assign]
    for index in range(20):
        ears.waits(Code.NOT_ENOUGH_GPUS, f"{index} are free")
        ears.after(3.0)
    assert 2 <= ears.asked <= 4  # a minute, one second each, twenty to rest


ESCAPES = "\x1b[31mK \x1b]0;owned\x07" + "n" * 200_000 + "\u202e"


def test_what_others_wrote_reaches_a_pod_without_a_terminals_orders_and_with_an_end(ears: Ears):
    ears.teller.hindrance = lambda _name: f"it is not known that the {ESCAPES} would make the pod anew"
    ears.waits(Code.OVER_QUOTA, "queue vision has 0 left")
    (words,) = {words for _, _, words in ears.after(3.0)}
    assert words.startswith("queue vision has 0 left; it cannot borrow, because it is not known that the ?[31mK ?]0;")
    for told in (words, *ears.events):
        assert told.isprintable()
        assert len(told.encode()) <= 1000


def test_a_note_is_no_longer_than_an_api_server_takes_in_any_script(ears: Ears):
    ears.teller.hear([], {"d/gang/ours": Refusal(RefusalName.QUEUE_UNKNOWN, f"it names the queue {'文' * 5_000}")})
    ears.after(3.0)
    assert all(len(note.encode()) <= 1000 for note in ears.events)


def test_a_long_sentence_that_the_scheduler_before_us_told_is_not_told_again(ears: Ears):
    ears.teller.hear([], {"d/gang/ours": Refusal(RefusalName.QUEUE_UNKNOWN, ESCAPES)})
    for name, reason, words in ears.after(3.0):
        known: Any = ears.cache.pods.objects[f"d/{name}"]
        condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": words}
        status = msgspec.convert({"phase": "Pending", "conditions": [condition]}, type(known.status))
        ears.cache.pods.put(msgspec.structs.replace(known, status=status))
        ears.teller.forget(name)
    assert ears.after(3.0) == []


SOURCE = Path(gpuyard.__file__).parent
WRITING = (
    *(SOURCE / "worlds" / "kubernetes").rglob("*.py"),
    *(SOURCE / "agent" / "pods").rglob("*.py"),
    SOURCE / "runtime" / "clustered" / "labelling.py",
)


def test_every_sentence_that_is_written_into_a_cluster_passes_the_same_door():
    """Messages of conditions and notes of events are our own words whole, or they are made by `text.line`."""
    found = [f"{path.name}:{node.lineno}" for path in WRITING for node in _sentences(path) if not _is_safe(node)]
    assert len(WRITING) > 30
    assert found == []


def _sentences(path: Path) -> list[ast.expr]:
    mappings = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Dict)]
    pairs = [pair for each in mappings for pair in zip(each.keys, each.values, strict=True)]
    return [value for key, value in pairs if isinstance(key, ast.Constant) and key.value in ("message", "note")]


def _is_safe(node: ast.expr) -> bool:
    if isinstance(node, ast.IfExp):
        return _is_safe(node.body) and _is_safe(node.orelse)
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Call) and ast.unparse(node.func) == "text.line")


def test_that_pods_cannot_be_told_is_trouble_until_they_can_and_one_sentence_for_all(ears: Ears):
    def forbidden(pod: str) -> ApiReply:
        return ApiReply(403, msgspec.json.encode({"kind": "Status", "message": f'pods "{pod}" is forbidden'}))

    ears.reply = forbidden("m0")
    ears.waits(Code.FRAGMENTED, "scattered")
    ears.after(3.0)
    first = ears.teller.forbidden.trouble
    assert first == 'telling pods why they wait is forbidden to us: pods "m0" is forbidden'
    ears.reply = forbidden("m1")
    ears.after(600.0)
    assert ears.teller.forbidden.trouble == first, "one line, and not one for each pod"
    ears.reply = ApiReply(200)
    ears.after(600.0)
    assert ears.teller.forbidden.trouble == ""
