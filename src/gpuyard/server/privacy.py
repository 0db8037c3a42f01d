"""What a caller who is not the yard's owner sees of others: shapes and loads, no names. Called by `api`.

The service keeps its own listings private; here is what is told of the fleet as a whole, in which everybody's jobs are.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuyard.runtime.service import Caller, Document, Service

OTHERS = "other"


def snapshot(whole: Document, caller: Caller) -> Document:
    """A snapshot in which others' jobs are shapes without names: enough to ask what is free."""
    if caller.admin:
        return whole
    jobs = whole.get("jobs", ())
    names = {job["name"]: f"{OTHERS}-{n}" for n, job in enumerate(jobs) if job.get("user") != caller.user}
    kept = [{**each, "job": names.get(each["job"], each["job"])} for each in whole.get("reservations", ())]
    rest = {key: value for key, value in whole.items() if key not in ("memory", "budgets")}
    return rest | {"jobs": [_shape(job, names) for job in jobs], "reservations": kept}


def _shape(job: Document, names: dict[str, str]) -> Document:
    if job["name"] not in names:
        return job
    return {key: value for key, value in job.items() if key not in ("user", "run")} | {"name": names[job["name"]]}


def nodes(documents: list[Document], service: Service, caller: Caller) -> list[Document]:
    """The nodes, with others' jobs without their names."""
    if caller.admin:
        return documents
    own = _own(service, caller)
    return [
        node
        | {"jobs": _masked(node.get("jobs", ()), own)}
        | {"devices": [device | {"jobs": _masked(device["jobs"], own)} for device in node.get("devices", ())]}
        for node in documents
    ]


def events(documents: list[Document], service: Service, caller: Caller) -> list[Document]:
    """What happened; of others' jobs only that something did, so that whoever watches looks again."""
    if caller.admin:
        return documents
    own = _own(service, caller)
    return [
        event if event.get("job") in own else {key: event[key] for key in ("id", "at", "kind") if key in event}
        for event in documents
    ]


def _own(service: Service, caller: Caller) -> set[str]:
    return {job["name"] for job in service.jobs(caller, fields=("name",))}


def _masked(names: Iterable[str], own: set[str]) -> list[str]:
    return sorted({name if name in own else OTHERS for name in names})
