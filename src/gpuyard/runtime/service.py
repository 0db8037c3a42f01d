"""What the control plane offers to those who serve people: the API, and through it the client, the CLI and the page.

`server.api` calls it; the embedded yard implements it (`runtime.embedded`), a cluster's will too. Documents are plain
JSON-able dictionaries with the snapshot file's keys, plus `phase`, `reason` and what else is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: known by peer credential or token. An admin may do everything."""

    user: str
    uid: int = -1
    groups: tuple[str, ...] = ()
    admin: bool = False


class Service(Protocol):
    """Raises `model.errors.NotFound` for unknown names, `Refused` for what cannot be, each with one clear sentence."""

    def status(self) -> Document:
        """Up since when, pid, version, state folder, addresses, fleet in short, real or virtual GPUs."""

    def submit(
        self, caller: Caller, jobs: Sequence[Document], key: str = "", queue_anyway: bool = False
    ) -> list[Document]:
        """Accept jobs (all or none), durably, before returning; `key` makes a repeated call harmless.

        Each answer has `name`, `phase` and `forecast` (see `preview`). A job that could never run is refused
        (`Never`, exit code 4) unless `queue_anyway`.
        """

    def preview(self, caller: Caller, jobs: Sequence[Document]) -> list[Document]:
        """What would happen: `verdict` (starts, waits, never), sentence, ETA range, quota after, price per hour."""

    def jobs(self, caller: Caller, all_ended: bool = False) -> list[Document]:
        """The active jobs and the newest hundred that ended; all that ended on request."""

    def job(self, caller: Caller, name: str) -> Document:
        """One job with its attempts, placements, exit codes and history."""

    def why(self, caller: Caller, name: str) -> Document:
        """Why it does not run: the sentence, the ladder, suggestions, ETA; or where it runs."""

    def act(self, caller: Caller, name: str, verb: str) -> Document:
        """`cancel`, `hold`, `release` or `requeue` a job."""

    def logs(self, caller: Caller, name: str, task: int, offset: int) -> tuple[bytes, int, bool]:
        """Output from `offset` on: the bytes, the next offset, and whether more may come."""

    def nodes(self) -> list[Document]:
        """The nodes with their GPUs, health and who holds them."""

    def queues(self) -> list[Document]:
        """The queues with quota, limit, use, fair share and how many wait."""

    def set_queue(self, caller: Caller, document: Document, dry_run: bool) -> Document:
        """Create or change a queue; a dry run tells who would move above share or lose GPUs."""

    def snapshot(self) -> Document:
        """The whole moment, as a snapshot file."""

    def report(self, by: str, since: float) -> list[Mapping[str, Any]]:
        """GPU-seconds and money by user or queue."""

    def events(self, after: int, limit: int) -> list[Document]:
        """What happened, each with a growing `id`, from the one after `after` on."""

    def wait_events(self, after: int, timeout: float) -> bool:
        """Block until there is an event newer than `after`; False on time-out."""
