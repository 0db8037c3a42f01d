"""Who we are to an API server and how it is reached: from a kubeconfig, or from a pod's own account.

Used by `client`. Files are read here and nowhere else; a token that is kept in a file is read again while we run,
because clusters replace it, and a plugin (`exec`) is asked again when what it gave runs out.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
import ssl
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from gpuyard.model.errors import Refused
from gpuyard.model.outside.ports import Clock
from gpuyard.model.outside.text import shown, wrong_token, wrong_url

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_AGE_S = 60.0
"""After so long a token is read again; kubelets replace them well before they run out."""
PLUGIN_S = 30.0
"""How long a credential plugin may take."""
SAID_MAX = 300
"""Letters of what a plugin says that are told."""
EARLY_S = 60.0
"""So long before it runs out, what a plugin gave is asked for again."""


_KeptDocument = tuple[Path, dict[str, Any]]
"""Something that was written in a file, and which."""


@dataclass(frozen=True, slots=True)
class CredentialPlugin:
    """A program that gives credentials (`client.authentication.k8s.io`)."""

    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    version: str = "client.authentication.k8s.io/v1"

    @property
    def name(self) -> str:
        """As people are told of it."""
        return f"the credential plugin {shown(self.command[0], SAID_MAX)}"


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

    def __post_init__(self) -> None:
        if told := wrong_url(self.server):
            raise Refused(f"{self.told or 'the cluster'}: its server {told}")


def find(kubeconfig: str = "", context: str = "", environ: Mapping[str, str] | None = None) -> KubeAccess:
    """As kubectl finds it: the file that is named, those of $KUBECONFIG, ~/.kube/config, the pod's account."""
    environ = os.environ if environ is None else environ
    if kubeconfig:
        return of_kubeconfigs([Path(kubeconfig).expanduser()], context)
    if listed := [Path(each).expanduser() for each in environ.get("KUBECONFIG", "").split(os.pathsep) if each]:
        return of_kubeconfigs([path for path in listed if path.exists()] or listed, context)
    usual = Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"
    if usual.is_file():
        return of_kubeconfigs([usual], context)
    if not context and environ.get("KUBERNETES_SERVICE_HOST"):
        return of_pod(environ)
    raise Refused(
        "no cluster is named: set KUBECONFIG to a kubeconfig, write one to ~/.kube/config, or run inside a pod"
    )


def of_pod(environ: Mapping[str, str], account: Path = ACCOUNT) -> KubeAccess:
    """The account that every pod has."""
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    namespace = _read(account / "namespace").decode().strip()
    token = str(account / "token")
    return KubeAccess(
        f"https://{host}:{port}", namespace, _read(account / "ca.crt"), token_file=token, told="the pod's account"
    )


def of_kubeconfigs(paths: Sequence[Path], context: str = "") -> KubeAccess:
    """One context of what these say together: the one that is named, else the current one."""
    where = os.pathsep.join(map(str, paths))
    try:
        return _of_documents([(path, _document(path)) for path in paths], where, context)
    except (TypeError, AttributeError):  # a list or a text where a mapping belongs: Python's words would help nobody
        told = "it does not have the form of one; `kubectl config view` shows what that is"
        raise Refused(f"{where} is no kubeconfig that can be used: {told}") from None
    except KeyError as error:
        raise Refused(f"{where} is no kubeconfig that can be used: it has no {error} where one belongs") from None


def _document(path: Path) -> dict[str, Any]:
    """What it says; a mistake is told by its place alone, because a secret may stand there."""
    content = _read(path)
    try:
        document = yaml.safe_load(content)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise Refused(f"{path} is no kubeconfig that can be used: it is no YAML{where}") from None
    return {} if document is None else document


def _of_documents(documents: Sequence[_KeptDocument], where: str, context: str) -> KubeAccess:
    current = (document.get("current-context") for _, document in documents)
    name = context or next((str(each) for each in current if each), "")
    if not name:
        raise Refused(f"{where} has no current-context; `kubectl config use-context NAME` chooses one")
    chosen = _named(documents, "contexts", name, where)[1]["context"]
    path, found = _named(documents, "clusters", chosen["cluster"], where)
    cluster = found["cluster"]
    access = KubeAccess(
        server=str(cluster["server"]).rstrip("/"),
        namespace=str(chosen.get("namespace") or "default"),
        ca=_content(cluster, "certificate-authority", path),
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        server_name=str(cluster.get("tls-server-name") or ""),
        told=f"context {name} of {where}",
    )
    if not chosen.get("user"):
        return access
    path, found = _named(documents, "users", chosen["user"], where)
    return _as_user(access, found["user"] or {}, path)


def _as_user(access: KubeAccess, user: dict[str, Any], path: Path) -> KubeAccess:
    unsupported = sorted({"auth-provider", "username"} & set(user))
    if unsupported:
        raise Refused(f"{path}: a user with {unsupported[0]} is not supported; use a token, a certificate or exec")
    return replace(
        access,
        certificate=_content(user, "client-certificate", path),
        key=_content(user, "client-key", path),
        token=_token(str(user.get("token") or ""), str(path)),
        token_file=str(path.parent / user["tokenFile"]) if user.get("tokenFile") else "",
        plugin=_plugin(user["exec"], path) if user.get("exec") else None,
    )


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


def _named(documents: Sequence[_KeptDocument], kind: str, name: str, where: str) -> _KeptDocument:
    """The first of that name, and the file that it stands in: paths in it begin there."""
    listed = [(path, each) for path, document in documents for each in document.get(kind) or ()]
    for path, each in listed:
        if each.get("name") == name:
            return path, dict(each)
    known = ", ".join(str(each.get("name")) for _, each in listed) or "none"
    raise Refused(f"{where} has no {kind.removesuffix('s')} '{name}'; it has: {known}")


def _content(said: dict[str, Any], key: str, path: Path) -> bytes:
    """Inline and encoded, or a file beside the kubeconfig."""
    if said.get(f"{key}-data"):
        try:
            return base64.b64decode(said[f"{key}-data"], validate=True)
        except ValueError:
            raise Refused(f"{path}: {key}-data is no base64 of a file in PEM form") from None
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
        if not self.access.server.lower().startswith("https:"):
            return None
        context = ssl.create_default_context()
        if self.access.ca:
            context = self._trusting(self.access.ca)
        if self.access.insecure:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if self.access.certificate and self.access.key:
            self._show(context, self.access.certificate + b"\n" + self.access.key)
        return context

    def _trusting(self, authorities: bytes) -> ssl.SSLContext:
        """Whom these vouch for and nobody else; what people write around certificates is passed over."""
        try:
            return ssl.create_default_context(cadata=authorities.decode("ascii", "backslashreplace"))
        except (OSError, ValueError):
            raise self._wrong("certificate-authority holds no certificate in PEM form that can be read") from None

    def _show(self, context: ssl.SSLContext, pair: bytes) -> None:
        def pass_phrase() -> str:
            told = "client-key is encrypted, and nobody is asked for a pass phrase"
            raise self._wrong(f"{told}: `openssl pkey -in KEY -out PLAIN` writes one that is not")

        with tempfile.NamedTemporaryFile() as file:  # the ssl module reads certificates from files alone
            file.write(pair)
            file.flush()
            try:
                context.load_cert_chain(file.name, password=pass_phrase)
            except ssl.SSLError as error:
                if error.reason == "KEY_VALUES_MISMATCH":
                    raise self._wrong("client-key belongs to another certificate than its client-certificate") from None
                raise self._wrong("client-certificate and client-key are no such pair in PEM form") from None

    def _wrong(self, told: str) -> Refused:
        return Refused(f"{self.access.told or self.access.server}: its {told}")

    async def bearer(self) -> str:
        """The token for the next request; "" where a certificate speaks for us."""
        if self.access.token or (not self.access.token_file and self.access.plugin is None):
            return self.access.token
        if self._clock.monotonic() >= self._good_until:
            await self._renew()
        return self._token

    def refused(self) -> None:
        """The server did not know us: what we have is asked for anew before the next request."""
        self._good_until = 0.0

    async def _renew(self) -> None:
        lasts, path, plugin = TOKEN_AGE_S, self.access.token_file, self.access.plugin
        if path:
            self._token = _token(await asyncio.to_thread(_read, Path(path)), path)
        else:
            assert plugin is not None
            status = await ask(plugin)
            self._token = _token(str(status.get("token") or ""), plugin.name)
            if not self._token:
                raise Refused(f"{plugin.name} gave no token; certificates of plugins are not supported")
            if ends := status.get("expirationTimestamp"):
                lasts = _instant(str(ends), plugin.name) - self._clock.now() - EARLY_S
        self._good_until = self._clock.monotonic() + max(lasts, 1.0)


def _instant(told: str, where: str) -> float:
    try:
        return datetime.fromisoformat(told).timestamp()
    except (ValueError, OverflowError):
        raise Refused(
            f"{where} says that its token is good until {shown(told)!r}, which is no time such as 2030-01-31T12:00:00Z"
        ) from None


def token_of(access: KubeAccess, clock: Clock) -> str:
    """The token that speaks for us, for somebody other than the API server; `Refused` where a certificate does."""
    token = asyncio.run(KubeIdentity(access, clock).bearer())
    if not token:
        raise Refused(f"{access.told or 'your kubeconfig'} has no token, and only a token can be shown to others")
    return token


async def ask(plugin: CredentialPlugin) -> dict[str, Any]:
    """What a credential plugin answers; `Refused` says why it gave nothing."""
    ended = await _run(plugin)
    if ended.code:
        said = ended.stderr.decode(errors="replace").strip().splitlines()
        raise Refused(f"{plugin.name} failed: {shown(said[-1], SAID_MAX) if said else f'exit {ended.code}'}")
    try:
        status = json.loads(ended.stdout)["status"]
    except (ValueError, KeyError, TypeError, RecursionError):
        status = None
    if not isinstance(status, dict):
        raise Refused(f"{plugin.name} printed no ExecCredential with a status; run it by hand to see what it prints")
    return status


@dataclass(frozen=True, slots=True)
class _Ended:
    code: int
    stdout: bytes = field(repr=False)
    stderr: bytes


async def _run(plugin: CredentialPlugin) -> _Ended:
    """With an end, and with no trace of it left when nobody waits for it any more."""
    wanted = {"apiVersion": plugin.version, "kind": "ExecCredential", "spec": {"interactive": False}}
    env = {**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": json.dumps(wanted)}
    try:
        process = await asyncio.create_subprocess_exec(
            *plugin.command,
            env=env,
            process_group=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except (OSError, ValueError) as error:
        raise Refused(f"{plugin.name} cannot be run: {getattr(error, 'strerror', None) or error}") from None
    try:
        async with asyncio.timeout(PLUGIN_S):
            stdout, stderr = await process.communicate()
    except TimeoutError:
        raise Refused(f"{plugin.name} gave nothing within {PLUGIN_S:g} s; run it by hand to see why") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return _Ended(process.returncode or 0, stdout, stderr)
