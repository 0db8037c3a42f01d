"""`yard up`: the embedded yard, here or in the background.

Called by `root`. What is served is `server.hosting`'s business, what runs the runtime's; this starts, tells and stops.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuyard.cli.console import hints, options, terminal, words
from gpuyard.cli.keeping import yard_log
from gpuyard.cli.keeping.status import Ailing, ailing
from gpuyard.cli.keeping.yard_log import YardLog
from gpuyard.client import Client, Unreachable, places
from gpuyard.model.errors import Refused
from gpuyard.runtime.clock import SystemClock

if TYPE_CHECKING:
    from gpuyard.agent.nvml.caller import NvmlSource
    from gpuyard.cli.keeping.which_yard import YardFleet
    from gpuyard.model.ownership import Caps
    from gpuyard.runtime.alerting.channels import NotifyWish
    from gpuyard.runtime.service import Service, Yard

DEFAULT_PORT = 7411
READY_S = 120.0
LOOK_S = 0.02
SAID_S = 30.0
LAST_WORDS = "Up. Try:  "
USER_CAP = 10_000
USER_TASKS = 128
MAX_TASKS = 1024
"""A supervisor and its task take some megabytes: so many fit on any machine that has GPUs."""
KEEP_OUTPUT = 20
GIB = 1 << 30
COUNT = click.IntRange(min=0)


@dataclass(frozen=True)
class UpWish:
    """What the user asked of `yard up`."""

    state: Path
    fleet: str = ""
    nvml_replay: str = ""
    faults: str = ""
    shared: bool = False
    group: str = ""
    user_cap: int | None = None
    user_tasks: int | None = None
    max_tasks: int = MAX_TASKS
    keep_output: int = KEEP_OUTPUT
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    certificate: str = ""
    key: str = ""
    notify_url: str = ""
    notify_command: str = ""
    notify_secret: str = ""

    @property
    def socket(self) -> Path:
        """Where callers find it: the machine's yard at one place for all, any other in its state folder."""
        return places.SHARED_SOCKET if self.state == places.SHARED_STATE else places.socket_path(self.state)


@options.command(
    "up",
    """
    yard up
    yard up --detach
    yard up --fleet fleet.yaml --state /tmp/try
    sudo yard up --shared --group gpu-users
    """,
)
@click.option("--detach", is_flag=True, help="Return when the API answers; the yard stays.")
@click.option(
    "--fleet", default="", metavar="FILE", help="Virtual nodes as in this file, kept for later; `machine`: real GPUs."
)
@click.option("--nvml-replay", default="", metavar="FILE", help="Virtual GPUs as in a record of a machine, measured.")
@click.option("--faults", default="", metavar="FILE", help="What goes wrong with the recorded machine, and when.")
@click.option("--state", default="", metavar="FOLDER", help="Where everything is kept.  [default: XDG state folder]")
@click.option("--shared", is_flag=True, help="As root: open to a group, each job runs as its submitter.")
@click.option("--group", default="", help="The group that may use a shared yard.  [default: users]")
@click.option(
    "--user-cap", type=COUNT, metavar="N", help=f"Most jobs of a user, if shared; 0: any.  [default: {USER_CAP}]"
)
@click.option(
    "--user-tasks", type=COUNT, metavar="N", help=f"Most of one user at once; 0: any.  [default: {USER_TASKS}]"
)
@click.option("--max-tasks", default=MAX_TASKS, show_default=True, type=COUNT, help="Most tasks at once; 0: any.")
@click.option(
    "--keep-output",
    default=KEEP_OUTPUT,
    show_default=True,
    type=COUNT,
    metavar="GIB",
    help="Output kept of ended jobs.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where the live page listens.")
@click.option(
    "--port",
    default=DEFAULT_PORT,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Its port, or the next that is free.",
)
@click.option("--certificate", default="", metavar="FILE", help="TLS certificate; required beyond this machine.")
@click.option("--key", default="", metavar="FILE", help="Its private key.")
@click.option("--notify-url", default="", metavar="URL", help="POST alerts there, as Alertmanager takes them.")
@click.option("--notify-command", default="", metavar="COMMAND", help="Or run this with them on its standard input.")
@click.option("--notify-secret", default="", metavar="FILE", help="Sign what is POSTed by the key in it (0600).")
def up(detach: bool, state: str, shared: bool, **rest: Any) -> None:
    """Run the embedded yard: control plane, API and live page in one process.

    Jobs survive it: after `yard down`, a crash or a restart of the yard they run on and are found again.
    """
    folder = Path(state).absolute() if state else places.SHARED_STATE if shared else places.state_folder()
    wish = UpWish(folder, shared=shared, **rest)
    _check(wish)
    if folder not in (places.SHARED_STATE, places.state_folder()):
        click.get_current_context().meta[hints.REACH] = str(folder)
    if detach:
        start_detached(wish)
    else:
        stay(wish)


def _check(wish: UpWish) -> None:
    if wish.shared and os.getuid() != 0:
        raise Refused("A shared yard runs each job as its submitter, so it needs root: `sudo yard up --shared`.")
    if (wish.group or wish.user_cap is not None or wish.user_tasks is not None) and not wish.shared:
        told = "--group, --user-cap and --user-tasks are for --shared: a yard of your own opens to nobody else."
        raise click.UsageError(told)
    if (wish.fleet and wish.nvml_replay) or (wish.faults and not wish.nvml_replay):
        raise click.UsageError("--nvml-replay is a fleet of its own: no --fleet beside it; --faults are faults of it.")
    if bool(wish.certificate) != bool(wish.key):
        raise click.UsageError("--certificate and --key belong together.")


def stay(wish: UpWish) -> None:
    """Run the yard in this process until it is told to stop."""
    from gpuyard.cli.keeping import which_yard
    from gpuyard.server.hosting import Hosting

    clock = SystemClock()
    yard_log.fold(wish.state, clock.monotonic)
    fleet = which_yard.find(wish.fleet, wish.state, clock.now()) if not wish.nvml_replay else _recorded(wish, clock)
    hosting = Hosting(_yard(fleet, wish, clock), doors(wish), clock)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: hosting.stop())
    context = hosting.start()
    try:
        which_yard.remember(fleet, wish.state)
    except OSError as error:
        click.echo(
            f"Note: the fleet will not be remembered ({error.strerror}); give --fleet again next time.", err=True
        )
    status = context.service.status()
    if (devices := status["checks"].get("devices", "ok")) != "ok":
        click.echo(f"Note: {devices}.", err=True)
    tell(wish, fleet.told, context.urls[0] if context.urls else "", context.page_url() if context.urls else "")
    if fleet.text and (queues := status["queues_overruled"]):
        terminal.write(f"Queues:    {words.some(queues)} as last set by command, and not as in the fleet's file\n")
    _tell_how_it_goes(context.service, clock)
    try:
        hosting.wait()
    finally:
        terminal.say("Closing; jobs run on unless they were to end too.")
        hosting.close()


def _tell_how_it_goes(yard: Service, clock: SystemClock) -> None:
    """That it is up, once it has planned; else why it does not. It stays either way: its jobs can be seen and ended."""
    until = clock.monotonic() + READY_S
    status = yard.status()
    while not (status["last_cycle"] or ailing(status)) and clock.monotonic() < until:
        time.sleep(LOOK_S)
        status = yard.status()
    if status["last_cycle"] and not ailing(status):
        terminal.write(_try())
        sys.stdout.flush()
    else:
        terminal.say(f"error: the yard plans nothing: {ailing(status) or 'its first turn does not end'}.")


def _try() -> str:
    return f"{LAST_WORDS} {hints.yard()} run --gpus 1 -- echo hello\n"


def _yard(fleet: YardFleet, wish: UpWish, clock: SystemClock) -> Yard:
    from gpuyard.cli.keeping import which_yard

    more = {"caps": _caps(wish), "notify": _notify(wish), "nvml": _measured(wish)}
    return which_yard.make(fleet, wish.state, clock, shared=wish.shared, **more)


def _recorded(wish: UpWish, clock: SystemClock) -> YardFleet:
    from gpuyard.cli.keeping import which_yard

    return which_yard.of_record(Path(wish.nvml_replay), clock.now())


def _measured(wish: UpWish) -> NvmlSource | None:
    from gpuyard.cli.keeping import agent

    return agent.source_of(wish.nvml_replay, wish.faults) if wish.nvml_replay else None


def _notify(wish: UpWish) -> NotifyWish:
    from gpuyard.runtime.alerting.channels import NotifyWish

    return NotifyWish(wish.notify_url, wish.notify_command, wish.notify_secret)


def _caps(wish: UpWish) -> Caps:
    """As asked, else what is sensible where others are to get something too; 0 is no cap."""
    from gpuyard.model.ownership import Caps

    output = wish.keep_output * GIB
    if not wish.shared:
        return Caps(tasks=wish.max_tasks, output=output)
    jobs = USER_CAP if wish.user_cap is None else wish.user_cap
    return Caps(jobs, USER_TASKS if wish.user_tasks is None else wish.user_tasks, wish.max_tasks, output)


def doors(wish: UpWish) -> Any:
    """Where that yard listens."""
    from gpuyard.server.doors.listening import Tcp
    from gpuyard.server.hosting import Doors

    tcp = Tcp(wish.host, wish.port, wish.certificate, wish.key)
    return Doors(wish.state, wish.socket, (wish.group or "users") if wish.shared else "", tcp)


def tell(wish: UpWish, fleet: str, url: str, page: str) -> None:
    """The lines everybody wants to see."""
    if url and wish.port and not url.endswith(f":{wish.port}"):
        terminal.say(f"Port {wish.port} is busy, so the live page is on port {url.rpartition(':')[2]}.")
    terminal.write(f"GPUs are {fleet}.\n")
    terminal.write(f"Live page: {page}\n" if page else "")
    terminal.write(f"State:     {wish.state}\n")
    sys.stdout.flush()


# --- in the background ---------------------------------------------------------------------------


def start_detached(wish: UpWish) -> None:
    """Start the yard as a process of its own, and return when it answers."""
    import subprocess

    with yard_log.opened(wish.state) as file:
        log = YardLog(wish.state / yard_log.NAME, file.tell())
        child = subprocess.Popen(
            [sys.executable, "-m", "gpuyard", "up", *_arguments(wish)],
            stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True, cwd="/",
            env=environment(),
        )  # fmt: skip
    _await_answer(child, Client(places.Address(socket=wish.socket)), log)
    said = _first_words(log).splitlines(keepends=True)
    terminal.write("".join(line for line in said if not line.startswith(LAST_WORDS)) + _try())


def environment() -> dict[str, str]:
    """Ours; a folder of modules is found from anywhere, because the yard works in another folder."""
    modules = os.environ.get("PYTHONPATH")
    if not modules:
        return dict(os.environ)
    whole = os.pathsep.join(os.path.abspath(part) for part in modules.split(os.pathsep) if part)
    return {**os.environ, "PYTHONPATH": whole}


def _first_words(log: YardLog) -> str:
    """What the yard said as it came up. Its API answers a moment before it has said all, so wait for the last line."""
    clock = SystemClock()
    until = clock.monotonic() + SAID_S
    while LAST_WORDS not in log.words() and clock.monotonic() < until:
        time.sleep(0.01)
    return log.words()


def _arguments(wish: UpWish) -> list[str]:
    given = {
        "--state": str(wish.state), "--fleet": _given_file(wish.fleet),
        "--nvml-replay": _given_file(wish.nvml_replay), "--faults": _given_file(wish.faults),
        "--group": wish.group, "--user-cap": _given(wish.user_cap), "--user-tasks": _given(wish.user_tasks),
        "--max-tasks": str(wish.max_tasks), "--keep-output": str(wish.keep_output),
        "--host": wish.host, "--port": str(wish.port),
        "--certificate": _given_file(wish.certificate), "--key": _given_file(wish.key),
        "--notify-url": wish.notify_url, "--notify-command": wish.notify_command,
        "--notify-secret": _given_file(wish.notify_secret),
    }  # fmt: skip
    flags = ["--shared"] if wish.shared else []
    return flags + [word for name, value in given.items() if value for word in (name, value)]


def _given_file(path: str) -> str:
    """The yard runs elsewhere, so paths are whole; the word for this machine is no path."""
    from gpuyard.cli.keeping.which_yard import MACHINE

    return path if path in ("", MACHINE) else str(Path(path).absolute())


def _given(count: int | None) -> str:
    return "" if count is None else str(count)


def _await_answer(child: Any, client: Client, log: YardLog) -> None:
    """Return when that very process answers and plans; its last words if it ends instead."""
    clock = SystemClock()
    until = clock.monotonic() + READY_S
    while clock.monotonic() < until:
        try:
            status = client.status()
            if status["pid"] == child.pid and (told := ailing(status)):
                raise Ailing(f"The yard is up and plans nothing: {told}. `yard down` stops it; its jobs run on.")
            if status["pid"] == child.pid and status["last_cycle"]:
                return
        except Unreachable:
            pass
        if child.poll() is not None:
            raise Refused((log.words().strip() or _speechless(log.path.parent)).removeprefix("error: "))
        time.sleep(LOOK_S)
    raise Unreachable(f"The yard did not come up within {READY_S:g} s; {log.path} has what it said.")


def _speechless(state: Path) -> str:
    """Why a yard ended that could not even say why."""
    if shutil.disk_usage(state).free < yard_log.SIZE_MAX:
        return f"The yard ended at once: the disk of {state} is full. Free some space on it, or name another --state."
    return "The yard ended at once, without a word; `yard up` without --detach shows more."
