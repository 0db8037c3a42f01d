"""Every question to the API as a value: method, path, query, body. Both clients send these; nothing is sent here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

Document = dict[str, Any]

T = TypeVar("T")

ROOT = "/api/v1"


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request whose answer is a T. `patience_s` is how long the server itself may take before it answers."""

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    patience_s: float = 0.0

    @property
    def target(self) -> str:
        """Path and query as they stand in the request."""
        given = {key: value for key, value in self.query.items() if value is not False and value != ""}
        return self.path + (f"?{urlencode(given)}" if given else "")


def status() -> Call[Document]:
    """How the yard is."""
    return Call("GET", f"{ROOT}/status")


def submit(jobs: Sequence[Document], key: str, queue_anyway: bool) -> Call[list[Document]]:
    """Jobs to be accepted."""
    return Call("POST", f"{ROOT}/jobs", body={"jobs": list(jobs), "key": key, "queue_anyway": queue_anyway})


def preview(jobs: Sequence[Document]) -> Call[list[Document]]:
    """Jobs to be looked at only."""
    return Call("POST", f"{ROOT}/previews", body={"jobs": list(jobs)})


def jobs(all_ended: bool, fields: Sequence[str]) -> Call[list[Document]]:
    """The jobs, or some keys of them."""
    return Call("GET", f"{ROOT}/jobs", {"all": all_ended, "fields": ",".join(fields)})


def job(name: str) -> Call[Document]:
    """One job."""
    return Call("GET", _job(name))


def why(name: str) -> Call[Document]:
    """Why it waits."""
    return Call("GET", f"{_job(name)}/why")


def act(name: str, verb: str) -> Call[Document]:
    """Cancel, hold, release or requeue it."""
    return Call("POST", f"{_job(name)}/{verb}")


def logs(name: str, task: int, offset: int, wait_s: float) -> Call[bytes]:
    """Output from an offset on; with `wait_s` the server waits that long for some to come."""
    return Call("GET", f"{_job(name)}/logs", {"task": task, "offset": offset, "wait": wait_s}, patience_s=wait_s)


def attach(name: str, task: int) -> Call[Document]:
    """Where its terminal is."""
    return Call("GET", f"{_job(name)}/attach", {"task": task})


def nodes() -> Call[list[Document]]:
    """The nodes."""
    return Call("GET", f"{ROOT}/nodes")


def drain(node: str, wish: Document, dry_run: bool) -> Call[Document]:
    """A node or GPU to be emptied."""
    return Call("POST", f"{ROOT}/nodes/{quote(node, safe='')}/drain", {"dry_run": dry_run}, wish)


def undrain(node: str, gpu: int | None) -> Call[Document]:
    """A node or GPU to be opened."""
    return Call("POST", f"{ROOT}/nodes/{quote(node, safe='')}/undrain", body={"gpu": gpu})


def alerts() -> Call[list[Document]]:
    """What somebody should look at."""
    return Call("GET", f"{ROOT}/alerts")


def overview() -> Call[Document]:
    """History, expected starts, fragmentation."""
    return Call("GET", f"{ROOT}/overview")


def queues() -> Call[list[Document]]:
    """The queues."""
    return Call("GET", f"{ROOT}/queues")


def set_queue(document: Document, dry_run: bool) -> Call[Document]:
    """A queue to be made or changed."""
    return Call("PUT", f"{ROOT}/queues/{quote(str(document.get('name', '')), safe='')}", {"dry_run": dry_run}, document)


def delete_queue(name: str, dry_run: bool) -> Call[Document]:
    """A queue to be deleted."""
    return Call("DELETE", f"{ROOT}/queues/{quote(name, safe='')}", {"dry_run": dry_run})


def snapshot() -> Call[Document]:
    """The whole moment."""
    return Call("GET", f"{ROOT}/snapshot")


def report(by: str, since: float) -> Call[list[Document]]:
    """GPU-seconds and money."""
    return Call("GET", f"{ROOT}/report", {"by": by, "since": since})


def events(after: int, limit: int, wait_s: float) -> Call[list[Document]]:
    """What happened; with `wait_s` the server waits that long for something to."""
    return Call("GET", f"{ROOT}/events", {"after": after, "limit": limit, "wait": wait_s}, patience_s=wait_s)


def stream(after: int) -> Call[bytes]:
    """What happens, as it happens."""
    return Call("GET", f"{ROOT}/events/stream", {"after": after})


def backup(path: str) -> Call[Document]:
    """A copy of the state."""
    return Call("POST", f"{ROOT}/backup", body={"path": path})


def login() -> Call[Document]:
    """An address of the live page that opens once."""
    return Call("POST", f"{ROOT}/logins")


def shut_down(end_jobs: bool) -> Call[Document]:
    """Stop the yard."""
    return Call("POST", f"{ROOT}/shutdown", body={"jobs": end_jobs})


def _job(name: str) -> str:
    return f"{ROOT}/jobs/{quote(name, safe='')}"
