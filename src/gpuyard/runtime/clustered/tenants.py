"""What a caller may see of a cluster: the whole moment, with other teams' jobs under names that tell nothing.

Asked by `server.clustered` with the caller's own token. The API server says who that is (TokenReview) and of which
namespaces they may list pods (SubjectAccessReview): who may there see pods may here see jobs. Nothing about the moment
changes but names and words, so whoever explains a job from it says what the scheduler would.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec

from gpuyard.kube.client import ApiReply
from gpuyard.model.errors import Broken, Busy, Denied
from gpuyard.model.job import MAIN, Bundle, Job, Placement, TaskGroup
from gpuyard.model.outside.ports import Clock
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.serving import masking

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
REMEMBERED_S = 10.0
"""So long an answer about somebody's rights holds; who loses them loses them here as soon."""
KEPT = 10_000
SOMEBODY = "somebody"


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


class TenantDesk:
    """Answers callers; from any thread."""

    def __init__(self, cluster: ReviewedCluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[object, tuple[float, Any]] = {}

    def snapshot(self, token: str) -> Snapshot:
        """The moment as the bearer may see it; `Stranger` if nobody knows them."""
        kept = hashlib.sha256(token.encode(errors="replace")).hexdigest()  # no token is kept
        tenant = self._remembered(("token", kept), lambda: self._reviewed(token))
        if tenant is None:
            raise Stranger("The cluster does not know whose token this is; `kubectl auth whoami` asks it.")
        if not self._cluster.synced():
            raise Busy("the scheduler has not read the whole cluster yet; ask again in a moment")
        moment = self._cluster.snapshot()
        return moment if self._may(tenant, "") else self._masked(moment, tenant)

    def _masked(self, moment: Snapshot, tenant: KnownTenant) -> Snapshot:
        namespaces = {_namespace(job.name) for job in moment.jobs}
        theirs = {name for name in sorted(namespaces) if name and self._may(tenant, name)}
        return masked(moment, theirs)

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
        now = self._clock.monotonic()
        with self._lock:
            known = self._known.get(key)
        if known is not None and known[0] > now:
            return known[1]
        told = ask()
        with self._lock:
            if len(self._known) > KEPT:
                self._known.clear()
            self._known[key] = (now + REMEMBERED_S, told)
        return told


def masked(moment: Snapshot, namespaces: Iterable[str]) -> Snapshot:
    """The same, with jobs of other namespaces under other names; nothing is left of what their people wrote."""
    theirs = set(namespaces)
    hidden = {
        job.name: f"{SOMEBODY}-{number}"
        for number, job in enumerate(sorted(moment.jobs, key=lambda job: (job.submitted, job.name)))
        if _namespace(job.name) not in theirs
    }
    families = {
        family: f"family-{number}" for number, family in enumerate(sorted({j.family for j in moment.jobs if j.family}))
    }
    groups = {job.name: _group_names(job) for job in moment.jobs if job.name in hidden}
    jobs = tuple(_wordless(job, families, groups[job.name]) if job.name in hidden else job for job in moment.jobs)
    budgets = tuple(
        replace(
            budget,
            name=budget.name if _namespace(budget.name) in theirs else f"budget-{number}",
            covers=tuple((job, groups.get(job, {}).get(group, group)) for job, group in budget.covers),
        )
        for number, budget in enumerate(moment.budgets)
    )
    reservations = tuple(
        replace(each, placements=_placed(each.placements, groups.get(each.job, {}))) for each in moment.reservations
    )
    return masking.renamed(replace(moment, jobs=jobs, budgets=budgets, reservations=reservations), {}, hidden)


GroupNames = Mapping[str, str]
"""Of one job: its groups as people named them, and what they go by."""


def _group_names(job: Job) -> GroupNames:
    """Sorted as before, for the brain takes groups by their names where nothing else tells them apart."""
    named = sorted({group.name for group in job.task_groups()} - {MAIN})
    return {MAIN: MAIN} | {name: f"group-{number:04}" for number, name in enumerate(named)}


def _wordless(job: Job, families: dict[str, str], groups: GroupNames) -> Job:
    return replace(
        job,
        gang=_bare(job.gang, groups),
        family=families.get(job.family, ""),
        held_for="on hold" if job.held_for else "",
        placements=_placed(job.placements, groups),
    )


def _placed(placements: Iterable[Placement], groups: GroupNames) -> tuple[Placement, ...]:
    return tuple(replace(place, group=groups.get(place.group, place.group)) for place in placements)


def _bare(bundle: Bundle, groups: GroupNames, name: str = "") -> Bundle:
    inside = (
        _bare(each, groups, f"{name or 'bundle'}-{number}") if isinstance(each, Bundle) else _plain(each, groups)
        for number, each in enumerate(bundle.groups)
    )
    return replace(bundle, name=name, groups=tuple(inside))


def _plain(group: TaskGroup, groups: GroupNames) -> TaskGroup:
    return replace(group, name=groups[group.name], labels=(), near=(), apart=(), even=())


def _namespace(name: str) -> str:
    return name.partition("/")[0] if "/" in name else ""
