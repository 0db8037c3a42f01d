"""One object after another, made or told why not; against a server that says what no real one can be made to say."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from gpuyard.kube import applying
from gpuyard.kube.applying import InstallOutcome, InstallStep
from gpuyard.kube.client import KubeClient
from gpuyard.runtime.clock import SystemClock
from tests.support.kube.fake_server import FakeServer, Handler


def applied(document: dict[str, Any], get: tuple[int, Any], patch: tuple[int, Any]) -> InstallStep:
    async def answer(request: web.Request) -> web.StreamResponse:
        code, body = get if request.method == "GET" else patch
        return web.json_response(body, status=code)

    return told_by(answer, document)


def told_by(answer: Handler, document: dict[str, Any]) -> InstallStep:
    """What is told by such a server."""

    async def session() -> InstallStep:
        async with FakeServer(answer) as server:
            client = await KubeClient(server.access, SystemClock()).open()
            try:
                return await applying.apply(client, document)
            finally:
                await client.close()

    return asyncio.run(session())


def thing(kind: str, **more: Any) -> dict[str, Any]:
    version = "admissionregistration.k8s.io/v1" if kind.startswith("Mutating") else "v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x", **more}}


NO = (404, {"message": "the server could not find the requested resource"})


def test_defaults_that_an_older_cluster_does_not_know_are_left_out_and_nothing_else_is():
    assert applied(thing("MutatingAdmissionPolicy"), NO, NO).outcome is InstallOutcome.LEFT_OUT
    assert applied(thing("ServiceAccount", namespace="gone"), NO, NO).outcome is InstallOutcome.REFUSED


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        ({"resourceVersion": "1", "managedFields": [1]}, {"resourceVersion": "2"}, InstallOutcome.UNCHANGED),
        ({"labels": {"a": "b"}}, {"labels": {"a": "c"}}, InstallOutcome.CHANGED),
    ],
)
def test_what_only_the_server_counts_is_no_change(before: Any, after: Any, outcome: InstallOutcome):
    document = thing("Namespace")
    step = applied(document, (200, thing("Namespace", **before)), (200, thing("Namespace", **after)))
    assert step.outcome is outcome


def test_who_has_settled_it_otherwise_is_named_with_the_way_to_take_it_over():
    conflict = (409, {"message": 'Apply failed with 1 conflict: conflict with "helm": .rules'})
    step = applied(thing("Namespace"), (200, thing("Namespace")), conflict)
    assert step.outcome is InstallOutcome.REFUSED
    assert '"helm"' in str(step)
    assert "--force" in str(step)


DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "queues.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"plural": "queues"},
        "versions": [{"name": "v0", "served": False}, {"name": "v1", "served": True}],
    },
}


@pytest.mark.parametrize("answer_of_the_kind", [200, 403])
def test_a_kind_is_said_to_be_made_once_it_is_answered_and_not_when_it_is_only_called_established(
    answer_of_the_kind: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(applying, "LOOK_S", 0.001)
    asked: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/apis/example.com/v1/queues":
            asked.append(request.path)
            return web.json_response({"items": []}, status=404 if len(asked) < 3 else answer_of_the_kind)
        established = {"status": {"conditions": [{"type": "Established", "status": "True"}]}}
        return web.json_response(DEFINITION | established, status=200)

    assert told_by(answer, DEFINITION).outcome is InstallOutcome.UNCHANGED
    assert len(asked) == 3


def test_a_kind_that_is_never_answered_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(applying, "LOOK_S", 0.001)
    monkeypatch.setattr(applying, "ESTABLISHED_S", 0.01)
    step = applied(DEFINITION, NO, (200, DEFINITION))
    assert step.outcome is InstallOutcome.REFUSED
    assert "was not served within" in str(step)


def removed(document: dict[str, Any], there: dict[str, Any] | None) -> tuple[InstallStep, list[Any]]:
    deleted: list[Any] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "DELETE":
            deleted.append(await request.json())
        return web.json_response(there or {}, status=200 if there else 404)

    async def session() -> InstallStep:
        async with FakeServer(answer) as server:
            client = await KubeClient(server.access, SystemClock()).open()
            try:
                return await applying.remove(client, document)
            finally:
                await client.close()

    return asyncio.run(session()), deleted


def test_what_bears_our_name_and_was_made_by_somebody_else_is_not_taken_away():
    ours = {applying.MADE_BY: "yard-install", "part": "a"}
    document = thing("Deployment", labels=ours)
    step, deleted = removed(document, thing("Deployment", uid="u1", labels={"part": "a"}))
    assert (step.outcome, deleted) == (InstallOutcome.LEFT, [])
    step, deleted = removed(document, thing("Deployment", uid="u1", labels={applying.MADE_BY: "yard-install"}))
    assert step.outcome is InstallOutcome.GONE
    assert [body["preconditions"] for body in deleted] == [{"uid": "u1"}]
    assert removed(document, None)[0].outcome is InstallOutcome.ABSENT
