"""Nothing is told to anybody who is not known: tokens, codes, hosts, origins, sizes, sockets."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest

from gpuyard.client import Client
from gpuyard.client.errors import Unreachable
from gpuyard.client.places import Address, socket_path, token_path
from gpuyard.model.errors import Refused
from gpuyard.runtime.clock import SystemClock
from gpuyard.server.doors import gate, listening, renewing
from gpuyard.server.doors.access import Access, make_token, peer_caller
from gpuyard.server.doors.listening import Tcp
from gpuyard.server.hosting import Doors, Hosting
from tests.support.fake_yard import FakeYard
from tests.support.hosted import Hosted

PATHS = (
    "/api/v1/status", "/api/v1/jobs", "/api/v1/nodes", "/api/v1/events/stream", "/metrics", "/livez", "/readyz",
    "/version", "/openapi.json", "/nothing",
)  # fmt: skip


def bearer(served: Hosted) -> dict[str, str]:
    return {"Authorization": f"Bearer {served.token}"}


@pytest.mark.parametrize("path", PATHS)
def test_over_tcp_nothing_answers_without_a_token(served: Hosted, path: str):
    answer = served.tcp("GET", path)
    assert answer.status == 401
    assert answer.json["error"] == "You are not known here."


def test_the_token_opens_the_api(served: Hosted):
    assert served.tcp("GET", "/api/v1/status", **bearer(served)).json["pid"] == 4711


@pytest.mark.parametrize("header", ["Bearer wrong", "Bearer ", "Basic abc", "bearer"])
def test_a_wrong_token_opens_nothing(served: Hosted, header: str):
    assert served.tcp("GET", "/api/v1/status", Authorization=header).status == 401


def test_socket_and_token_are_their_owner_s_alone(served: Hosted):
    for path in (socket_path(served.state), token_path(served.state)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_caller_on_the_socket_is_known_by_the_kernel_s_word(served: Hosted):
    with served.client() as client:
        client.submit([{"name": "a"}])
    caller = served.yard.callers[0]
    assert (caller.uid, caller.admin) == (os.getuid(), True)
    assert caller.user == peer_caller(os.getuid(), True).user


def test_a_stranger_on_the_socket_is_let_in_only_where_it_is_shared():
    stranger = f"peer:{os.getuid() + 1}" if os.getuid() else "peer:1"
    assert Access("t", lambda: 0.0).by_socket(stranger) is None
    caller = Access("t", lambda: 0.0, shared=True).by_socket(stranger)
    assert caller is not None
    assert not caller.admin


def test_a_page_under_a_foreign_name_is_turned_away(served: Hosted):
    answer = served.tcp("GET", "/api/v1/status", Host="evil.example", **bearer(served))
    assert answer.status == 421


def test_the_page_s_code_is_good_once(served: Hosted):
    code = served.context.page_url().partition("#")[2]
    first = served.tcp("POST", "/session", {"code": code})
    assert first.status == 200
    session = first.json["session"]
    assert served.tcp("GET", "/api/v1/status", Authorization=f"Bearer {session}").status == 200
    assert served.tcp("POST", "/session", {"code": code}).status == 401


def test_nothing_is_put_where_a_browser_would_send_it_to_another_port(served: Hosted):
    code = served.context.page_url().partition("#")[2]
    first = served.tcp("POST", "/session", {"code": code})
    assert "set-cookie" not in first.headers
    stolen = f"session={first.json['session']}; gpuyard_session={first.json['session']}"
    assert served.tcp("GET", "/api/v1/status", Cookie=stolen).status == 401
    own = f"http://127.0.0.1:{served.port}"
    assert served.tcp("POST", "/api/v1/jobs", {"jobs": [{"name": "a"}]}, Cookie=stolen, Origin=own).status == 401


def test_codes_and_sessions_grow_old():
    now = [0.0]
    access = Access("t", lambda: now[0])
    code = access.new_code()
    session = access.exchange(code)
    assert session
    assert access.by_bearer(f"Bearer {session}")
    late = access.new_code()
    now[0] = 13 * 3600.0
    assert access.exchange(late) is None
    assert access.by_bearer(f"Bearer {session}") is None


def test_a_body_that_is_too_large_is_not_read(served: Hosted, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gate, "BODY_MAX", 100)
    answer = served.tcp("POST", "/api/v1/jobs", b"x" * 200, **bearer(served))
    assert answer.status == 413
    assert "Submit it in parts" in answer.json["hint"]


def test_a_token_that_others_can_read_is_refused(tmp_path: Path):
    path = tmp_path / "token"
    first = make_token(path)
    assert make_token(path) == first
    path.chmod(0o644)
    with pytest.raises(Refused, match="Others can read"):
        make_token(path)


# --- where it listens ----------------------------------------------------------------------------


def test_beyond_this_machine_tls_is_required():
    with pytest.raises(Refused, match="needs TLS"):
        listening.open_tcp(Tcp("0.0.0.0", 0))


def certificate(folder: Path, name: str = "certificate") -> tuple[str, str]:
    """One of its own, for 127.0.0.1, and its key."""
    paths = str(folder / name), str(folder / f"{name}.key")
    made = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=yard -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*made.split(), "-out", paths[0], "-keyout", paths[1]], check=True, capture_output=True)
    return paths


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl, for a certificate")
def test_a_certificate_that_is_replaced_is_shown_to_whoever_comes_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(renewing, "LOOK_S", 0.02)
    (old, old_key), (new, new_key) = certificate(tmp_path, "old"), certificate(tmp_path, "new")
    where = Tcp("127.0.0.1", 0, str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))

    def show(content: str, name: str) -> None:
        shutil.copy(content, tmp_path / "coming")
        os.replace(tmp_path / "coming", name)

    show(old, where.certificate)
    show(old_key, where.key)
    hosting = Hosting(FakeYard(), Doors(tmp_path, tcp=where), SystemClock())
    address = hosting.start().urls[0]
    try:
        assert distrust(address, tmp_path, old) == ""
        assert "GPUYARD_CERTIFICATE" in distrust(address, tmp_path, new)
        show(new_key, where.key)  # a moment at which both are not of each other
        assert distrust(address, tmp_path, old) == ""
        show(new, where.certificate)
        pause, end = threading.Event(), time.monotonic() + 60
        while distrust(address, tmp_path, new):
            assert time.monotonic() < end, "the new one is shown"
            pause.wait(0.05)
    finally:
        hosting.close()


def distrust(address: str, state: Path, authority: str) -> str:
    """What is told to who trusts that certificate alone; "" if they are answered."""
    token = token_path(state).read_text().strip()
    try:
        with Client(Address(url=address, token=token, certificate=authority)) as client:
            assert client.status()["pid"] == 4711
    except Unreachable as told:
        return str(told)
    return ""


def test_a_file_of_certificates_that_is_none_is_named(tmp_path: Path):
    (tmp_path / "none").write_text("no certificate")
    for name in ("none", "away"):
        client = Client(Address(url="https://127.0.0.1:1", certificate=str(tmp_path / name)))
        with pytest.raises(Refused, match=f"{name} .*GPUYARD_CERTIFICATE"):
            client.status()


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl, for a certificate")
def test_who_never_says_hello_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The attack: connections that take TLS's first word a minute to say, each in a place that others want."""
    names = list(certificate(tmp_path))
    monkeypatch.setattr(listening, "HANDSHAKE_S", 0.2)
    hosting = Hosting(FakeYard(), Doors(tmp_path, tcp=Tcp("127.0.0.1", 0, *names)), SystemClock())
    address = hosting.start().urls[0]
    try:
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=30) as silent:
            assert silent.recv(100) == b"", "they hang up"
        token = token_path(tmp_path).read_text().strip()
        with Client(Address(url=address, token=token, certificate=names[0])) as known:
            assert known.status()["pid"] == 4711
    finally:
        hosting.close()


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (Tcp("", 0), "names nothing to listen on"),
        (Tcp("no-such-host.invalid", 0, "c", "k"), "c and k are no certificate with its key"),
        (Tcp("0.0.0.0", 0, os.devnull, os.devnull), "are no certificate with its key"),
    ],
)
def test_what_cannot_be_listened_on_is_said_in_one_sentence(where: Tcp, words: str):
    with pytest.raises(Refused, match=words):
        listening.open_tcp(where)


@pytest.mark.parametrize("host", ["a..b", "x" * 300, "no-such-host.invalid", "1.2.3.4"])
def test_a_host_that_is_not_here_is_said_too(host: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Tcp, "is_local", True)
    with pytest.raises(Refused, match="Cannot listen on"):
        listening.open_tcp(Tcp(host, 0))


def test_a_door_that_refuses_to_open_leaves_nothing_open(tmp_path: Path):
    yard = FakeYard()
    hosting = Hosting(yard, Doors(tmp_path, tcp=Tcp("0.0.0.0")), SystemClock())
    with pytest.raises(Refused, match="needs TLS"):
        hosting.start()
    assert yard.closed_with is False
    assert not socket_path(tmp_path).exists()


def test_a_busy_port_means_the_next_one():
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        opened, found = listening.open_tcp(Tcp("127.0.0.1", port))
        opened.close()
    assert found > port


def test_a_port_that_somebody_points_at_is_that_one_or_none():
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        with pytest.raises(Refused, match=f"Port {port} of 127.0.0.1 is busy, and no other was asked for"):
            listening.open_tcp(Tcp("127.0.0.1", port, only=True))
    opened, found = listening.open_tcp(Tcp("127.0.0.1", port, only=True))
    opened.close()
    assert found == port


def test_a_folder_too_deep_for_a_socket_has_it_elsewhere(tmp_path: Path):
    deep = tmp_path / ("x" * 120)
    assert len(os.fsencode(socket_path(deep))) <= 100
