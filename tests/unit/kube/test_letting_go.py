"""What is taken off things of others: only what is ours, and only as it was read."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from gpuyard.kube.applying import InstallOutcome, InstallStep
from gpuyard.kube.client import KubeClient
from gpuyard.runtime.clock import SystemClock
from gpuyard.runtime.clustered import letting_go, node_marks
from tests.support.kube.fake_server import FakeServer

GPUS = ("nvidia.com/gpu", "present", "NoSchedule")
MINE = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
THEIRS = {"key": "theirs", "effect": "NoExecute"}
NOTED = {node_marks.NOTE: "nvidia.com/gpu=present:NoSchedule"}


def node(taints: list[Any], notes: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": "n", "resourceVersion": "7", "annotations": notes}, "spec": {"taints": taints}}


def after(found: dict[str, Any], wanted: node_marks.Taint | None) -> tuple[list[Any], dict[str, str]] | None:
    patch = {each["path"]: each for each in node_marks.taint_patch(found, wanted)}
    if not patch:
        return None
    assert patch["/metadata/resourceVersion"] == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
    taints = patch["/spec/taints"]["value"] if "/spec/taints" in patch else found["spec"]["taints"]
    return taints, patch["/metadata/annotations"]["value"]


@pytest.mark.parametrize(
    ("taints", "notes", "wanted", "becomes"),
    [
        ([THEIRS], {"a": "b"}, GPUS, ([THEIRS, MINE], {"a": "b"} | NOTED)),
        ([THEIRS, MINE], NOTED, GPUS, None),
        ([THEIRS, MINE], {"a": "b"} | NOTED, None, ([THEIRS], {"a": "b"})),
        ([THEIRS], NOTED, None, ([THEIRS], {})),
        ([MINE], {}, GPUS, None),
        ([MINE], {}, None, None),
        ([MINE], NOTED, ("theirs", "", "NoExecute"), ([THEIRS], {node_marks.NOTE: "theirs=:NoExecute"})),
        ([], NOTED, GPUS, ([MINE], NOTED)),
    ],
    ids=["set", "it-is-so", "taken-off", "only-noted", "somebody-elses-says-it", "not-ours", "another", "set-again"],
)  # fmt: skip
def test_a_taint_is_ours_where_it_is_noted_and_no_other_is_touched(taints: Any, notes: Any, wanted: Any, becomes: Any):
    assert after(node(taints, notes), wanted) == becomes


def job(**more: Any) -> dict[str, Any]:
    mark = {"gpuyard.dev/suspended": '{"why": "reclaimed"}'}
    metadata = {"name": "j", "namespace": "a", "uid": "u1", "resourceVersion": "1", "annotations": mark}
    return {"metadata": metadata | more, "spec": {"suspend": True}}


def resumed(*there: dict[str, Any] | int, replies: tuple[int, ...]) -> tuple[InstallStep, list[Any]]:
    """As the server has it at each look, and how it answers each write."""
    looks, answers, written = iter(there), iter(replies), []

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "PATCH":
            written.append(json.loads(await request.read()))
            return web.json_response({"message": "x"}, status=next(answers))
        found = next(looks)
        return web.json_response(
            {} if isinstance(found, int) else found, status=found if isinstance(found, int) else 200
        )

    async def session() -> InstallStep:
        async with FakeServer(answer) as server:
            client = await KubeClient(server.access, SystemClock()).open()
            try:
                return await letting_go.resumed(client, letting_go.Suspended("Job.batch", "a/j", "/apis/batch/v1/x"))
            finally:
                await client.close()

    return asyncio.run(session()), written


def test_a_job_is_resumed_as_it_was_read_and_read_anew_where_somebody_was_faster():
    step, written = resumed(job(), job(uid="u2", resourceVersion="9"), replies=(409, 200))
    assert step.outcome is InstallOutcome.GONE
    assert [each["metadata"]["uid"] for each in written] == ["u1", "u2"]
    assert [each["metadata"]["resourceVersion"] for each in written] == ["1", "9"]
    assert written[1]["spec"] == {"suspend": False}
    assert written[1]["metadata"]["annotations"] == {"gpuyard.dev/suspended": None}


def test_one_that_came_in_its_place_and_bears_no_mark_is_left_as_it_is():
    step, written = resumed(job(), job(uid="u2", annotations={}), replies=(409,))
    assert step.outcome is InstallOutcome.ABSENT
    assert len(written) == 1
    assert resumed(404, replies=())[0].outcome is InstallOutcome.ABSENT


def test_one_that_somebody_else_has_resumed_only_loses_our_mark():
    step, written = resumed({**job(), "spec": {"suspend": False}}, replies=(200,))
    assert step.outcome is InstallOutcome.GONE
    assert "spec" not in written[0]
