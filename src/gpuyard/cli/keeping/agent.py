"""`yard agent`: what a node's daemon does, from the command line; `yard agent record` keeps a machine in a file.

Called by `root`. What is asked and how is the agent's own business.
"""

from __future__ import annotations

import os
import platform
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from gpuyard.cli.console import options, terminal, words
from gpuyard.model.errors import GpuYardError, Refused
from gpuyard.runtime.clock import SystemClock, SystemDice

if TYPE_CHECKING:
    from gpuyard.agent.daemon import Daemon
    from gpuyard.agent.device_plugin.registering import Registering
    from gpuyard.agent.gpu_node import GpuNodeWriter
    from gpuyard.agent.nvml.caller import NvmlSource
    from gpuyard.agent.nvml.record import NvmlRecord
    from gpuyard.agent.pods.account import PodAccount
    from gpuyard.agent.watching import MachineView

BETWEEN_LOOKS_S = 1.0
"""Some readings are means between two looks."""


class Untold(GpuYardError):
    """NVML tells nothing here."""


def source_of(replay: str, faults: str, deadline_s: float = 45.0) -> NvmlSource:
    """NVML, or a record in its place; files are read here once, so that a mistake in them is told at once."""
    from gpuyard.agent.nvml import faults as fault_files
    from gpuyard.agent.nvml import record as records
    from gpuyard.agent.nvml.caller import NvmlSource

    if faults and not replay:
        raise click.UsageError("--faults happen to a recorded machine: give --nvml-replay too.")
    if replay:
        records.read(Path(replay))
    if faults:
        fault_files.read(Path(faults))
    return NvmlSource(_given(replay), _given(faults), deadline_s)


def _given(path: str) -> Path | None:
    return Path(path).absolute() if path else None


@options.group(
    "agent",
    """
    yard agent
    yard agent --once
    yard agent --nvml-replay machine.json --faults faults.yaml
    yard agent record -o machine.json
    """,
)
@click.option("--every", default="10s", show_default=True, metavar="TIME", help="Between two looks.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where /metrics listens.")
@click.option("--port", default=9400, show_default=True, type=click.IntRange(0, 65535), help="0 takes any.")
@click.option("--certificate", default="", metavar="FILE", help="TLS certificate; required beyond this machine.")
@click.option("--key", default="", metavar="FILE", help="Its private key.")
@click.option("--jobs-from", default="", metavar="FOLDER", help="A file for each GPU that names its jobs (hpc_job).")
@click.option(
    "--dcgm", type=click.Choice(("auto", "always", "never")), default="auto", show_default=True,
    help="Series under DCGM's names; auto: unless dcgm-exporter runs here.",
)  # fmt: skip
@click.option("--old-hostname", is_flag=True, help="Also a label Hostname, as older dcgm-exporters write it.")
@click.option("--nvml-replay", default="", metavar="FILE", help="A recorded machine in NVML's place.")
@click.option("--faults", default="", metavar="FILE", help="What goes wrong with it, and when.")
@click.option("--deadline", default="45s", show_default=True, metavar="TIME", help="How long NVML may take.")
@click.option("--device-plugin", is_flag=True, help="Also offer the GPUs to this node's kubelet, as nvidia.com/gpu.")
@click.option("--kubelet-folder", default="", metavar="FOLDER", help="Its sockets.  [default: /var/lib/kubelet/...]")
@click.option("--shared", default=1, show_default=True, type=click.IntRange(1, 64), metavar="PARTS",
              help="Offer each GPU as so many parts of its time, as nvidia.com/gpu.shared.")  # fmt: skip
@click.option("--mig", is_flag=True, help="Also offer MIG slices, as nvidia.com/mig-PROFILE.")
@click.option("--gpu-node", is_flag=True, help="Also keep this node's GpuNode on the cluster.")
@click.option("--kubelet-config", default="", metavar="FILE",
              help="Whose topology policy it tells.  [default: /var/lib/kubelet/config.yaml]")  # fmt: skip
@click.option("--kubeconfig", default="", metavar="FILE", help="The cluster that binds pods here; in a pod its own.")
@click.option("--node-name", envvar="NODE_NAME", default="", help="This node's name there.  [default: the host's]")
@click.option("--once", is_flag=True, help="Look once, print the metrics and leave.")
@click.pass_context
def agent(ctx: click.Context, /, **given: Any) -> None:
    """Watch this machine's GPUs, and tell Prometheus.

    What cannot be known is told as unknown. /metrics is for bearers of the token alone, whose file is named at start.
    """
    if ctx.invoked_subcommand is None:
        _watch(AgentWish(**given))


@dataclass(frozen=True)
class AgentWish:
    """What the user asked of `yard agent`."""

    every: str
    host: str
    port: int
    certificate: str
    key: str
    jobs_from: str
    dcgm: Literal["auto", "always", "never"]
    old_hostname: bool
    nvml_replay: str
    faults: str
    deadline: str
    device_plugin: bool
    kubelet_folder: str
    shared: int
    mig: bool
    gpu_node: bool
    kubelet_config: str
    kubeconfig: str
    node_name: str
    once: bool


def _watch(wish: AgentWish) -> None:
    from gpuyard.agent.exporting import serving
    from gpuyard.client import places

    daemon = _daemon(wish)
    try:
        if wish.once:
            daemon.look()
            terminal.write(daemon.exposition())
            return
        folder = places.state_folder()
        door = serving.MetricsDoor(wish.host, wish.port, wish.certificate, wish.key)
        server = serving.MetricsServer(door, serving.token(folder), daemon.exposition)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: daemon.stop())
        url = f"{'https' if wish.certificate else 'http'}://{wish.host}:{server.port}/metrics"
        plugins = _device_plugins(wish, daemon)
        record = _gpu_node(wish, daemon)
        terminal.say(f"Metrics: {url}, for bearers of the token in {folder / serving.TOKEN_FILE}")
        daemon.run()
        for each in (*plugins, *((record,) if record is not None else ())):
            each.stop()
        server.close()
    finally:
        daemon.watch.close()


def _device_plugins(wish: AgentWish, daemon: Daemon) -> list[Registering]:
    """The GPUs of every look, for the kubelet; nothing is registered before the first."""
    if not wish.device_plugin:
        return []
    try:
        from gpuyard.agent.device_plugin.registering import FOLDER, Registering
    except ImportError as error:
        raise Refused(f"The device plugin needs gRPC ({error}): pip install 'gpuyard[kubelet]'.") from None
    from gpuyard.agent.device_plugin.offers import WHOLE, offers
    from gpuyard.agent.device_plugin.plugin import Plugin

    folder = _given(wish.kubelet_folder) or FOLDER
    account = _account(wish, daemon, folder)
    daemon.pods = account
    view = daemon.look()
    plugins = {
        resource: Plugin(account.chosen if resource == WHOLE else None, offer=offer)
        for resource, offer in offers(view, wish.shared, wish.mig).items()
    }

    def heard(view: MachineView, now: float) -> None:
        for plugin in plugins.values():
            plugin.see(view, now)

    heard(view, daemon.clock.now())
    daemon.heard = heard
    made = [Registering(plugin, daemon.say, folder, resource) for resource, plugin in plugins.items()]
    made[0].tell_ready = _readiness(account, daemon)
    for each in made:
        each.start()
    return made


def _gpu_node(wish: AgentWish, daemon: Daemon) -> GpuNodeWriter | None:
    """What is seen, for the cluster."""
    if not wish.gpu_node:
        return None
    try:
        from gpuyard.agent.gpu_node import GpuNodeWriter
    except ImportError as error:
        raise Refused(f"A cluster is asked with aiohttp ({error}): pip install 'gpuyard[kube]'.") from None
    from gpuyard.agent.kubelet_config import CONFIG, KubeletConfig
    from gpuyard.kube import credentials

    node = wish.node_name or platform.node()
    writer = GpuNodeWriter(credentials.find(wish.kubeconfig), daemon.clock, node, daemon.say)
    writer.plugin = wish.device_plugin
    writer.kubelet = KubeletConfig(_given(wish.kubelet_config) or CONFIG, daemon.say)
    before = daemon.heard

    def heard(view: MachineView, now: float) -> None:
        if before is not None:
            before(view, now)
        writer.see(view, now)

    daemon.heard = heard
    writer.start()
    return writer


def _readiness(account: PodAccount, daemon: Daemon) -> Callable[[bool], bool] | None:
    """Who binds pods here is told while the kubelet has no devices to give."""
    from gpuyard.agent.pods.readiness import Readiness

    return None if account.bound is None else Readiness(account.bound, daemon.clock, account.node).tell


def _account(wish: AgentWish, daemon: Daemon, folder: Path) -> PodAccount:
    """Who was bound here and what they hold; without a cluster nobody is known to be bound."""
    from gpuyard.agent.device_plugin.registering import RESOURCE
    from gpuyard.agent.pods.account import PodAccount

    node = wish.node_name or platform.node()
    bound = None
    if wish.kubeconfig or os.environ.get("KUBERNETES_SERVICE_HOST"):
        try:
            from gpuyard.agent.pods.bound import BoundPods
        except ImportError as error:
            raise Refused(f"A cluster is asked with aiohttp ({error}): pip install 'gpuyard[kube]'.") from None
        from gpuyard.kube import credentials

        bound = BoundPods(credentials.find(wish.kubeconfig), daemon.clock, SystemDice(), node, RESOURCE)
        bound.start()
    return PodAccount(bound, daemon.clock, daemon.say, RESOURCE, node, folder.parent / "pod-resources" / "kubelet.sock")


def _daemon(wish: AgentWish) -> Daemon:
    from gpuyard.agent.daemon import Daemon
    from gpuyard.agent.nvml.caller import NvmlCaller
    from gpuyard.agent.watching import Watch

    clock = SystemClock()
    source = source_of(wish.nvml_replay, wish.faults, options.seconds_of(wish.deadline))
    return Daemon(
        Watch(NvmlCaller(source, clock.monotonic), clock.now),
        clock,
        lambda words_: terminal.say(f"{datetime.fromtimestamp(clock.now(), UTC):%Y-%m-%dT%H:%M:%SZ} {words_}"),
        platform.node(),
        every_s=options.seconds_of(wish.every),
        mapping=_given(wish.jobs_from),
        old_hostname_label=wish.old_hostname,
        dcgm=wish.dcgm,
    )


@options.command("record", "yard agent record -o machine.json")
@click.option("-o", "--output", "path", default="-", metavar="FILE", help="Where to; - is standard output.")
@click.option("--about", default="", help="A sentence that goes into the file.")
@click.option("--deadline", default=45.0, show_default=True, type=click.FloatRange(min=0.1), help="Seconds for NVML.")
def record(path: str, about: str, deadline: float) -> None:
    """Every fact that NVML tells of this machine, in one JSON file that `--nvml-replay` takes.

    It holds UUIDs and bus addresses; no serial numbers, host name or processes.
    """
    from gpuyard.agent.nvml import record as records

    made = _record(source_of("", "", deadline), about)
    text = records.written(made)
    if path == "-":
        terminal.write(text)
    else:
        Path(path).write_text(text, encoding="utf-8")
        terminal.say(f"{words.counted(len(made.machine.gpus), 'GPU')} recorded in {path}.")


def _record(source: NvmlSource, about: str) -> NvmlRecord:
    from gpuyard.agent.nvml.caller import NvmlCaller
    from gpuyard.agent.nvml.facts import Trouble
    from gpuyard.agent.nvml.record import NvmlRecord

    clock = SystemClock()
    caller = NvmlCaller(source, clock.monotonic)
    try:
        machine = caller.machine()
        caller.sample()
        time.sleep(BETWEEN_LOOKS_S)
        sample = caller.sample()
    finally:
        caller.close()
    if isinstance(machine, Trouble):
        raise Untold(f"Nothing to record: {machine}.")
    if isinstance(sample, Trouble):
        raise Untold(f"Nothing to record: {sample}.")
    day = datetime.fromtimestamp(clock.now(), UTC).date().isoformat()
    return NvmlRecord(made=day, synthetic=False, about=about, machine=machine, sample=sample)


agent.add_command(record)
