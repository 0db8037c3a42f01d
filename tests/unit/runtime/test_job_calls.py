"""A Job of a cluster followed to its end: its output whole, its exit code its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from aiohttp import web

from gpuyard.kube.client import KubeClient
from gpuyard.model.errors import Conflict, NotFound
from gpuyard.runtime.clock import SystemClock
from gpuyard.runtime.clustered.job_calls import ClusterJobs
from tests.support.kube.fake_server import FakeServer

T = TypeVar("T")

POD: dict[str, Any] = {
    "metadata": {"name": "train-0-x", "uid": "u", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "status": {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]},
}
FAILED = {"type": "Failed", "status": "True", "message": "it has reached its backoff limit"}


def asked(job: dict[str, Any], act: Callable[[ClusterJobs], Awaitable[T]]) -> T:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/log"):
            last = request.query.get("tailLines") == "1"
            return web.Response(body=b"last, without an end" if last else b"first\nlast, without an end")
        if request.path.endswith("/pods"):
            return web.json_response({"items": [POD]})
        if request.path.endswith("/jobs/train"):
            return web.json_response(job)
        return web.json_response({"message": "not found"}, status=404)

    async def session() -> T:
        async with FakeServer(answer) as server:
            client = await KubeClient(server.access, SystemClock()).open()
            try:
                return await act(ClusterJobs(client, SystemClock()))
            finally:
                await client.close()

    return asyncio.run(session())


def test_a_task_that_gave_way_is_followed_on_in_the_pod_that_comes_in_its_stead():
    """Its first pod is gone before its end was read; that is no mistake, and the next one is waited for."""
    pods = {"first": {**POD, "metadata": {**POD["metadata"], "name": "first", "uid": "first"}}}
    pods["second"] = {**POD, "metadata": {**POD["metadata"], "name": "second", "uid": "second"}}
    there, over = ["first"], [False]

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/first/log"):
            there[0] = "second"
            return web.Response(body=b"of the first\n") if "follow" in request.query else web.Response(status=404)
        if request.path.endswith("/second/log"):
            over[0] = True
            return web.Response(body=b"of the second\n")
        if request.path.endswith("/pods"):
            return web.json_response({"items": [pods[there[0]]]})
        return web.json_response(job(*([FAILED] if over[0] else [])))

    async def followed() -> bytes:
        async with FakeServer(answer) as server:
            client = await KubeClient(server.access, SystemClock()).open()
            jobs, seen, told = ClusterJobs(client, SystemClock()), set[str](), b""
            while (pod := await jobs.started("train", 0, seen)) is not None:
                told += b"".join([part async for part in jobs.output(pod, follow=True)])
                seen.add(pod["metadata"]["uid"])
            await client.close()
            return told

    assert asyncio.run(followed()) == b"of the first\nof the second\n"


@pytest.mark.parametrize(
    ("indexes", "expected"),
    [((1, 0, 1), {0: "b", 1: "c"}), ((None, None), {0: "a", 1: "b"})],
    ids=["numbered: the newest of each", "not numbered: by age"],
)
def test_tasks_go_by_their_numbers_or_by_their_age(indexes: tuple[int | None, ...], expected: dict[int, str]):
    pods = []
    for age, (name, index) in enumerate(zip("abc", indexes, strict=False)):
        notes = {} if index is None else {"batch.kubernetes.io/job-completion-index": str(index)}
        about = {"name": name, "creationTimestamp": f"2026-01-01T00:00:0{age}Z", "annotations": notes}
        pods.append({"metadata": about, "status": {}})

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"items": pods[::-1]})

    async def numbered() -> dict[int, str]:
        async with FakeServer(answer) as server:
            client = await KubeClient(server.access, SystemClock()).open()
            found = await ClusterJobs(client, SystemClock()).numbered("train")
            await client.close()
            return {index: pod["metadata"]["name"] for index, pod in found.items()}

    assert asyncio.run(numbered()) == expected


def job(*conditions: dict[str, str], **annotations: str) -> dict[str, Any]:
    return {"metadata": {"name": "train", "annotations": annotations}, "status": {"conditions": list(conditions)}}


def test_the_exit_code_is_that_of_the_task_that_failed():
    ended = asked(job(FAILED), lambda jobs: jobs.end("train"))
    assert (ended.phase, ended.code, ended.message) == ("failed", 3, "it has reached its backoff limit")


def test_a_job_that_completes_succeeded_whatever_an_earlier_try_said():
    ended = asked(job({"type": "Complete", "status": "True"}), lambda jobs: jobs.end("train"))
    assert (ended.phase, ended.code) == ("succeeded", 0)


@pytest.mark.parametrize(("follow", "tail"), [(True, None), (False, None), (True, 10)])
def test_no_byte_of_the_output_is_lost_though_the_last_line_has_no_end(follow: bool, tail: int | None):
    async def whole(jobs: ClusterJobs) -> bytes:
        pod = await jobs.started("train", 0)
        assert pod is not None
        return b"".join([part async for part in jobs.output(pod, follow, tail)])

    assert asked(job(FAILED), whole) == b"first\nlast, without an end"


def test_a_job_that_the_scheduler_has_suspended_is_not_released_by_hand():
    with pytest.raises(Conflict, match="resumes it by itself"):
        asked(job(**{"gpuyard.dev/suspended": "reclaimed"}), lambda jobs: jobs.release("train"))


def test_a_job_that_is_not_there_is_named():
    with pytest.raises(NotFound, match="There is no Job elsewhere/other"):
        asked(job(), lambda jobs: jobs.job("elsewhere/other"))
