"""Writes over kept connections: every answer is read whole, however it comes, and a lost one is never taken for one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.kube.lanes import BODY_MAX, HEAD_MAX, BrokenReply, PostLanes, read
from gpuyard.kube.replies import ApiReply, ApiUnreachable

BY_LENGTH = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\n{...}"
IN_CHUNKS = b"HTTP/1.1 409 Conflict\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\n{..\r\n2\r\n.}\r\n0\r\n\r\n"
BUSY = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\nContent-Length: 0\r\n\r\n"
AFTER_A_HINT = b"HTTP/1.1 103 Early Hints\r\n\r\n" + BY_LENGTH


@pytest.mark.parametrize("whole", [BY_LENGTH, IN_CHUNKS, BUSY, AFTER_A_HINT])
@given(data=st.data())
def test_an_answer_is_read_once_all_of_it_is_there_and_not_before(whole: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert read(whole[:cut]) is None
    found = read(whole)
    assert found is not None
    assert found.keeps


def test_answers_say_what_the_server_said() -> None:
    assert read(BY_LENGTH) == read(AFTER_A_HINT)
    assert [found.reply for each in (BY_LENGTH, IN_CHUNKS, BUSY) if (found := read(each)) is not None] == [
        ApiReply(201, b"{...}"),
        ApiReply(409, b"{...}"),
        ApiReply(429, b"", 7.0),
    ]


def test_an_answer_of_no_told_length_ends_with_its_connection() -> None:
    told = b"HTTP/1.1 500 Internal Server Error\r\n\r\nsorry"
    assert read(told) is None
    found = read(told, ended=True)
    assert found is not None
    assert (found.reply, found.keeps) == (ApiReply(500, b"sorry"), False)


def test_half_an_answer_is_none_when_its_connection_ends() -> None:
    assert read(BY_LENGTH[:-1], ended=True) is None
    assert read(IN_CHUNKS[:-6], ended=True) is None


def test_a_connection_that_the_server_closes_is_not_used_again() -> None:
    found = read(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    assert found is not None
    assert not found.keeps


@pytest.mark.parametrize(
    "nonsense",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 what\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"x" * (HEAD_MAX + 1),
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n" + b"x" * (BODY_MAX + 1),
    ],
)
def test_what_is_no_answer_is_named_so(nonsense: bytes) -> None:
    with pytest.raises(BrokenReply):
        read(nonsense)


# --- over a connection -------------------------------------------------------------------------------


class Server:
    """Answers each request of a connection with the next reply; b"" hangs up, None says nothing for ever, and after a
    number of seconds the next one follows."""

    def __init__(self, *replies: bytes | float | None) -> None:
        self.replies = list(replies)
        self.connections = 0
        self.requests: list[bytes] = []
        self.closed: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self.answer(reader, writer):
                pass
        except asyncio.IncompleteReadError:
            pass
        writer.close()
        self.closed.append(writer)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        self.requests.append(head + await reader.readexactly(length))
        reply = self.replies.pop(0)
        if isinstance(reply, float):
            await asyncio.sleep(reply)
            reply = self.replies.pop(0)
        if reply is None:
            await reader.read()
        assert not isinstance(reply, float)
        writer.write(reply or b"")
        return bool(reply)


@asynccontextmanager
async def lanes(server: Server, count: int = 4) -> AsyncIterator[PostLanes]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    made = PostLanes(f"http://127.0.0.1:{port}/behind", None, "", count)
    try:
        yield made
    finally:
        made.close()
        listening.close()
        while len(server.closed) < server.connections:
            await asyncio.sleep(0.01)
        await asyncio.gather(*(writer.wait_closed() for writer in server.closed), return_exceptions=True)


def test_one_connection_serves_one_request_after_another() -> None:
    server = Server(BY_LENGTH, BUSY, IN_CHUNKS)

    async def three() -> list[int]:
        async with lanes(server) as made:
            return [(await made.post("/pods/p/binding", b"{}", "t0ken", 30)).status for _ in range(3)]

    assert asyncio.run(three()) == [201, 429, 409]
    assert server.connections == 1
    assert server.requests[0].startswith(b"POST /behind/pods/p/binding HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer t0ken\r\n" in server.requests[0]
    assert server.requests[0].endswith(b"Content-Length: 2\r\n\r\n{}")


def test_a_lost_answer_is_told_and_the_next_request_has_a_new_connection() -> None:
    server = Server(b"", BY_LENGTH)

    async def two() -> int:
        async with lanes(server) as made:
            with pytest.raises(ApiUnreachable, match="/pods/p/binding"):
                await made.post("/pods/p/binding", b"{}", "", 30)
            reply: ApiReply = await made.post("/pods/p/binding", b"{}", "", 30)
            return reply.status

    assert asyncio.run(two()) == 201
    assert server.connections == 2


def test_no_answer_in_time_is_told_and_its_connection_is_never_heard_again() -> None:
    server = Server(None, BY_LENGTH)

    async def two() -> int:
        async with lanes(server) as made:
            with pytest.raises(ApiUnreachable, match=r"no answer within 0\.05 s"):
                await made.post("/x", b"{}", "", 0.05)
            reply: ApiReply = await made.post("/x", b"{}", "", 30)
            return reply.status

    assert asyncio.run(two()) == 201
    assert server.connections == 2


def test_each_request_of_a_connection_has_its_own_time() -> None:
    server = Server(BY_LENGTH, 1.3, BY_LENGTH, None)

    async def three() -> list[int]:
        async with lanes(server) as made:
            told = [(await made.post("/x", b"{}", "", within)).status for within in (1.0, 30.0)]
            with pytest.raises(ApiUnreachable, match=r"no answer within 0\.05 s"):
                async with asyncio.timeout(10):
                    await made.post("/x", b"{}", "", 0.05)
            return told

    assert asyncio.run(three()) == [201, 201]
    assert server.connections == 1


def test_a_server_that_closed_an_idle_connection_is_met_by_a_new_one() -> None:
    closing = BY_LENGTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    server = Server(closing, BY_LENGTH)

    async def two() -> list[int]:
        async with lanes(server) as made:
            return [(await made.post("/x", b"{}", "", 30)).status for _ in range(2)]

    assert asyncio.run(two()) == [201, 201]
    assert server.connections == 2


def test_no_more_are_under_way_than_there_are_lanes() -> None:
    server = Server(*[BY_LENGTH] * 20)

    async def many() -> None:
        async with lanes(server, count=3) as made:
            await asyncio.gather(*(made.post("/x", b"{}", "", 30) for _ in range(20)))

    asyncio.run(many())
    assert len(server.requests) == 20
    assert server.connections <= 3


def test_a_server_that_is_not_there_is_told() -> None:
    async def one() -> None:
        with pytest.raises(ApiUnreachable):
            await PostLanes("http://127.0.0.1:1", None, "", 1).post("/x", b"{}", "", 1)

    asyncio.run(one())
