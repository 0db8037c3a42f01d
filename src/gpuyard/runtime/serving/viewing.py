"""What a caller sees of a yard that many share: their own jobs under their own names, of others' only that they are.

Called by the embedded yard for every question. Names belong to their owners: whose a job is, and what its caller calls
it, is answered here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.service import Caller, Document
from gpuyard.runtime.serving import masking
from gpuyard.worlds.local.state.records import Entry, Owner

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

    def sees(self, entry: Entry) -> bool:
        """Whether they may know of a job."""
        return self.sees_all or self.owns(entry.owner)

    def keys(self, name: str) -> tuple[str, ...]:
        """What a name of theirs may mean: a job of their own, or `owner/name`."""
        return tuple(dict.fromkeys((self.owner.key(name), name)))

    def called(self, entry: Entry) -> str:
        """A job's name to them."""
        if not self.sees(entry):
            return SOMEBODY
        return entry.name if self.owns(entry.owner) else entry.key

    def told(self, entry: Entry, document: Document) -> Document:
        """The document of a job that is told with its owner's names, with the names that they know."""
        if self.owns(entry.owner):
            return document
        if "array" in document:
            document["array"] = entry.array
        return document | {"name": entry.key} if "name" in document else document

    # --- the moment ------------------------------------------------------------------------------

    def name_in_moment(self, entry: Entry) -> str:
        """What a job of theirs is called in the moment as they see it."""
        return entry.key if self.sees_all else entry.name

    def asked_name(self, name: str) -> str:
        """The same for one that they are about to submit."""
        return self.owner.key(name) if self.sees_all else name

    def moment(self, whole: Snapshot, entries: Iterable[Entry]) -> Snapshot:
        """The moment, in which jobs that they may not know of have other names: so has whatever is said of it."""
        if self.sees_all:
            return whole
        entries = list(entries)
        own = {entry.key: entry.name for entry in entries if self.owns(entry.owner)}
        taken = set(own.values())
        hidden = {entry.key: _unlike(f"{SOMEBODY}-{entry.id}", taken) for entry in entries if entry.key not in own}
        return masking.renamed(whole, own, hidden)

    def event(self, row: tuple[int, float, str, str, str, Document]) -> Document:
        """One thing that happened: id, moment, kind, the job's key, the identity of its owner, and the rest."""
        number, at, kind, key, identity, rest = row
        own = identity == self.owner.identity
        if not own and not self.sees_all:
            return {"id": number, "at": at, "kind": kind}
        job = {"job": self.owner.name(key) if own else key} if key else {}
        return {"id": number, "at": at, "kind": kind} | job | rest


def _unlike(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "'"
    return name
