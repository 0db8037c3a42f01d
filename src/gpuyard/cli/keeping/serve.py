"""`yard serve`: the parts of GPUYard that run in a cluster. Called by `root`."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import click

from gpuyard.cli.console import options, terminal
from gpuyard.model.errors import Refused
from gpuyard.model.outside.text import PORT_MAX

if TYPE_CHECKING:
    from gpuyard.kube.credentials import KubeAccess
    from gpuyard.model.outside.ports import Clock
    from gpuyard.model.snapshot import Snapshot
    from gpuyard.runtime.clustered.scheduler import ClusterScheduler
    from gpuyard.server.cluster_probes import ProbeDoor
    from gpuyard.server.clustered import ClusterDoor

ROLES = ("scheduler", "nodes")
LOOK_S = 2.0
"""So often it is looked whether something is wrong."""
PATIENCE_S = 5.0
"""So long nothing is said while the cluster is read for the first time."""
SAY_AGAIN_S = 30.0


@options.command(
    "serve",
    """
    yard serve --role scheduler --kubeconfig ~/.kube/config
    yard serve --role scheduler --site queues.yaml --no-lease
    yard serve --role scheduler --rights | kubectl apply -f -
    """,
)
@click.option("--role", type=click.Choice(ROLES), required=True, help="What this process does.")
@click.option("--rights", is_flag=True, help="Print the account and the rights that it needs, for kubectl, and leave.")
@click.option(
    "--kubeconfig", default="", metavar="FILE", help="How the cluster is reached.  [default: as kubectl does]"
)
@click.option("--context", default="", metavar="NAME", help="A context of the kubeconfig other than the current one.")
@click.option(
    "--scheduler-name", "name", default="gpuyard", show_default=True, help="The schedulerName that is served."
)
@click.option("--site", default="", metavar="FILE", help="Queues, policy and topology, as in a fleet file.")
@click.option(
    "--start-timeout",
    default="10m",
    show_default=True,
    metavar="TIME",
    help="How long a pod may take to begin on its node; then its gang is tried elsewhere, once.",
)
@click.option(
    "--stay-marks/--no-stay-marks",
    default=True,
    help="Mark members of gangs so that Cluster Autoscaler and Karpenter leave their nodes.  [default: stay-marks]",
)
@click.option(
    "--reports",
    default="",
    metavar="FOLDER",
    help="Where failures are kept for bug reports.  [default: $GPUYARD_STATE/reports, ~/.local/state/gpuyard/reports]",
)
@click.option("--probes", default="", metavar="HOST:PORT", help="Answer /livez and /readyz there, for a kubelet.")
@click.option("--listen", default="", metavar="HOST:PORT", help="Also tell callers what their own tokens let them see.")
@click.option("--certificate", default="", metavar="FILE", help="TLS certificate for --listen beyond this machine.")
@click.option("--key", default="", metavar="FILE", help="Its private key.")
@click.option("--label-prefix", default="nvidia.com/", show_default=True, help="Of what --role nodes writes on nodes.")
@click.option("--taint", default="", metavar="KEY[=VALUE]:EFFECT", help="On nodes with GPUs, by --role nodes.")
@click.option(
    "--lease/--no-lease", "elects", default=True, help="Act only as its holder; others stand by.  [default: lease]"
)
def serve(role: str, rights: bool, kubeconfig: str, context: str, **given: Any) -> None:
    """Schedule a Kubernetes cluster: pods that ask for it by schedulerName are placed, whole gangs or not at all.

    Nothing is installed on nodes and nothing is replaced; kube-scheduler goes on with all other pods. It runs until it
    is told to stop (SIGTERM, Ctrl-C), and pods notice nothing when it does. With --role nodes it copies what agents
    found (GpuNode objects) to labels and a condition of the nodes instead, and schedules nothing.
    """
    if rights:
        from gpuyard.kube import manifests

        terminal.write(manifests.text(f"{role}.yaml"))
        return
    try:
        from gpuyard.runtime.clustered import scheduler
    except ModuleNotFoundError as missing:
        raise Refused(f"{missing.name} is not installed, which clusters need; `pip install 'gpuyard[kube]'`") from None
    from pathlib import Path

    from gpuyard.client import places
    from gpuyard.files.reports import ReportFolder
    from gpuyard.runtime.clock import SystemClock, SystemDice

    clock = SystemClock()
    access = scheduler.found(kubeconfig, context)
    if role == "nodes":
        _label(access, given["label_prefix"], given["taint"])
        return
    identity = f"{os.uname().nodename}-{os.getpid()}"
    site = site_of(given["site"], clock.now())
    settings = scheduler.WorldSettings(
        access,
        site,
        given["name"],
        identity,
        elects=given["elects"],
        start_timeout=_duration(given["start_timeout"]),
        stay_marks=given["stay_marks"],
    )
    reports = ReportFolder(Path(given["reports"]) if given["reports"] else places.state_folder() / "reports")
    running = scheduler.ClusterScheduler(settings, clock, SystemDice(), reports)
    probes = _probes(running, given["probes"]) if given["probes"] else None
    _until_told(running, _door(running, clock, given) if given["listen"] else None, probes)


def _address(option: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or len(port) > 5 or int(port) > PORT_MAX:
        told = f"HOST:PORT with a port of at most {PORT_MAX}, such as 127.0.0.1:7412 or 0.0.0.0:8443"
        raise click.UsageError(f"{option} is {told}.")
    return host.strip("[]"), int(port)


def _probes(running: ClusterScheduler, text: str) -> ProbeDoor:
    from gpuyard.server.cluster_probes import ProbeDoor

    try:
        return ProbeDoor(*_address("--probes", text), running.readiness)
    except OSError as error:
        raise Refused(f"--probes {text}: {error.strerror or error}") from None


def _duration(text: str) -> float:
    from gpuyard.files.units import Wrong, read_duration

    try:
        return read_duration(text)
    except Wrong as wrong:
        raise click.UsageError(f"--start-timeout: {wrong}") from None


def _label(access: KubeAccess, prefix: str, taint: str) -> None:
    """Until we are told to stop."""
    import asyncio

    from gpuyard.runtime.clock import SystemClock, SystemDice
    from gpuyard.runtime.clustered.labelling import LabelWish, label_nodes

    key, _, effect = taint.rpartition(":")
    name, _, value = key.partition("=")
    if taint and (not name or effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute")):
        raise click.UsageError("--taint is KEY:EFFECT or KEY=VALUE:EFFECT, such as nvidia.com/gpu=present:NoSchedule.")

    async def run() -> None:
        over = asyncio.Event()
        for each in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(each, over.set)
        terminal.say(f"Copying what agents find to the nodes of {access.server}.")
        wish = LabelWish(prefix, (name, value, effect) if taint else None)
        await label_nodes(access, wish, SystemClock(), SystemDice(), terminal.say, over)

    asyncio.run(run())


def _door(running: ClusterScheduler, clock: Clock, given: dict[str, Any]) -> ClusterDoor:
    """Where callers with tokens of the cluster are answered."""
    from gpuyard.runtime.clustered.tenants import TenantAnswers
    from gpuyard.server.clustered import ClusterDoor
    from gpuyard.server.doors.listening import Tcp

    host, port = _address("--listen", given["listen"])
    where = Tcp(host, port, given["certificate"], given["key"], only=True)
    return ClusterDoor(TenantAnswers(running.world, clock), where)


def _until_told(running: ClusterScheduler, door: ClusterDoor | None, probes: ProbeDoor | None) -> None:
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told.set())
    if probes is not None:
        probes.start()  # that it is not ready, while the cluster is read
    try:
        if _comes_up(running, told):
            _go_on(running, told, door)
    finally:
        running.close()  # first of all: another may lead at once
        for each in (door, probes):
            if each is not None:
                each.stop()


def _comes_up(running: ClusterScheduler, told: threading.Event) -> bool:
    """Whether it is to go on: who is told to stop meanwhile does, whatever it still waits for."""
    try:
        running.start(Awaiting(told, running.world.settings.access.server).goes_on)
    except Refused:
        if not told.is_set():
            raise
    return not told.is_set()


class Awaiting:
    """What is said while the cluster is read for the first time: nothing for a moment, then seldom."""

    def __init__(self, told: threading.Event, server: str) -> None:
        from gpuyard.runtime.clock import SystemClock

        self._told = told
        self._server = server
        self._clock = SystemClock()
        self._say_at = self._clock.monotonic() + PATIENCE_S

    def goes_on(self, trouble: str) -> bool:
        """Whether it is still waited for."""
        now = self._clock.monotonic()
        if now >= self._say_at:
            self._say_at = now + SAY_AGAIN_S
            terminal.say(f"Waiting to read the cluster of {self._server}: {trouble or 'it has not answered yet'}.")
        return not self._told.is_set()


def _go_on(running: ClusterScheduler, told: threading.Event, door: ClusterDoor | None) -> None:
    settings = running.world.settings
    terminal.say(f"Scheduling pods of {settings.scheduler} on {settings.access.server} as {settings.identity}.")
    if door is not None:
        door.start()
        terminal.say(f"Callers are answered at {door.url}, by what their own tokens let them see.")
    trouble = ""
    while not told.wait(LOOK_S):
        trouble = _say_trouble(running, trouble)


def _say_trouble(running: ClusterScheduler, before: str) -> str:
    """A line when something goes wrong, and one when that is over; what it is now."""
    now = running.trouble()
    if now != before:
        terminal.say(f"Trouble: {now}" if now else "All is well again.")
    return now


def site_of(path: str, now: float) -> Snapshot:
    """Queues and policy of a file; one queue for everybody where none is named."""
    from pathlib import Path

    from gpuyard import files

    if path:
        return files.read_snapshot(Path(path), now)
    return files.parse_snapshot('{"apiVersion": "gpuyard.dev/v1", "kind": "Snapshot"}', "the site", now)
