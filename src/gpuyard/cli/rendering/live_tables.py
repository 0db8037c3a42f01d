"""The listings of a running yard: tables over the documents that its API sends.

Called by the commands of `looking`; `snapshot_tables` has the same for files. Nothing here counts or decides: the
yard has done it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from gpuyard.cli.console import terminal, words
from gpuyard.cli.rendering import redrawing
from gpuyard.cli.rendering.tables import Listing, TableWish, column, write
from gpuyard.client import Client
from gpuyard.runtime.clock import SystemClock

Document = dict[str, Any]

JOB_FIELDS = (
    "name", "queue", "user", "class", "phase", "reason", "message", "tasks", "groups", "gpus", "fraction", "gpu_memory",
    "mig", "asked_gpus", "held_gpus", "submitted", "started", "ended", "exit_code", "priority", "placements",
)  # fmt: skip
"""What a table of jobs shows; ten thousand whole jobs would take longer to send than to list."""

TABLE_FIELDS = (
    "name", "queue", "phase", "reason.code", "tasks", "groups", "gpus", "fraction", "gpu_memory", "mig", "asked_gpus",
    "held_gpus", "submitted", "started", "ended", "exit_code",
)  # fmt: skip


def show(listing: Listing[Document], ask: Callable[[Client], Sequence[Document]], wish: TableWish) -> None:
    """Print a listing of the running yard, again and again if it is watched."""
    with Client() as client:

        def draw() -> None:
            write(listing, ask(client), wish)

        if wish.watch:
            redrawing.repeat(client, draw)
        else:
            draw()


def show_jobs(wish: TableWish, all_ended: bool) -> None:
    """The jobs; only what the chosen form shows is asked for."""
    whole = wish.form in ("json", "yaml") or bool(wish.sort_by)
    fields = () if whole else ("name",) if wish.form == "name" else JOB_FIELDS if wish.form == "wide" else TABLE_FIELDS
    try:
        show(JOBS, lambda client: client.jobs(all_ended, fields), wish)
    finally:
        _tell_how_many_are_left_out(all_ended, wish)


def _tell_how_many_are_left_out(all_ended: bool, wish: TableWish) -> None:
    if not all_ended and wish.form == "wide" and not wish.watch:
        terminal.say("Ended jobs beyond the newest hundred are left out; --all lists them.")


# --- nodes ---------------------------------------------------------------------------------------


def devices(node: Document) -> list[Document]:
    """A node's GPUs, each with its health and who holds it."""
    told: list[Document] = node.get("devices") or []
    return told


def sign(device: Document) -> str:
    """One GPU as one sign, as `yard nodes --snapshot` draws it."""
    if device.get("health") == "sick":
        return "✗"
    if device.get("phase") and not device.get("jobs"):
        return "−"
    if device.get("mig"):
        return "▤"
    if device.get("jobs"):
        return "■" if float(device.get("used", 1.0)) >= 1.0 else "◧"
    return "?" if device.get("health") == "suspect" else "□"


def gpu_map(node: Document) -> str:
    """One sign for each GPU, islands apart."""
    islands: dict[Any, str] = {}
    for device in devices(node):
        island = device.get("island", 0)
        islands[island] = islands.get(island, "") + sign(device)
    return " ".join(islands.values()) or "-"


def health(node: Document) -> str:
    """How many of its GPUs are unwell."""
    states = [device.get("health") for device in devices(node)]
    told = [f"{states.count(state)} {state}" for state in ("sick", "suspect") if state in states]
    return ", ".join(told) or "ok"


NODES: Listing[Document] = Listing(
    "node",
    (
        column("NAME", lambda node: node["name"]),
        column("POOL", lambda node: node.get("pool") or "-"),
        column("MODEL", lambda node: node.get("model") or "-"),
        column("FREE", lambda node: f"{node.get('free', 0)}/{node.get('gpus', 0)}", right=True),
        column("MAP", gpu_map),
        column("HEALTH", health),
        column("PHASE", lambda node: node.get("phase", "-")),
        column("PLACE", lambda node: "/".join(map(str, (node.get("domains") or {}).values())) or "-", wide=True),
        column("JOBS", lambda node: words.some([str(job) for job in node.get("jobs", ())]), wide=True, wraps=True),
    ),
    lambda node: node,
)


# --- queues --------------------------------------------------------------------------------------


def amount(value: Any) -> str:
    """GPUs of a quota or limit: a number, or one for each model; a dash is unlimited."""
    if isinstance(value, int):
        return str(value)
    if isinstance(value, dict):
        return " ".join(f"{key}={amount(each)}" for key, each in value.items())
    if value in (None, "unlimited"):
        return "-"
    return f"{round(float(value), 1):g}" if isinstance(value, int | float) else str(value)


def _amounts(title: str, key: str) -> Any:
    return column(title, lambda queue: amount(queue.get(key, 0)), right=True)


QUEUES: Listing[Document] = Listing(
    "queue",
    (
        column("NAME", lambda queue: "  " * int(queue.get("depth", 0)) + str(queue["name"])),
        _amounts("QUOTA", "quota"),
        column("LIMIT", lambda queue: amount(queue.get("limit", "unlimited")), right=True),
        _amounts("FAIR SHARE", "fair_share"),
        _amounts("USED", "used"),
        _amounts("BORROWED", "borrowed"),
        _amounts("WAITING", "waiting"),
        column("WEIGHT", lambda queue: amount(queue.get("weight", 1)), right=True, wide=True),
        column("PRIORITY", lambda queue: queue.get("priority", 0), right=True, wide=True),
    ),
    lambda queue: queue,
)


# --- jobs ----------------------------------------------------------------------------------------

STYLES = {"running": "green", "waiting": "yellow", "starting": "cyan", "failed": "red"}


def shape(job: Document) -> str:
    """Tasks × GPUs of each group, alike ones together."""
    if not job.get("groups"):
        return f"{job.get('tasks', 1)}×{_ask(job)}"
    parts: dict[str, int] = {}
    for group in leaves(job):
        ask = _ask(group)
        parts[ask] = parts.get(ask, 0) + int(group.get("tasks", 1))
    return " + ".join(f"{tasks}×{ask}" for ask, tasks in parts.items())


def leaves(job: Document) -> Iterator[Document]:
    """The groups that have tasks, however deep they stand."""
    for group in job["groups"]:
        yield from leaves(group) if "groups" in group else (group,)


def _ask(group: Document) -> str:
    if whole := group.get("gpus"):
        return str(whole)
    if isinstance(mig := group.get("mig"), dict):
        return "+".join(profile if count == 1 else f"{count}·{profile}" for profile, count in mig.items())
    found = group.get("fraction") or group.get("gpu_memory") or mig
    return str(found) if found else "cpu"


def gpus(job: Document) -> str:
    """What it holds of what it asks for, as one number where they are the same."""
    wanted, held = asked(job), job.get("held_gpus", 0)
    return amount(wanted) if held in (0, wanted) else f"{amount(held)}/{amount(wanted)}"


def asked(job: Document) -> float:
    """The GPUs of all its tasks."""
    told = job.get("asked_gpus")
    return told if told is not None else sum(map(_whole, leaves(job) if "groups" in job else [job]))


def _whole(group: Document) -> float:
    return float(group.get("tasks", 1)) * float(group.get("gpus") or 0)


def seconds(moment: Any) -> float | None:
    """A time of a document as seconds since the epoch."""
    if isinstance(moment, str):
        return datetime.fromisoformat(moment).timestamp()
    return float(moment) if isinstance(moment, int | float) else None


def age(job: Document) -> str:
    """Since its start, or its submission if it has none; of an ended one how long it took."""
    begun = job.get("started") or job.get("submitted")
    return "-" if begun is None else _age(begun, job.get("ended"), int(_CLOCK.now()))


_CLOCK = SystemClock()


@lru_cache(maxsize=4096)
def _age(begun: Any, end: Any, now: int) -> str:
    """Kept, because the members of an array all came at the same moment."""
    return words.duration((seconds(end) or now) - (seconds(begun) or now))


def reason(job: Document) -> str:
    """One word: why it waits, or how it ended."""
    if job.get("exit_code"):
        return f"exit {job['exit_code']}"
    told = job.get("reason") if job["phase"] in ("waiting", "held") else None
    return str(told["code"]) if told else "-"


def where(job: Document) -> str:
    """The nodes its tasks run on."""
    from gpuyard.model.job import Placement

    places = [Placement(each["node"], tuple(each.get("gpus", ()))) for each in job.get("placements", ())]
    return words.places(places) or "-"


def sentence(job: Document) -> str:
    """Why, in words."""
    return str((job.get("reason") or {}).get("message") or job.get("message") or "-")


JOBS: Listing[Document] = Listing(
    "job",
    (
        column("NAME", lambda job: job["name"]),
        column("QUEUE", lambda job: job.get("queue", "default")),
        column("PHASE", lambda job: Styled(job["phase"])),
        column("SHAPE", shape),
        column("GPUS", gpus, right=True),
        column("AGE", age, right=True),
        column("REASON", reason),
        column("USER", lambda job: job.get("user") or "-", wide=True),
        column("CLASS", lambda job: job.get("class", "training"), wide=True),
        column("PRIORITY", lambda job: job.get("priority", "-"), right=True, wide=True),
        column("WHERE", where, wide=True, wraps=True),
        column("WHY", sentence, wide=True, wraps=True),
    ),
    lambda job: job,
)


class Styled(str):
    """A phase: plain in a plain table, coloured in a drawn one."""

    __slots__ = ()

    def __rich__(self) -> Any:
        return terminal.text(str(self), STYLES.get(str(self), ""))
