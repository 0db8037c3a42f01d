"""Who is let in: limits in all and for each peer, an end to waiting, and a log that stays short."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.cli.keeping import yard_log
from gpuyard.server.doors import admitting, descriptors, peer
from gpuyard.server.doors.admitting import Door, Limits


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        opened.listen(128)
        yield opened


def knock(door: Door) -> socket.socket:
    one = socket.socket()
    one.connect(door.getsockname())
    one.settimeout(300)
    return one


def test_one_peer_fills_its_share_and_not_the_house(listening: socket.socket, monkeypatch: pytest.MonkeyPatch):
    peers = iter(["uid 7", "uid 7", "uid 7", "uid 8", "uid 9", "uid 7"])
    monkeypatch.setattr(admitting, "peer_of", lambda _: next(peers))
    with Door(listening, Limits(in_all=3, per_peer=2)) as door:
        outside = [knock(door) for _ in range(5)]
        inside = [door.accept()[0] for _ in range(3)]  # the third of peer 7 is turned away
        with pytest.raises(BlockingIOError):
            door.accept()  # the house is full for peer 9
        assert b"too many connections" in outside[2].recv(1000)
        assert b"429" in outside[4].recv(1000)
        inside[0].close()
        inside[0].close()
        outside.append(knock(door))
        inside.append(door.accept()[0])
        for each in (*inside, *outside):
            each.close()


def test_the_owner_is_not_a_crowd(listening: socket.socket):
    with Door(listening, Limits(in_all=5, per_peer=1)) as door:
        outside = [knock(door) for _ in range(4)]
        for each in [*outside, *(door.accept()[0] for _ in range(4))]:
            each.close()


def test_without_descriptors_whoever_knocks_is_turned_away_without_a_word_to_the_log(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
):
    import errno

    def full(_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    with Door(listening, Limits(5, 5)) as door, knock(door):
        monkeypatch.setattr(socket.socket, "accept", full)
        with pytest.raises(BlockingIOError):
            door.accept()


def test_the_kernel_tells_whose_a_connection_within_this_machine_is(listening: socket.socket):
    with socket.socket() as one:
        one.connect(listening.getsockname())
        came, _ = listening.accept()
        with came:
            assert peer.tcp_uid(came) == os.getuid()
            assert admitting.peer_of(came) == f"uid {os.getuid()}"


@pytest.mark.parametrize("descriptors_", [256, 1024, 4096, 20_000, 1 << 20])
def test_the_doors_leave_more_than_half_of_the_descriptors_to_the_loop(descriptors_: int):
    local, remote = descriptors.limits_of(descriptors_)
    assert local.in_all + remote.in_all < descriptors_ / 2
    assert 0 < local.per_peer < local.in_all
    assert 0 < remote.per_peer < remote.in_all


def test_a_line_that_comes_again_and_again_is_written_once_a_minute(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    now = [0.0]
    handler = yard_log.Folding(tmp_path, lambda: now[0])
    logger = logging.getLogger("folding")
    logger.addHandler(handler)
    logger.propagate = False
    for number in range(10_000):
        logger.error("socket %d is broken", number)
    assert capsys.readouterr().err == "socket 0 is broken\n"
    now[0] = 61.0
    logger.error("socket %d is broken", 1)
    assert capsys.readouterr().err == "socket 1 is broken (and 9999 times more since it was last written)\n"
    logger.removeHandler(handler)
