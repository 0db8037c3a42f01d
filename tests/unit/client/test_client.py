"""The client: finds its yard, says when there is none, and costs little to import."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gpuyard.client import AsyncClient, Client, Unreachable, peers, places, progress
from gpuyard.client.places import Address
from gpuyard.model.errors import NotFound, Refused
from tests.support.hosted import Hosted


def test_a_yard_is_looked_for_where_the_environment_says_then_at_home_then_on_the_machine():
    named = list(places.candidates({"GPUYARD_URL": "https://yard:1/", "GPUYARD_TOKEN": "t"}))
    assert named == [Address(url="https://yard:1", token="t")]
    own = list(places.candidates({"XDG_STATE_HOME": "/state"}))
    assert own == [Address(socket=Path("/state/gpuyard/yard.sock")), Address(socket=places.SHARED_SOCKET)]
    assert list(places.candidates({"GPUYARD_STATE": "/s"})) == [Address(socket=Path("/s/yard.sock"))]


def test_no_yard_is_said_with_the_next_command(tmp_path: Path):
    with pytest.raises(Unreachable, match="Start one with `yard up`"):
        Client.at_state(tmp_path).status()


def ask_status(place: Address, timeout_s: float = 60.0) -> None:
    Client(place, timeout_s).status()


def ask_status_async(place: Address, timeout_s: float = 60.0) -> None:
    asyncio.run(AsyncClient(place, timeout_s).status())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a stranger's socket")
@pytest.mark.parametrize("ask", [ask_status, ask_status_async])
def test_nothing_is_told_to_a_stranger_s_socket(tmp_path: Path, ask: Callable[[Address], None]):
    path = tmp_path / "yard.sock"
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(str(path))
        os.seteuid(65534)
        try:
            theirs.listen()
        finally:
            os.seteuid(0)
        with pytest.raises(Unreachable, match=r"yard\.sock is .*'s, and neither yours nor root's, so nothing was sent"):
            ask(Address(socket=path))
        came, _ = theirs.accept()
        with came:
            assert came.recv(1000) == b""


def test_a_token_loses_the_white_space_around_it_and_is_not_shown():
    (place,) = places.candidates({"GPUYARD_URL": "http://127.0.0.1:1", "GPUYARD_TOKEN": "SECRET\n"})
    assert place.token == "SECRET"
    assert "SECRET" not in repr(place)


@pytest.mark.parametrize("ask", [ask_status, ask_status_async])
def test_a_token_that_no_request_can_carry_is_refused_without_being_shown(
    ask: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(Refused, match="GPUYARD_TOKEN holds it") as refused:
        ask(Address(url="http://127.0.0.1:1", token="SECRET\r\nX-Other: 1"))
    assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize("url", ["http://[::1", "http://h:99999", "ftp://h", "http://", "h:7411", "http://a b:1"])
def test_an_address_that_is_none_is_refused_in_one_sentence(url: str):
    with pytest.raises(Refused, match="must be https://HOST:PORT or http://HOST:PORT"):
        Address(url=url)


@contextlib.contextmanager
def crowded(path: Path) -> Iterator[socket.socket]:
    """A socket at which as many wait as there is room for."""
    with contextlib.ExitStack() as stack:
        theirs = stack.enter_context(socket.socket(socket.AF_UNIX))
        theirs.bind(str(path))
        theirs.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                one = stack.enter_context(socket.socket(socket.AF_UNIX))
                one.setblocking(False)
                one.connect(str(path))
        yield theirs


def test_who_finds_a_crowd_at_the_socket_waits_for_room(tmp_path: Path):
    path = tmp_path / "yard.sock"
    turned_away = threading.Event()

    class Watched(socket.socket):
        def connect(self, address: Any) -> None:
            try:
                super().connect(address)
            except BlockingIOError:
                turned_away.set()
                raise

    with crowded(path) as theirs, ThreadPoolExecutor() as pool, Watched(socket.AF_UNIX) as ours:
        asked = pool.submit(peers.queue_up, ours, path, 60.0)
        assert turned_away.wait(60)
        assert not asked.done()
        theirs.accept()[0].close()
        asked.result(60)


@pytest.mark.parametrize("ask", [ask_status, ask_status_async])
def test_a_socket_whose_crowd_never_moves_is_said_to_be_silent(tmp_path: Path, ask: Callable[[Address, float], None]):
    path = tmp_path / "yard.sock"
    with crowded(path), pytest.raises(Unreachable, match=r"yard\.sock did not answer within 0\.1 s"):
        ask(Address(socket=path), 0.1)


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\ncontent-le", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"]
)
@pytest.mark.parametrize("ask", [ask_status, ask_status_async])
def test_a_yard_that_is_killed_in_the_middle_of_its_answer_is_gone(tmp_path: Path, ask, answer: bytes):
    path = tmp_path / "yard.sock"
    with socket.socket(socket.AF_UNIX) as yard, ThreadPoolExecutor(1) as background:
        yard.bind(str(path))
        yard.listen()

        def answers() -> None:
            with contextlib.suppress(OSError):
                while True:
                    came, _ = yard.accept()
                    with came, contextlib.suppress(BrokenPipeError):  # some only look who is there
                        came.recv(1000)
                        came.sendall(answer)

        background.submit(answers)
        with pytest.raises(Unreachable):
            ask(Address(socket=path))
        yard.shutdown(socket.SHUT_RDWR)


def test_a_connection_that_died_is_opened_again(tmp_path: Path):
    from tests.support.hosted import hosted

    with hosted(tmp_path) as first, first.client() as client:
        assert client.status()["pid"] == 4711
        first.hosting.close()
        with hosted(tmp_path):
            assert client.status()["pid"] == 4711


def test_tcp_and_socket_give_the_same_answers(served: Hosted, client: Client):
    with Client(Address(url=served.context.urls[0], token=served.token)) as over_tcp:
        assert over_tcp.status() == client.status()


def test_the_async_client_asks_the_same_questions(served: Hosted):
    async def converse() -> None:
        async with AsyncClient(served.place) as client:
            await client.submit([{"name": "a"}, {"name": "b"}])
            assert [job["name"] for job in await client.jobs()] == ["a", "b"]
            assert (await client.logs("a"))[2] is True
            with pytest.raises(NotFound):
                await client.why("ghost")
            follower = client.follow(after=0)
            assert (await anext(follower))["job"] == "a"
            await follower.aclose()  # type: ignore[attr-defined]

    asyncio.run(converse())


def test_both_clients_have_the_same_methods():
    def public(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    assert public(Client) - {"at_state"} == public(AsyncClient)


def test_an_async_client_without_a_yard_says_so(tmp_path: Path):
    async def ask() -> None:
        async with AsyncClient(Address(socket=tmp_path / "none")) as client:
            await client.status()

    with pytest.raises(Unreachable):
        asyncio.run(ask())


def test_progress_is_written_where_the_yard_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "progress"
    path.touch()
    monkeypatch.setenv("GPUYARD_PROGRESS", str(path))
    assert progress(3, 10)
    assert progress(saved=True)
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"done": 3, "total": 10}, {"saved": True}]


def test_progress_outside_a_yard_or_on_a_full_disk_disturbs_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("GPUYARD_PROGRESS", raising=False)
    assert not progress(1)
    monkeypatch.setenv("GPUYARD_PROGRESS", str(tmp_path))
    assert not progress(1)


def test_importing_the_client_loads_no_http_library_and_progress_none_at_all():
    code = "import sys; from gpuyard.client import Client, progress; print([m for m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"httpx2", "fastapi", "pydantic", "numpy", "asyncio"} & set(re_words(loaded))


def re_words(text: str) -> list[str]:
    return [word.strip("[]', \n") for word in text.split(",")]
