"""What a caller may see of a cluster: the whole moment, with other teams' jobs under names that tell nothing.

Asked by `server.clustered` with the caller's own token. The API server says who that is (TokenReview) and of which
namespaces they may list pods (SubjectAccessReview): who may there see pods may here see jobs. Nothing about the moment
changes but names and words, so whoever explains a job from it says what the scheduler would.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

import msgspec

from gpuyard.kube.client import ApiReply
from gpuyard.model.errors import Broken, Busy, Denied
from gpuyard.model.outside.ports import Clock
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.clustered import veiling
from gpuyard.runtime.clustered.newcomers import Newcomers

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
REMEMBERED_S = 10.0
"""So long an answer about somebody's rights holds; who loses them loses them here as soon."""
KEPT = 10_000


class Stranger(Denied):
    """The API server does not know whose token that is."""


class ReviewedCluster(Protocol):
    """What is needed of the world."""

    def post(self, path: str, body: bytes) -> ApiReply:
        """Ask the API server."""

    def synced(self) -> bool:
        """Whether all there is has been seen once."""

    def snapshot(self) -> Snapshot:
        """The whole moment."""


@dataclass(frozen=True, slots=True)
class KnownTenant:
    """Somebody whom the API server knows."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class TenantAnswers:
    """Answers callers; from any thread."""

    def __init__(self, cluster: ReviewedCluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[object, tuple[float, Any]] = OrderedDict()
        self._refused: OrderedDict[object, tuple[float, Any]] = OrderedDict()
        """Apart, so that no flood of tokens of nobody drives out what is known of somebody."""
        self._newcomers = Newcomers(clock)

    def admit(self, token: str, source: str) -> None:
        """Before anything is asked about it: `Busy` where too many tokens that nobody knows came from there."""
        key = _kept(token)
        with self._lock:
            seen = key in self._known or self._fresh(self._refused, key) is not None
        if not seen:
            self._newcomers.admit(source)

    def tenant(self, token: str) -> KnownTenant:
        """Whose it is; `Stranger` if nobody knows them."""
        tenant = self._remembered(_kept(token), lambda: self._reviewed(token))
        if tenant is None:
            raise Stranger("The cluster does not know whose token this is; `kubectl auth whoami` asks it.")
        return cast(KnownTenant, tenant)

    def snapshot(self, tenant: KnownTenant) -> Snapshot:
        """The moment as they may see it."""
        if not self._cluster.synced():
            raise Busy("the scheduler has not read the whole cluster yet; ask again in a moment")
        moment = self._cluster.snapshot()
        return moment if self._may(tenant, "") else self._masked(moment, tenant)

    def _masked(self, moment: Snapshot, tenant: KnownTenant) -> Snapshot:
        namespaces = {veiling.namespace_of(job.name) for job in moment.jobs}
        theirs = {name for name in sorted(namespaces) if name and self._may(tenant, name)}
        return veiling.masked(moment, theirs)

    # --- what the API server says --------------------------------------------------------------------

    def _reviewed(self, token: str) -> KnownTenant | None:
        status = self._asked(TOKEN_REVIEWS, "TokenReview", "authentication.k8s.io/v1", {"token": token})
        if not status.get("authenticated"):
            return None
        user = status["user"]
        extra = tuple(sorted((key, tuple(values)) for key, values in (user.get("extra") or {}).items()))
        return KnownTenant(user["username"], user.get("uid", ""), tuple(user.get("groups") or ()), extra)

    def _may(self, tenant: KnownTenant, namespace: str) -> bool:
        """Whether they may list pods there; everywhere where none is named."""
        attributes = {"verb": "list", "resource": "pods", "version": "v1"}
        who = {"user": tenant.user, "uid": tenant.uid, "groups": list(tenant.groups), "extra": dict(tenant.extra)}
        spec = {**who, "resourceAttributes": attributes | ({"namespace": namespace} if namespace else {})}
        ask = lambda: bool(  # noqa: E731  one word for what is asked at most once in ten seconds
            self._asked(ACCESS_REVIEWS, "SubjectAccessReview", "authorization.k8s.io/v1", spec).get("allowed")
        )
        return bool(self._remembered((tenant, namespace), ask))

    def _asked(self, path: str, kind: str, version: str, spec: dict[str, Any]) -> dict[str, Any]:
        body = msgspec.json.encode({"apiVersion": version, "kind": kind, "spec": spec})
        reply = self._cluster.post(path, body)
        if not reply.ok:
            raise Broken(f"the API server does not review for us: {reply.why()}")
        return dict(msgspec.json.decode(reply.body).get("status") or {})

    def _remembered(self, key: object, ask: Callable[[], Any]) -> Any:
        with self._lock:
            known = self._fresh(self._known, key) or self._fresh(self._refused, key)
        if known is not None:
            return known[1]
        told = ask()
        kept = self._refused if told is None else self._known
        with self._lock:
            if told is None:
                self._known.pop(key, None)
            kept[key] = (self._clock.monotonic() + REMEMBERED_S, told)
            kept.move_to_end(key)
            if len(kept) > KEPT:
                kept.popitem(last=False)
        return told

    def _fresh(self, kept: OrderedDict[object, tuple[float, Any]], key: object) -> tuple[float, Any] | None:
        found = kept.get(key)
        return found if found is not None and found[0] > self._clock.monotonic() else None


def _kept(token: str) -> tuple[str, str]:
    """What is remembered of a token is not the token."""
    return "token", hashlib.sha256(token.encode(errors="replace")).hexdigest()
