"""A cluster that is not reached is told in one sentence: which server, what is wrong, what to look at next."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web

from gpuyard.kube.client import KubeClient
from gpuyard.kube.credentials import KubeAccess
from gpuyard.kube.replies import ApiReply, ApiUnreachable, unreached
from gpuyard.model.errors import Denied, Refused
from gpuyard.runtime.clock import SystemClock
from gpuyard.runtime.clustered import scheduler
from tests.support.kube.fake_server import FakeServer

SERVER = "https://10.0.0.1:6443"


def certificate(words: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = words
    return error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "x"), "the connection is refused"),
        (socket.gaierror(socket.EAI_NONAME, "x"), "has a name that cannot be resolved from here"),
        (OSError(errno.EHOSTUNREACH, "x"), "no way leads there"),
        (certificate("self-signed certificate"), "a certificate that is not trusted: self-signed certificate"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"), "is it https that is spoken there?"),
        (TimeoutError(), "GET /api/v1/nodes: no answer within 30 s"),
        (aiohttp.ServerDisconnectedError(), "GET /api/v1/nodes: Server disconnected"),
        (aiohttp.ClientPayloadError("a\x1b[2J\n" + "b" * 5000), "GET /api/v1/nodes: a"),
    ],
)
def test_what_is_wrong_is_one_sentence_that_names_the_server(error: BaseException, told: str):
    words = str(unreached(SERVER, "GET /api/v1/nodes", error, 30.0))
    assert words.startswith(f"the API server {SERVER}")
    assert told in words
    assert words.isprintable()
    assert len(words) < 600
    assert "Connect call failed" not in words


def test_a_cluster_that_is_not_there_is_told_alike_whatever_is_asked():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        server = f"http://127.0.0.1:{held.getsockname()[1]}"

        async def ask() -> list[str]:
            client = await KubeClient(KubeAccess(server), SystemClock()).open()
            told = []
            for work in (client.get("/api/v1/nodes"), client.post("/api/v1/pods", b"{}")):
                with pytest.raises(ApiUnreachable) as found:
                    await work
                told.append(str(found.value))
            with pytest.raises(ApiUnreachable) as broken:
                async with client.lines("/api/v1/pods", {}, 5.0):
                    pass
            await client.close()
            return [*told, str(broken.value)]

        (words,) = set(asyncio.run(ask()))
    assert words == (
        f"the API server {server} cannot be reached, the connection is refused: "
        "does it run, is it the one you mean? kubectl cluster-info asks it the same"
    )


async def _answer(status: int) -> web.StreamResponse:
    return web.json_response({"kind": "Status", "message": "Unauthorized", "code": status}, status=status)


def test_a_server_that_speaks_no_tls_is_told_so():
    async def ask() -> str:
        async with FakeServer(lambda _: _answer(200)) as fake:
            access = replace(fake.access, server=fake.access.server.replace("http:", "https:"))
            client = await KubeClient(access, SystemClock()).open()
            with pytest.raises(ApiUnreachable) as found:
                await client.get("/api/v1/nodes")
            await client.close()
        return str(found.value)

    assert "is it https that is spoken there?" in asyncio.run(ask())


def test_somebody_whom_the_server_does_not_know_is_told_to_log_in_again():
    async def ask() -> str:
        async with FakeServer(lambda _: _answer(401)) as fake:
            with pytest.raises(Denied) as found:
                await scheduler._check_rights(fake.access, SystemClock())
        return str(found.value)

    told = asyncio.run(ask())
    assert "does not know who you are (Unauthorized)" in told
    assert "log in again" in told


def check(reply: web.StreamResponse) -> str:
    async def answer(_: web.Request) -> web.StreamResponse:
        return reply

    async def ask() -> str:
        async with FakeServer(answer) as fake:
            with pytest.raises(Refused) as found:
                await scheduler._check_rights(fake.access, SystemClock())
        return str(found.value)

    return asyncio.run(ask())


@pytest.mark.parametrize("user", ["system:anonymous", ""])
def test_a_request_that_came_without_an_identity_is_told_so(user: str):
    words = f'nodes is forbidden: User "{user}" cannot list resource "nodes" in API group "" at the cluster scope'
    told = check(web.json_response({"kind": "Status", "message": words, "code": 403}, status=403))
    assert f"does not know who you are ({words}; the request came without an identity)" in told
    assert "log in again" in told


def test_somebody_who_is_known_and_may_not_is_not_told_to_log_in_again():
    words = 'nodes is forbidden: User "jane" cannot list resource "nodes"'
    told = check(web.json_response({"kind": "Status", "message": words, "code": 403}, status=403))
    assert told.startswith(f"you may not read the whole cluster ({words}); set GPUYARD_URL")


def test_what_is_no_api_server_is_told_at_once_and_in_its_own_words():
    told = check(web.Response(text="Client sent an HTTP request to an HTTPS server.\n", status=400))
    assert "(HTTP 400: Client sent an HTTP request to an HTTPS server): see" in told
    assert "see `server` in kubectl config view --minify" in told


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "HTTP 502"),
        (b" \n", "HTTP 502"),
        (b"bad\n gateway\x1b[2J", "HTTP 502: bad gateway\\x1b[2J"),
        (b'["no"]', 'HTTP 502: ["no"]'),
    ],
)
def test_an_answer_that_is_no_status_is_told_as_it_is_on_one_line(body: bytes, told: str):
    assert ApiReply(502, body).why() == told
    assert len(ApiReply(502, body + b"x" * 10_000_000).why()) < 300
