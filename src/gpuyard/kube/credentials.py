"""Who we are to an API server and how it is reached: from a kubeconfig, or from a pod's own account.

Used by `client`. Files are read here and nowhere else; a token that is kept in a file is read again while we run,
because clusters replace it, and a plugin (`exec`) is asked again when what it gave runs out.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import os
import ssl
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from gpuyard.model.errors import Refused
from gpuyard.model.outside.ports import Clock
from gpuyard.model.outside.text import wrong_token

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_AGE_S = 60.0
"""After so long a token is read again; kubelets replace them well before they run out."""
PLUGIN_S = 30.0
"""How long a credential plugin may take."""
EARLY_S = 60.0
"""So long before it runs out, what a plugin gave is asked for again."""


@dataclass(frozen=True, slots=True)
class CredentialPlugin:
    """A program that gives credentials (`client.authentication.k8s.io`)."""

    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    version: str = "client.authentication.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class KubeAccess:
    """How one API server is reached. At most one of `token`, `token_file`, `plugin`, a certificate is used, in that
    order of preference; secrets are never part of what is printed."""

    server: str
    namespace: str = "default"
    ca: bytes = b""
    insecure: bool = False
    server_name: str = ""
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    token: str = field(default="", repr=False)
    token_file: str = ""
    plugin: CredentialPlugin | None = None
    told: str = ""
    """Where this was found, for people."""


def find(kubeconfig: str = "", context: str = "", environ: Mapping[str, str] | None = None) -> KubeAccess:
    """As every Kubernetes tool finds it: the file that is named, $KUBECONFIG, the pod's account, ~/.kube/config."""
    environ = os.environ if environ is None else environ
    named = kubeconfig or environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    if named:
        return of_kubeconfig(Path(named).expanduser(), context)
    if not context and environ.get("KUBERNETES_SERVICE_HOST"):
        return of_pod(environ)
    usual = Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"
    if usual.is_file():
        return of_kubeconfig(usual, context)
    raise Refused("no cluster is named: give --kubeconfig FILE, set KUBECONFIG, or run inside a pod")


def of_pod(environ: Mapping[str, str], account: Path = ACCOUNT) -> KubeAccess:
    """The account that every pod has."""
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    namespace = _read(account / "namespace").decode().strip()
    token = str(account / "token")
    return KubeAccess(
        f"https://{host}:{port}", namespace, _read(account / "ca.crt"), token_file=token, told="the pod's account"
    )


def of_kubeconfig(path: Path, context: str = "") -> KubeAccess:
    """One context of a kubeconfig: the one that is named, else the current one."""
    try:
        document = yaml.safe_load(_read(path))
        return _of_document(document, path, context)
    except (TypeError, AttributeError):  # a list or a text where a mapping belongs: Python's words would help nobody
        told = "it does not have the form of one; `kubectl config view` shows what that is"
        raise Refused(f"{path} is no kubeconfig that can be used: {told}") from None
    except (yaml.YAMLError, KeyError, binascii.Error) as error:
        raise Refused(f"{path} is no kubeconfig that can be used: {' '.join(str(error).split()) or error!r}") from None


def _of_document(document: dict[str, Any], path: Path, context: str) -> KubeAccess:
    name = context or str(document.get("current-context") or "")
    if not name:
        raise Refused(f"{path} has no current-context; name one with --context")
    chosen = _named(document, "contexts", name, path)["context"]
    cluster = _named(document, "clusters", chosen["cluster"], path)["cluster"]
    user = _named(document, "users", chosen["user"], path)["user"] if chosen.get("user") else {}
    access = KubeAccess(
        server=str(cluster["server"]).rstrip("/"),
        namespace=str(chosen.get("namespace") or "default"),
        ca=_content(cluster, "certificate-authority", path),
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        server_name=str(cluster.get("tls-server-name") or ""),
        certificate=_content(user or {}, "client-certificate", path),
        key=_content(user or {}, "client-key", path),
        told=f"context {name} of {path}",
    )
    return _with_token(access, user or {}, path)


def _with_token(access: KubeAccess, user: dict[str, Any], path: Path) -> KubeAccess:
    unsupported = sorted({"auth-provider", "username"} & set(user))
    if unsupported:
        raise Refused(f"{path}: a user with {unsupported[0]} is not supported; use a token, a certificate or exec")
    token_file = str(user.get("tokenFile") or "")
    plugin = _plugin(user["exec"], path) if user.get("exec") else None
    token = _token(str(user.get("token") or ""), str(path))
    return replace(access, token=token, token_file=token_file, plugin=plugin)


def _token(said: str | bytes, where: str) -> str:
    """As a request carries it: without the white space that editors and YAML leave around it."""
    token = (said.decode(errors="replace") if isinstance(said, bytes) else said).strip()
    if told := wrong_token(token):
        raise Refused(f"the token of {where} {told}; log in again, or write it anew")
    return token


def _plugin(said: dict[str, Any], path: Path) -> CredentialPlugin:
    command = str(said["command"])
    if os.sep in command and not os.path.isabs(command):  # as kubectl reads it
        command = str(path.parent / command)
    env = tuple((str(each["name"]), str(each["value"])) for each in said.get("env") or ())
    return CredentialPlugin((command, *map(str, said.get("args") or ())), env, str(said["apiVersion"]))


def _named(document: dict[str, Any], kind: str, name: str, path: Path) -> dict[str, Any]:
    for each in document.get(kind) or ():
        if each.get("name") == name:
            return dict(each)
    known = ", ".join(str(each.get("name")) for each in document.get(kind) or ()) or "none"
    raise Refused(f"{path} has no {kind.removesuffix('s')} '{name}'; it has: {known}")


def _content(said: dict[str, Any], key: str, path: Path) -> bytes:
    """Inline and encoded, or a file beside the kubeconfig."""
    if said.get(f"{key}-data"):
        return base64.b64decode(said[f"{key}-data"], validate=True)
    return _read(path.parent / said[key]) if said.get(key) else b""


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from None


# --- while we run --------------------------------------------------------------------------------


class KubeIdentity:
    """What is sent along with every request, and the TLS side of it. Asked from the client's loop alone."""

    def __init__(self, access: KubeAccess, clock: Clock) -> None:
        self.access = access
        self._clock = clock
        self._token = access.token
        self._good_until = 0.0

    def tls(self) -> ssl.SSLContext | None:
        """How the server is known, and our certificate if we have one; None for plain http."""
        if not self.access.server.startswith("https:"):
            return None
        context = ssl.create_default_context(cadata=self.access.ca.decode() if self.access.ca else None)
        if self.access.insecure:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        certificate, key = self.access.certificate, self.access.key
        if certificate and key:
            with tempfile.NamedTemporaryFile() as file:  # the ssl module reads certificates from files alone
                file.write(certificate + b"\n" + key)
                file.flush()
                context.load_cert_chain(file.name)
        return context

    async def bearer(self) -> str:
        """The token for the next request; "" where a certificate speaks for us."""
        if self.access.token or (not self.access.token_file and self.access.plugin is None):
            return self.access.token
        if self._clock.monotonic() >= self._good_until:
            await asyncio.to_thread(self._renew)
        return self._token

    def refused(self) -> None:
        """The server did not know us: what we have is asked for anew before the next request."""
        self._good_until = 0.0

    def _renew(self) -> None:
        if self.access.token_file:
            self._token = _token(_read(Path(self.access.token_file)), self.access.token_file)
            self._good_until = self._clock.monotonic() + TOKEN_AGE_S
            return
        assert self.access.plugin is not None
        status = ask(self.access.plugin)
        name = f"the credential plugin {self.access.plugin.command[0]}"
        self._token = _token(str(status.get("token") or ""), name)
        if not self._token:
            raise Refused(f"{name} gave no token; certificates of plugins are not supported")
        lasts = TOKEN_AGE_S
        if ends := status.get("expirationTimestamp"):
            lasts = datetime.fromisoformat(str(ends)).timestamp() - self._clock.now() - EARLY_S
        self._good_until = self._clock.monotonic() + max(lasts, 1.0)


def token_of(access: KubeAccess, clock: Clock) -> str:
    """The token that speaks for us, for somebody other than the API server; `Refused` where a certificate does."""
    token = asyncio.run(KubeIdentity(access, clock).bearer())
    if not token:
        raise Refused(f"{access.told or 'your kubeconfig'} has no token, and only a token can be shown to others")
    return token


def ask(plugin: CredentialPlugin) -> dict[str, Any]:
    """What a credential plugin answers; `Refused` says why it gave nothing."""
    wanted = {"apiVersion": plugin.version, "kind": "ExecCredential", "spec": {"interactive": False}}
    env = {**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": json.dumps(wanted)}
    name = plugin.command[0]
    try:
        done = subprocess.run(
            plugin.command, env=env, capture_output=True, timeout=PLUGIN_S, check=False, stdin=subprocess.DEVNULL
        )
        status = json.loads(done.stdout)["status"] if done.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError) as error:
        raise Refused(f"the credential plugin {name} gave nothing: {error}") from None
    if not isinstance(status, dict):
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise Refused(f"the credential plugin {name} failed: {said[-1] if said else f'exit {done.returncode}'}")
    return status
