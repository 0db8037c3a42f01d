"""`yard demo`: an embedded yard of its own, two hundred jobs, a live view, and a measured summary.

Called by `root`. The state folder is temporary; whichever way it ends, no process and no folder is left behind.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuyard.cli.console import hints, options, terminal, words
from gpuyard.cli.console.choosing import OVER
from gpuyard.cli.keeping import which_yard
from gpuyard.cli.learning import demo_summary, demo_view, demo_work
from gpuyard.cli.rendering import why_text
from gpuyard.client import Client
from gpuyard.model.errors import GpuYardError
from gpuyard.runtime.clock import SystemClock

if TYPE_CHECKING:
    from gpuyard.server.hosting import Hosting

Document = dict[str, Any]

PORT = 7411
TICK_S = 0.25
LAST_S = 48.0
"""Whatever still runs then is ended: a demo that outlasts its watcher's patience shows nothing."""
ASK_WHY_S = 5.0


@options.command(
    "demo",
    """
    yard demo
    yard demo --stay
    """,
)
@click.option("--stay", is_flag=True, help="Keep the yard up afterwards, until Ctrl-C.")
@click.option(
    "--port", default=PORT, show_default=True, type=click.IntRange(0, 65535), help="The live page's, if free."
)
def demo(stay: bool, port: int) -> None:
    """Show everything at once: a yard with two hundred jobs, live, in under a minute.

    Real GPUs if there are any, else a virtual fleet of 32 nodes with 8 GPUs each; the jobs are real processes.
    """
    clock = SystemClock()
    fleet = which_yard.of_this_machine(clock.now()) or which_yard.of_text(
        demo_work.fleet_text(), "the demo's fleet", clock.now()
    )
    paced = replace(fleet.snapshot, policy=demo_work.scaled(fleet.snapshot.policy))
    fleet = replace(fleet, snapshot=paced)
    terminal.write(f"GPUs are {fleet.told}.\n")
    with _folder() as folder, _hosted(fleet, folder, port, clock) as hosting:
        demo = _Demo(hosting, Client.at_state(folder), clock, fleet)
        demo.run()
        if stay:
            _stay(hosting, folder)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="gpuyard-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _hosted(fleet: which_yard.YardFleet, folder: Path, port: int, clock: SystemClock) -> Iterator[Hosting]:
    """A yard that ends with its jobs, however this ends; a second Ctrl-C does not keep it from tidying up."""
    from gpuyard.server.doors.listening import Tcp
    from gpuyard.server.hosting import Doors, Hosting

    yard = which_yard.make(fleet, folder, clock, term_grace=1.0, backoff=0.5)
    hosting = Hosting(yard, Doors(folder, tcp=Tcp(port=port)), clock)
    signal.signal(signal.SIGTERM, _interrupted)
    context = hosting.start()
    try:
        if port and not context.urls[0].endswith(f":{port}"):
            terminal.say(f"Port {port} is busy, so the live page is elsewhere:")
        terminal.write(f"Live page: {context.page_url()}\nState:     {folder} (removed at the end)\n")
        sys.stdout.flush()
        yield hosting
    finally:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        hosting.stop(end_jobs=True)
        hosting.close()
        signal.signal(signal.SIGINT, before)


def _stay(hosting: Hosting, folder: Path) -> None:
    """Until Ctrl-C."""
    page = hosting.context.page_url() if hosting.context is not None else ""
    terminal.write(
        f"\nThe yard stays up: {page}\nIn another terminal: {hints.yard()} --state {folder} jobs\n"
        "Ctrl-C ends it, and removes everything.\n"
    )
    sys.stdout.flush()
    hosting.wait()


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


class _Demo:
    """One run of it."""

    def __init__(self, hosting: Hosting, client: Client, clock: SystemClock, fleet: which_yard.YardFleet) -> None:
        self._hosting = hosting
        self._client = client
        self._clock = clock
        self._fleet = fleet
        gpus = sum(len(node.gpus) for node in fleet.snapshot.nodes)
        self._left = demo_work.arrivals() if fleet.virtual else demo_work.small_arrivals(gpus)
        self._begun = clock.monotonic()
        self._seen = 0
        self._made_room = demo_summary.MadeRoom()
        self._why: Document | None = None

    @property
    def _seconds(self) -> float:
        return self._clock.monotonic() - self._begun

    def run(self) -> None:
        """Submit, show, sum up."""
        pause = threading.Event()
        terminal.write(
            f"{words.counted(len(self._left), 'job')} from three teams arrive over {demo_work.LAST_ARRIVAL_S:.0f} s.\n"
        )
        with demo_view.DemoView() as view:
            while not self._done():
                begun = self._seconds
                self._submit_due()
                self._show(view)
                self._ask_why()
                pause.wait(max(0.02, TICK_S - (self._seconds - begun)))
        self._sum_up()

    def _submit_due(self) -> None:
        due = [arrival.job for arrival in self._left if arrival.at <= self._seconds]
        if due:
            self._left = self._left[len(due) :]
            self._client.submit(due)

    def _show(self, view: demo_view.DemoView) -> None:
        events = self._client.events(self._seen, 1000)
        if events:
            self._seen = int(events[-1]["id"])
            self._made_room = self._made_room.after(events)
        view.hear(events)
        view.show(self._seconds, self._client.status(), self._client.nodes())

    def _ask_why(self) -> None:
        """Once, while the job that cannot be placed is still waiting."""
        if self._why is None and self._fleet.virtual and self._seconds >= ASK_WHY_S:
            with contextlib.suppress(GpuYardError):
                self._why = self._client.why(demo_work.STRANDED)

    def _done(self) -> bool:
        if self._left:
            return False
        status = self._client.status()
        return self._seconds > LAST_S or not (status["running"] or status["waiting"] or status["gpus_held"])

    def _sum_up(self) -> None:
        over = [job["name"] for job in self._client.jobs(all_ended=True) if job["phase"] in OVER]
        screen = terminal.Screen()
        demo_summary.draw(screen, [self._client.job(name) for name in over], self._client.nodes(), self._made_room)
        if self._why is not None:
            screen.show(
                terminal.text(""), terminal.text(f"$ yard why {demo_work.STRANDED}   (asked after 5 s)", "bold cyan")
            )
            why_text.draw(screen, self._why, self._clock.now())
        screen.show(terminal.text(""), terminal.text("Next:", "italic"))
        look = "nvidia-smi -L" if not self._fleet.virtual else "sh -c 'echo on GPU $GPUYARD_GPUS of $GPUYARD_NODE'"
        for command in ("up --detach", f"run --gpus 1 -- {look}", "tour"):
            screen.show(terminal.text(f"  {hints.yard()} {command}", "cyan"))
