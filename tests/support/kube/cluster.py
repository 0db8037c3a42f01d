"""A real control plane for tests: etcd, kube-apiserver and, where asked for, the controllers and kube-scheduler.

It lives in a temporary folder on free ports of 127.0.0.1. Authorisation is `Node,RBAC`, admission as shipped; the
scheduler's account has the rights of our own manifests and no others, and only set-up is the administrator's.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import secrets
import shutil
import signal
import ssl
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from gpuyard.kube import manifests
from gpuyard.kube.credentials import KubeAccess
from tests.support.kube import components
from tests.support.kube.ports import free_ports

UP_S = 180.0
SILENCE_S = 600
"""After so long without a word a node is given up: fake kubelets share a process with what is tested, and are late."""
GO_WITH_US = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
"""Whatever becomes of the test, nothing of the cluster outlives it."""
ACCOUNT = ("gpuyard-system", "gpuyard-scheduler")
CONTROLLERS = (
    "serviceaccount", "serviceaccount-token", "root-ca-certificate-publisher", "node-lifecycle", "taint-eviction",
    "job", "deployment", "replicaset", "garbage-collector", "namespace", "pod-garbage-collector", "disruption",
    "resourcequota", "persistentvolume-binder",
)  # fmt: skip
REAL_NODES = ("n0", "n1")
"""Names under which a real kubelet may come; fake ones need no account."""
OF_NO_NAMESPACE = {
    "Namespace", "Node", "PersistentVolume", "StorageClass", "PriorityClass", "ClusterRole", "ClusterRoleBinding",
    "CustomResourceDefinition", "Queue", "GpuNode",
}  # fmt: skip
PLURALS = {"Pod": "pods", "Node": "nodes", "Job": "jobs", "PodDisruptionBudget": "poddisruptionbudgets"}


class ApiError(Exception):
    """The API server said no."""

    def __init__(self, code: int, told: str) -> None:
        super().__init__(f"{code}: {told}")
        self.code = code


class Cluster:
    """One control plane. Everything that is started here is ended by `stop`."""

    def __init__(self, folder: Path, controllers: bool = True, silence_s: int = SILENCE_S) -> None:
        self.folder = folder
        self.controllers = controllers
        self.silence_s = silence_s
        self.token = secrets.token_hex(16)
        self.node_tokens = {name: secrets.token_hex(16) for name in REAL_NODES}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._kept = threading.local()
        """The connection of each thread that asks."""

    # --- up and down -----------------------------------------------------------------------------

    def start(self) -> Cluster:
        """Up, and ready to be asked."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.etcd_port, self.peer_port, self.port = free_ports(3)
        self._prepare()
        self.start_etcd()
        self.start_server()
        self._set_up()
        if self.controllers:
            self.start_controllers()
        return self

    def stop(self) -> None:
        """Ended, at once: nothing of it is kept."""
        for running in reversed(self.running.values()):
            with contextlib.suppress(ProcessLookupError):
                running.kill()
        for running in self.running.values():
            running.wait(UP_S)
        self.running.clear()
        self.hang_up()

    def hang_up(self) -> None:
        """The calling thread asks no more for now."""
        if getattr(self._kept, "connection", None) is not None:
            self._kept.connection.close()
            self._kept.connection = None

    def _prepare(self) -> None:
        accounts = [f"{self.token},admin,admin,system:masters"]
        accounts += [f"{token},system:node:{name},{name},system:nodes" for name, token in self.node_tokens.items()]
        (self.folder / "tokens.csv").write_text("\n".join(accounts) + "\n")
        subprocess.run(
            ["openssl", "genrsa", "-out", str(self.folder / "sa.key"), "2048"], check=True, capture_output=True
        )
        kubelets = str(self.folder / "kubelet-client")
        made = ["-keyout", f"{kubelets}.key", "-out", f"{kubelets}.crt", "-subj", "/O=system:masters/CN=apiserver"]
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *made],
            check=True, capture_output=True,
        )  # fmt: skip

    def start_etcd(self) -> None:
        """The store. Nothing is synced to disk: nobody outlives the test."""
        client, peer = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{self.peer_port}"
        self._run(
            "etcd", "--data-dir", str(self.folder / "etcd"), "--unsafe-no-fsync", "--log-level=error",
            f"--listen-client-urls={client}", f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
            "--quota-backend-bytes=8589934592",
        )  # fmt: skip

    def compact_store(self) -> None:
        """All that was before this moment is forgotten by the store."""
        told = self._store("/v3/kv/range", {"key": base64.b64encode(b"/").decode()})
        self._store("/v3/kv/compaction", {"revision": told["header"]["revision"], "physical": True})

    def _store(self, path: str, body: dict[str, Any]) -> Any:
        url = f"http://127.0.0.1:{self.etcd_port}{path}"
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, json.dumps(body).encode()) as told:
            return json.load(told)

    def start_server(self) -> None:
        """The API server; it has answered that it is ready."""
        folder = self.folder
        self._run(
            "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{self.etcd_port}", "--bind-address=127.0.0.1",
            f"--secure-port={self.port}", f"--cert-dir={folder / 'tls'}", f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC", "--service-cluster-ip-range=10.96.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder / 'sa.key'}",
            f"--service-account-signing-key-file={folder / 'sa.key'}",
            "--endpoint-reconciler-type=none", "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-client-certificate={folder / 'kubelet-client.crt'}",
            f"--kubelet-client-key={folder / 'kubelet-client.key'}",
        )  # fmt: skip
        until(self._ready, UP_S, "the API server is ready", self.log("kube-apiserver"))

    def start_controllers(self) -> None:
        """The controllers that a batch cluster lives by."""
        self._run(
            "kube-controller-manager", f"--kubeconfig={self.kubeconfig()}", "--leader-elect=false",
            "--use-service-account-credentials", f"--service-account-private-key-file={self.folder / 'sa.key'}",
            f"--root-ca-file={self.folder / 'tls' / 'apiserver.crt'}", "--kube-api-qps=500", "--kube-api-burst=1000",
            f"--flex-volume-plugin-dir={self.folder / 'flexvolume'}", f"--secure-port={free_ports(1)[0]}",
            "--bind-address=127.0.0.1", f"--cert-dir={self.folder / 'manager'}",
            "--node-monitor-period=1s", f"--node-monitor-grace-period={self.silence_s}s", "--node-eviction-rate=10",
            "--unhealthy-zone-threshold=1.0",
            "--controllers=" + ",".join(f"{name}-controller" for name in CONTROLLERS),
        )  # fmt: skip

    def start_kube_scheduler(self) -> None:
        """Kubernetes' own scheduler, with the limits of its client lifted."""
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": self.kubeconfig(), "qps": 5000, "burst": 10000},
        }
        path = self.folder / "kube-scheduler.yaml"
        path.write_text(json.dumps(config))
        self._run("kube-scheduler", f"--config={path}", f"--secure-port={free_ports(1)[0]}", "--bind-address=127.0.0.1")

    def _run(self, name: str, *flags: str) -> None:
        log = (self.folder / f"{name}.log").open("ab")
        self.running[name] = subprocess.Popen(
            [*GO_WITH_US, components.path(name), *flags], stdout=log, stderr=log, cwd=self.folder
        )
        log.close()

    def log(self, name: str) -> Path:
        """What it wrote."""
        return self.folder / f"{name}.log"

    def end(self, name: str, how: int = signal.SIGKILL) -> None:
        """One component, ended."""
        running = self.running.pop(name)
        running.send_signal(how)
        running.wait(UP_S)

    # --- who may -----------------------------------------------------------------------------------

    def _set_up(self) -> None:
        for document in manifests.documents("scheduler.yaml"):
            self.create(document)
        self.account_token: str = self.token_of(*ACCOUNT)
        with contextlib.suppress(ApiError):  # the controllers make it too
            self.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})

    def token_of(self, namespace: str, account: str, pod: dict[str, Any] | None = None) -> str:
        """A token of an account; bound to a pod it names the pod's node, as a kubelet would have it made."""
        spec: dict[str, Any] = {"expirationSeconds": 36000}
        if pod is not None:
            metadata = pod["metadata"]
            spec["boundObjectRef"] = {
                "apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]
            }  # fmt: skip
        wish = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        return str(self.call("POST", path, wish)["status"]["token"])

    @property
    def server(self) -> str:
        """Where it is."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def ca(self) -> Path:
        """By which certificate it is known."""
        return self.folder / "tls" / "apiserver.crt"

    def access(self, token: str = "") -> KubeAccess:
        """As the scheduler's account, or as whoever has the token."""
        return KubeAccess(self.server, "default", self.ca.read_bytes(), token=token or self.account_token)

    def kubeconfig(self, token: str = "", name: str = "admin", server: str = "") -> str:
        """A file that names this cluster; as the administrator unless a token is given."""
        path = self.folder / f"{name}.kubeconfig"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
            "clusters": [
                {"name": "test", "cluster": {"server": server or self.server, "certificate-authority": str(self.ca)}}
            ],
            "users": [{"name": name, "user": {"token": token or self.token}}],
        }
        path.write_text(yaml.safe_dump(document))
        return str(path)

    def scheduler_kubeconfig(self, server: str = "") -> str:
        """The same as the scheduler's account."""
        return self.kubeconfig(self.account_token, "gpuyard", server)

    # --- asking as the administrator -----------------------------------------------------------------

    def call(self, method: str, path: str, body: Any = None, kind: str = "application/json", token: str = "") -> Any:
        """One request, as the administrator or as whoever has the token; `ApiError` is a no."""
        return json.loads(self._ask(method, path, body, kind, token))

    def text(self, path: str) -> str:
        """What is no object, as a pod's log."""
        return self._ask("GET", path).decode(errors="replace")

    def _ask(self, method: str, path: str, body: Any = None, kind: str = "application/json", token: str = "") -> bytes:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token or self.token}", "Content-Type": kind}
        try:
            answer, content = self._sent(method, path, data, headers)
        except (http.client.HTTPException, OSError):  # the connection was kept too long
            if (kept := getattr(self._kept, "connection", None)) is not None:
                kept.close()
            self._kept.connection = None
            answer, content = self._sent(method, path, data, headers)
            if (method, answer.status) == ("POST", 409) and (name := body.get("metadata", {}).get("name")):
                answer, content = self._sent("GET", f"{path}/{name}", None, headers)  # made, and only its answer lost
        if answer.status >= 400:
            raise ApiError(answer.status, content.decode(errors="replace"))
        return content

    def _sent(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        if getattr(self._kept, "connection", None) is None:
            tls = self._tls()
            self._kept.connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=UP_S, context=tls)
        self._kept.connection.request(method, path, data, headers)
        answer = self._kept.connection.getresponse()
        return answer, answer.read()

    def create(self, document: dict[str, Any]) -> Any:
        """Make an object, in the namespace `default` unless it names one."""
        return self.call("POST", folder_of(document), document)

    def prioritise(self, **classes: int) -> None:
        """PriorityClasses of these names; they may be there already."""
        for name, value in classes.items():
            wish = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
            with contextlib.suppress(ApiError):
                self.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {**wish, "value": value})

    def get(self, path: str) -> Any:
        """Read."""
        return self.call("GET", path)

    def pods(self, namespace: str = "default", **labels: str) -> list[dict[str, Any]]:
        """All pods there, or those with these labels."""
        wanted = ",".join(f"{key}={value}" for key, value in labels.items())
        found = self.get(f"/api/v1/namespaces/{namespace}/pods?labelSelector={wanted}")["items"]
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def merge(self, path: str, body: Any) -> Any:
        """Change part of an object."""
        return self.call("PATCH", path, body, "application/merge-patch+json")

    def delete(self, path: str, grace: int | None = None) -> None:
        """Gone, or going; nothing happens if it was not there."""
        with contextlib.suppress(ApiError):
            self.call("DELETE", path, None if grace is None else {"gracePeriodSeconds": grace})

    def clean(self) -> None:
        """Nobody's jobs, pods and nodes: the next test begins with none."""
        self.delete("/api/v1/namespaces/gpuyard-system/configmaps/gpuyard-memory")
        self.empty("default")
        self.no_nodes()

    def no_nodes(self) -> None:
        """No machine is left; deleting many at once may end half-way."""

        def gone() -> bool:
            self.delete("/api/v1/nodes")
            return not self.get("/api/v1/nodes")["items"]

        until(gone, UP_S, "every node is gone")

    def empty(self, namespace: str) -> None:
        """Nothing of what people make is left there, nor anybody who would make it anew."""
        jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self.delete(f"{jobs}?propagationPolicy=Background")
        self.delete(f"/apis/apps/v1/namespaces/{namespace}/deployments?propagationPolicy=Background")
        self.delete(f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets")

        def gone() -> bool:
            self.delete(f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0", 0)
            return not self.pods(namespace) and not self.get(jobs)["items"]

        until(gone, UP_S, f"everything in {namespace} is gone")
        self.delete(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")

    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca))

    def _ready(self) -> bool:
        if not self.ca.exists():
            return False
        headers = {"Authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(f"{self.server}/readyz", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=5, context=self._tls()) as answer:
                return bool(answer.status == 200)
        except (OSError, ssl.SSLError):
            return False


def folder_of(document: dict[str, Any]) -> str:
    """Where objects of its kind are made."""
    version, kind = document["apiVersion"], document["kind"]
    root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    plural = PLURALS.get(kind, f"{kind.lower()}{'es' if kind.endswith('s') else 's'}")
    if kind in OF_NO_NAMESPACE:
        return f"{root}/{plural}"
    return f"{root}/namespaces/{document['metadata'].get('namespace', 'default')}/{plural}"


def until(holds: Callable[[], Any], seconds: float, what: str, log: Path | None = None) -> Any:
    """Wait until it holds, and tell what it said."""
    end = time.monotonic() + seconds
    while not (told := holds()):
        if time.monotonic() > end:
            tail = "" if log is None or not log.exists() else "\n" + log.read_text(errors="replace")[-3000:]
            raise AssertionError(f"after {seconds:g} s it is not so that {what}{tail}")
        time.sleep(0.05)
    return told


def until_told(told: Callable[[], Any], expected: Any, seconds: float, what: str) -> None:
    """Wait until this is told; whoever is told something else to the end is shown what."""
    with contextlib.suppress(AssertionError):
        until(lambda: told() == expected, seconds, what)
    assert told() == expected, what


def environment(**more: str) -> dict[str, str]:
    """For programs of ours: no proxy stands between them and the cluster."""
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower() and name != "KUBECONFIG"}
    return kept | more


def names(objects: Sequence[dict[str, Any]]) -> list[str]:
    """By their names."""
    return [each["metadata"]["name"] for each in objects]
