"""Kubeconfigs, tokens, plugins and a pod's own account, as every Kubernetes tool reads them."""

from __future__ import annotations

import asyncio
import base64
import json
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuyard.kube import credentials
from gpuyard.kube.credentials import KubeAccess, KubeIdentity
from gpuyard.model.errors import Refused
from gpuyard.runtime.clock import SystemClock


def config(path: Path, user: dict[str, Any], **cluster: Any) -> Path:
    document = {
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
            {"name": "two", "context": {"cluster": "d", "user": "u"}},
        ],
        "clusters": [
            {"name": "c", "cluster": {"server": "https://one:6443/", **cluster}},
            {"name": "d", "cluster": {"server": "https://two"}},
        ],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


def read(path: Path, context: str = "") -> KubeAccess:
    return credentials.of_kubeconfigs([path], context)


def test_the_current_context_is_used_unless_another_is_named(tmp_path: Path):
    path = config(tmp_path / "config", {"token": "t"})
    one, two = read(path), read(path, "two")
    assert (one.server, one.namespace, one.token) == ("https://one:6443", "team", "t")
    assert two.server == "https://two"


def test_certificates_are_read_inline_and_from_files_beside_the_kubeconfig(tmp_path: Path):
    (tmp_path / "ca.pem").write_bytes(b"authority")
    inline = {"client-certificate-data": base64.b64encode(b"me").decode(), "client-key-data": "a2V5"}
    access = read(config(tmp_path / "config", inline, **{"certificate-authority": "ca.pem"}))
    assert (access.ca, access.certificate, access.key) == (b"authority", b"me", b"key")


def test_secrets_are_not_printed(tmp_path: Path):
    access = KubeAccess("https://x", token="hidden-token", key=b"hidden-key")
    assert "hidden" not in repr(access)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[]", "does not have the form"),
        ("root:x:0", "does not have the form"),
        ("{", "is no kubeconfig"),
        ("{}", "has no current-context; `kubectl config use-context NAME` chooses one"),
        ("", "has no current-context"),
        ("current-context: x", "has no context 'x'; it has: none"),
        (
            "{current-context: x, contexts: [{name: x, context: {cluster: c}}], clusters: [{name: c}]}",
            "is no kubeconfig",
        ),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_refused_in_one_sentence(tmp_path: Path, text: str, told: str):
    (tmp_path / "config").write_text(text)
    with pytest.raises(Refused, match=told):
        read(tmp_path / "config")


def test_a_context_that_is_not_there_names_those_that_are(tmp_path: Path):
    with pytest.raises(Refused, match="has no context 'three'; it has: one, two"):
        read(config(tmp_path / "config", {}), "three")


def test_the_named_file_comes_first_then_the_environment_then_home_then_the_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    here = config(tmp_path / "here", {"token": "here"})
    there = config(tmp_path / "there", {"token": "there"})
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOME": str(tmp_path)}
    monkeypatch.setattr(credentials, "of_pod", lambda _: KubeAccess("https://pod", token="pod"))
    assert credentials.find(environ=pod).token == "pod"
    (tmp_path / ".kube").mkdir()
    config(tmp_path / ".kube" / "config", {"token": "home"})
    assert credentials.find(environ=pod).token == "home"
    assert credentials.find(environ=pod | {"KUBECONFIG": str(there)}).token == "there"
    assert credentials.find(str(here), environ=pod | {"KUBECONFIG": str(there)}).token == "here"


def test_where_nothing_names_a_cluster_it_is_told_what_does(tmp_path: Path):
    told = "no cluster is named: set KUBECONFIG to a kubeconfig, write one to ~/.kube/config, or run inside a pod"
    for context in ("", "one"):
        with pytest.raises(Refused, match=told):
            credentials.find(context=context, environ={"HOME": str(tmp_path / "nowhere"), "KUBECONFIG": ":"})


def test_of_several_files_those_that_are_there_are_read_as_one_and_the_first_to_say_something_is_right(tmp_path: Path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "token").write_text("theirs")
    first, second = tmp_path / "first", tmp_path / "sub" / "second"
    first.write_text(
        "contexts: [{name: three, context: {cluster: c, user: mine}}]\nusers: [{name: mine, user: {token: m}}]"
    )
    config(second, {"tokenFile": "token"})
    listed = f":{tmp_path}/nowhere::{first}:{second}:"
    one, three = (credentials.find(context=name, environ={"KUBECONFIG": listed}) for name in ("", "three"))
    assert (one.server, three.server, three.token) == ("https://one:6443", "https://one:6443", "m")
    assert asyncio.run(KubeIdentity(one, SystemClock()).bearer()) == "theirs"
    with pytest.raises(Refused, match="has no context 'four'; it has: three, one, two"):
        credentials.find(context="four", environ={"KUBECONFIG": listed})


def test_a_file_that_alone_is_named_and_not_there_is_told(tmp_path: Path):
    for listed in (f"{tmp_path}/nowhere", f":{tmp_path}/nowhere:", f"{tmp_path}/nowhere:{tmp_path}/neither"):
        with pytest.raises(Refused, match="nowhere cannot be read: No such file"):
            credentials.find(environ={"KUBECONFIG": listed, "HOME": str(tmp_path)})


def test_a_pod_has_an_account_whose_token_is_read_again(tmp_path: Path):
    for name, content in {"namespace": "yard\n", "ca.crt": "ca", "token": "first\n"}.items():
        (tmp_path / name).write_text(content)
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    access = credentials.of_pod(environ, tmp_path)
    assert (access.server, access.namespace) == ("https://[fd00::1]:6443", "yard")
    identity = KubeIdentity(access, SystemClock())
    assert asyncio.run(identity.bearer()) == "first"
    (tmp_path / "token").write_text("second")
    assert asyncio.run(identity.bearer()) == "first"
    identity.refused()
    assert asyncio.run(identity.bearer()) == "second"


def test_the_white_space_around_a_token_is_none_of_it(tmp_path: Path):
    kept = config(tmp_path / "config", {})
    kept.write_text(kept.read_text().replace("user: {}", "user:\n    token: |\n      MINE\n"))
    assert read(kept).token == "MINE"
    identity = plugin(tmp_path, """cat <<'END'\n{"status": {"token": "MINE\\n"}}\nEND""")
    assert asyncio.run(identity.bearer()) == "MINE"


@pytest.mark.parametrize("bad", [b"SECRET\nSECRET", b"SECRET\x00", b"SECRET\xff", "SECRET\u2028SECRET".encode()])
def test_a_token_that_no_request_can_carry_is_refused_by_the_place_where_it_was_read_and_never_shown(
    tmp_path: Path, bad: bytes
):
    (tmp_path / "token").write_bytes(bad)
    from_file = config(tmp_path / "of a file", {"tokenFile": str(tmp_path / "token")})
    said = json.dumps({"status": {"token": bad.decode(errors="replace")}})
    told = []
    for ask in (
        lambda: read(config(tmp_path / "inline", {"token": bad.decode(errors="replace")})),
        lambda: asyncio.run(KubeIdentity(read(from_file), SystemClock()).bearer()),
        lambda: asyncio.run(plugin(tmp_path, f"cat <<'END'\n{said}\nEND").bearer()),
    ):
        with pytest.raises(Refused, match="must be printable ASCII on one line") as refused:
            ask()
        told.append(str(refused.value))
    assert "SECRET" not in "".join(told)
    assert [part in words for part, words in zip(("inline", "token", "plugin"), told, strict=True)] == [True] * 3


def plugin(tmp_path: Path, script: str) -> KubeIdentity:
    program = tmp_path / "plugin"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    said = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "./plugin",
        "env": [{"name": "A", "value": "b"}],
    }
    return KubeIdentity(read(config(tmp_path / "config", {"exec": said})), SystemClock())


def test_a_plugin_gives_tokens_and_is_asked_again_only_when_they_run_out(tmp_path: Path):
    answer = '{"status": {"token": "%s", "expirationTimestamp": "2999-01-01T00:00:00Z"}}'
    identity = plugin(tmp_path, f"echo >> {tmp_path}/asked; echo '{answer % 'given'}' | sed s/given/given-$A/")
    assert [asyncio.run(identity.bearer()) for _ in range(3)] == ["given-b"] * 3
    assert (tmp_path / "asked").read_text() == "\n"


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo no way >&2; exit 1", "failed: no way"),
        ("echo nonsense", "printed no ExecCredential with a status; run it by hand"),
        ("echo '{\"status\": {}}'", "no token"),
        ("echo '[]'", "printed no ExecCredential"),
        ("exit 3", "failed: exit 3"),
        (
            """echo '{"status": {"token": "t", "expirationTimestamp": "yesterday"}}'""",
            "is good until 'yesterday', which is no time such as 2030-01-31T12:00:00Z",
        ),
    ],
)
def test_a_plugin_that_gives_nothing_is_named(tmp_path: Path, script: str, told: str):
    with pytest.raises(Refused, match=told):
        asyncio.run(plugin(tmp_path, script).bearer())


def test_of_what_a_plugin_says_when_it_fails_one_line_of_some_length_is_told(tmp_path: Path):
    with pytest.raises(Refused) as refused:
        asyncio.run(plugin(tmp_path, "head -c 10000000 /dev/zero | tr '\\0' x >&2; exit 1").bearer())
    assert "failed: xxx" in str(refused.value)
    assert len(str(refused.value)) < 600 + len(str(tmp_path))


def test_a_plugin_that_is_not_there_or_never_ends_is_told_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    identity = plugin(tmp_path, f"echo $$ > {tmp_path}/pid; sleep 600 & wait")
    monkeypatch.setattr(credentials, "PLUGIN_S", 0.5)
    with pytest.raises(Refused, match=r"gave nothing within 0\.5 s; run it by hand to see why"):
        asyncio.run(identity.bearer())
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
    (tmp_path / "plugin").unlink()
    with pytest.raises(Refused, match="cannot be run: No such file or directory"):
        asyncio.run(identity.bearer())


# --- what is no kubeconfig ------------------------------------------------------------------------


@pytest.mark.parametrize("server", ["https://[::1", "https://one:99999", "ftp://one", "one:6443", "https://me:pw@one"])
def test_a_server_that_is_none_is_told_with_the_context_that_names_it(tmp_path: Path, server: str):
    with pytest.raises(Refused, match=r"context one of .*: its server must be https://HOST:PORT") as refused:
        read(config(tmp_path / "config", {}, server=server))
    assert ":pw@" not in str(refused.value)


@pytest.mark.parametrize("text", ["users: [{token: SECRET: x}]", "token: *SECRET", 'token: "SECRET', "a: 2020-99-99"])
def test_a_mistake_in_a_kubeconfig_is_told_by_its_place_and_not_by_the_line_that_may_hold_a_secret(
    tmp_path: Path, text: str
):
    (tmp_path / "config").write_text(text)
    with pytest.raises(Refused, match="it is no YAML") as refused:
        read(tmp_path / "config")
    assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize("data", ["ü", "a", "===="])
def test_data_that_is_no_base64_is_named(tmp_path: Path, data: str):
    with pytest.raises(Refused, match="client-key-data is no base64"):
        read(config(tmp_path / "config", {"client-key-data": data}))


def pair(folder: Path, name: str, *more: str) -> dict[str, str]:
    """A certificate and its key, as a user of a kubeconfig has them."""
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-subj", f"/CN={name}"]
    files = {"client-certificate": f"{name}.pem", "client-key": f"{name}.key"}
    out = ["-out", files["client-certificate"], "-keyout", files["client-key"]]
    subprocess.run([*made, *out, *(more or ("-nodes",))], cwd=folder, check=True, capture_output=True)
    return files


def tls(folder: Path, user: dict[str, Any], **cluster: Any) -> Any:
    return KubeIdentity(read(config(folder / "config", user, **cluster)), SystemClock()).tls()


def test_a_certificate_with_its_key_and_an_authority_with_words_around_it_are_taken(tmp_path: Path):
    files = pair(tmp_path, "me")
    authority = tmp_path / "ca.pem"
    authority.write_text("# Größe\n" + (tmp_path / files["client-certificate"]).read_text())
    assert len(tls(tmp_path, files, **{"certificate-authority": str(authority)}).get_ca_certs()) == 1


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"words", b" ", b"-----BEGIN CERTIFICATE-----\nx\n"])
def test_an_authority_that_is_no_certificate_is_told_so_and_nobody_else_is_trusted(tmp_path: Path, content: bytes):
    (tmp_path / "ca").write_bytes(content)
    with pytest.raises(Refused, match="its certificate-authority holds no certificate in PEM form"):
        tls(tmp_path, {}, **{"certificate-authority": "ca"})


def test_a_certificate_that_cannot_be_shown_is_told_why_and_nobody_is_asked_for_a_pass_phrase(tmp_path: Path):
    mine, yours = pair(tmp_path, "me"), pair(tmp_path, "you")
    locked = pair(tmp_path, "locked", "-passout", "pass:hidden")
    (tmp_path / "words").write_text("words")
    for user, told in (
        (mine | {"client-key": yours["client-key"]}, "its client-key belongs to another certificate"),
        (locked, "its client-key is encrypted, and nobody is asked for a pass phrase"),
        (mine | {"client-certificate": "words"}, "are no such pair in PEM form"),
        (mine | {"client-key": "words"}, "are no such pair in PEM form"),
    ):
        with pytest.raises(Refused, match=told):
            tls(tmp_path, user)
