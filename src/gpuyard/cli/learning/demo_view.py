"""What `yard demo` shows while it runs: the fleet as a map and the newest events, redrawn; plain lines off a terminal.

Called by `demo`. It draws what the API told; it asks nothing itself.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gpuyard.cli.console import terminal, words
from gpuyard.cli.rendering.listings import live_tables

if TYPE_CHECKING:
    from rich.console import RenderableType

Document = dict[str, Any]

EVENTS_SHOWN = 7
PLAIN_EVERY_S = 3.0
COLOURS = ("cyan", "green", "yellow", "blue", "magenta", "bright_cyan", "bright_green", "bright_blue", "bright_magenta")
TOLD = ("evicted", "moved", "health", "failed", "limit")
"""Off a terminal only events of these kinds get a line of their own."""


class DemoView:
    """A screen that changes, or lines that follow each other."""

    def __init__(self) -> None:
        self._news: deque[str] = deque(maxlen=EVENTS_SHOWN)
        self._rich: Any = None
        self._told_at = -PLAIN_EVERY_S

    def __enter__(self) -> DemoView:
        if sys.stdout.isatty():
            from rich.live import Live

            self._rich = Live(refresh_per_second=8, transient=True)
            self._rich.__enter__()
        return self

    def __exit__(self, *left: Any) -> None:
        if self._rich is not None:
            self._rich.__exit__(*left)

    def hear(self, events: Iterable[Document]) -> None:
        """What has happened."""
        for event in events:
            told = str(event.get("message") or f"{event.get('job') or event.get('node', '')} {event.get('kind')}")
            self._news.append(told)

    def show(self, seconds: float, status: Document, nodes: list[Document]) -> None:
        """The moment."""
        if self._rich is not None:
            self._rich.update(self._drawn(seconds, status, nodes))
        elif seconds - self._told_at >= PLAIN_EVERY_S:
            self._told_at = seconds
            terminal.write(f"{headline(seconds, status)}\n")

    def _drawn(self, seconds: float, status: Document, nodes: list[Document]) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        lines = [Text(headline(seconds, status), style="bold"), Text("")]
        lines += [_rack(rack, members) for rack, members in racks(nodes).items()]
        news = [terminal.safe(f"  {told}") for told in self._news]
        lines += [Text(""), *(Text(told, style="dim", overflow="ellipsis", no_wrap=True) for told in news)]
        return Group(*lines)


def headline(seconds: float, status: Document) -> str:
    """One line of numbers."""
    held, gpus = status["gpus_held"], status["gpus"]
    return (
        f"{seconds:4.0f} s  {held}/{words.counted(gpus, 'GPU')} held ({held / max(1, gpus):.0%}), "
        f"{status['gpus_sick']} sick, "
        f"{words.counted(status['running'], 'job')} running, {status['waiting']} waiting"
    )


def racks(nodes: list[Document]) -> dict[str, list[Document]]:
    """The nodes by the place they stand in."""
    found: dict[str, list[Document]] = {}
    for node in nodes:
        place = "/".join(map(str, (node.get("domains") or {}).values())) or "fleet"
        found.setdefault(place, []).append(node)
    return found


def _rack(name: str, members: list[Document]) -> Any:
    from rich.text import Text

    model = str(members[0].get("model", "")).split("-")[0]
    line = Text(f"{name} {model:<6}", no_wrap=True)
    for node in members:
        line.append(" ")
        for device in live_tables.devices(node):
            holder = (device.get("jobs") or [""])[0]
            style = "bold red" if device.get("health") == "sick" else _colour(holder) if holder else "dim"
            line.append(live_tables.sign(device), style=style)
    return line


def _colour(job: str) -> str:
    """The same job has the same colour; Python's own hash would change with every run."""
    return COLOURS[sum((n + 1) * ord(letter) for n, letter in enumerate(job)) % len(COLOURS)]
