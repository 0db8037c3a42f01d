"""The listings of a running yard: tables over the documents that its API sends.

Called by the commands of `looking`; `snapshot_tables` has the same for files. Nothing here counts or decides: the
yard has done it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from gpuyard.cli.console import words
from gpuyard.cli.rendering.listings import redrawing
from gpuyard.cli.rendering.listings.tables import Listing, TableWish, column, write
from gpuyard.client import Client

Document = dict[str, Any]


def show(listing: Listing[Document], ask: Callable[[Client], Sequence[Document]], wish: TableWish) -> None:
    """Print a listing of the running yard, again and again if it is watched."""
    with Client() as client:

        def draw() -> None:
            write(listing, ask(client), wish)

        if wish.watch:
            redrawing.repeat(client, draw)
        else:
            draw()


def seconds(moment: Any) -> float | None:
    """A time of a document as seconds since the epoch."""
    if isinstance(moment, str):
        return datetime.fromisoformat(moment).timestamp()
    return float(moment) if isinstance(moment, int | float) else None


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
    return f"{round(float(value), 3):g}" if isinstance(value, int | float) else str(value)


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
