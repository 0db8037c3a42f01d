"""What a caller sees of a yard that many share: their own jobs under their own names, of others' only that they are.

Called by the embedded yard for every question. Names belong to their owners: whose a job is, and what its caller calls
it, is answered here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpuyard.model.ownership import Owner
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.service import Caller, Document
from gpuyard.runtime.serving import masking
from gpuyard.runtime.serving.port import JobRecord, PastEvent

SOMEBODY = "other"
"""How a job is called towards those who may not know of it."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """One caller, of a yard that is shared or not."""

    caller: Caller
    shared: bool

    @property
    def owner(self) -> Owner:
        """Whom their jobs belong to."""
        return Owner(self.caller.user, self.caller.uid if self.shared else -1)

    @property
    def sees_all(self) -> bool:
        """Whether nothing is hidden from them."""
        return not self.shared or self.caller.admin

    def owns(self, owner: Owner) -> bool:
        """Whether that is they: the same name and the same number, since each alone may be given to another user."""
        return owner.user == self.caller.user and owner.uid == (self.caller.uid if self.shared else -1)

    def sees(self, job: JobRecord) -> bool:
        """Whether they may know of a job."""
        return self.sees_all or self.owns(job.owner)

    def keys(self, name: str) -> tuple[str, ...]:
        """What a name of theirs may mean: a job of their own, or `owner/name`."""
        return tuple(dict.fromkeys((self.owner.key(name), name)))

    def called(self, job: JobRecord) -> str:
        """A job's name to them."""
        if not self.sees(job):
            return SOMEBODY
        return job.name if self.owns(job.owner) else job.key

    def told(self, job: JobRecord, document: Document) -> Document:
        """The document of a job that is told with its owner's names, with the names that they know."""
        if self.owns(job.owner):
            return document
        if "array" in document:
            document["array"] = job.array
        return document | {"name": job.key} if "name" in document else document

    # --- the moment ------------------------------------------------------------------------------

    def name_in_moment(self, job: JobRecord) -> str:
        """What a job of theirs is called in the moment as they see it."""
        return job.key if self.sees_all else job.name

    def asked_name(self, name: str) -> str:
        """The same for one that they are about to submit."""
        return self.owner.key(name) if self.sees_all else name

    def moment(self, whole: Snapshot, jobs: Iterable[JobRecord]) -> Snapshot:
        """The moment, in which jobs that they may not know of have other names: so has whatever is said of it."""
        if self.sees_all:
            return whole
        jobs = list(jobs)
        own = {job.key: job.name for job in jobs if self.owns(job.owner)}
        taken = set(own.values())
        hidden = {job.key: _unlike(f"{SOMEBODY}-{job.id}", taken) for job in jobs if job.key not in own}
        return masking.renamed(whole, own, hidden)

    def event(self, happened: PastEvent) -> Document:
        """One thing that happened; of others' jobs only that something did."""
        told: Document = {"id": happened.id, "at": happened.at, "kind": happened.kind}
        own = happened.identity == self.owner.identity
        if not own and not self.sees_all:
            return told
        name = self.owner.name(happened.job) if own else happened.job
        return told | ({"job": name} if name else {}) | happened.rest


def _unlike(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "'"
    return name
