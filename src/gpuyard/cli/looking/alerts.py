"""`yard alerts`: what somebody should look at, of the running yard or of a snapshot. Called by `root`."""

from __future__ import annotations

from typing import Any

from gpuyard.cli.console import options, terminal, words
from gpuyard.cli.rendering.listings import live_tables
from gpuyard.cli.rendering.listings.tables import Listing, TableWish, column, listing_options, write
from gpuyard.client import Client
from gpuyard.runtime.clock import SystemClock

Document = dict[str, Any]
STYLES = {"critical": "red", "warning": "yellow"}
_CLOCK = SystemClock()


@options.command(
    "alerts",
    """
    yard alerts
    yard alerts -w
    yard alerts -o json | jq '.[].key'
    yard alerts --snapshot fleet.yaml
    """,
)
@listing_options()
@options.snapshot()
def alerts(path: str, wish: TableWish) -> None:
    """What somebody should look at: jobs that wait too long, promises not kept, knots, closed nodes, scattered GPUs.

    Each cause once, the worst first, with what to type next. Of a snapshot: what stands after the next plan.
    """
    if path:
        write(LISTING, of_snapshot(path), wish)
    else:
        live_tables.show(LISTING, Client.alerts, wish)


def of_snapshot(path: str) -> list[Document]:
    """The alerts of a snapshot, at its own moment."""
    from gpuyard.brain import foresee
    from gpuyard.cli.console import sources
    from gpuyard.runtime.alerting.documents import document

    snapshot = sources.read(path).snapshot
    return [document(alert) | {"age": snapshot.now - alert.since} for alert in foresee.alerts(snapshot)]


def _age(alert: Document) -> str:
    since = live_tables.seconds(alert["since"]) or 0.0
    return words.duration(alert.get("age", _CLOCK.now() - since))


def _severity(alert: Document) -> Any:
    return terminal.text(alert["severity"], STYLES.get(alert["severity"], ""))


LISTING: Listing[Document] = Listing(
    "alert",
    (
        column("SEVERITY", _severity),
        column("KIND", lambda alert: alert["kind"]),
        column("FOR", _age, right=True),
        column("WHAT", lambda alert: alert["sentence"], wraps=True),
        column("NEXT", lambda alert: alert["command"]),
        column("KEY", lambda alert: alert["key"], wide=True),
    ),
    lambda alert: {"name": alert["key"]} | {key: value for key, value in alert.items() if key != "age"},
    "Nothing calls for attention.",
)
