"""`yard run`: submit one command as a job and stay with it. Called by `root`."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from gpuyard.cli.console import completing, options, terminal
from gpuyard.cli.jobs import environment, following, job_document, on_cluster, preview
from gpuyard.client import Client

Document = dict[str, Any]

INTERRUPTED = 130


@options.command(
    "run",
    """
    yard run --gpus 2 -- python train.py
    yard run --gpus H100:8 --tasks 2 --time-limit 2h -- torchrun train.py
    yard run -it --gpus 1 -- bash
    yard run --gpus 1 --array 0-99%8 --detach -- ./sweep.sh
    """,
)
@click.argument("command", nargs=-1, required=True, metavar="-- COMMAND...")
@click.option("--gpus", default="0", metavar="[MODEL:]N", help="GPUs a task: 2, H100:2, 0.5, 20Gi or 1g.10gb.")
@click.option("--tasks", type=click.IntRange(min=1), default=1, help="So many tasks, all at once or none.")
@click.option("--queue", default="", help="The queue it stands in.", shell_complete=completing.names("queues"))
@click.option("--time-limit", default="", metavar="TIME", help="End it after this: 90s, 10m, 2h.")
@click.option("--name", default="", help="Its name.  [default: after the program]")
@click.option(
    "--class",
    "job_class",
    default="",
    help="training, inference, interactive or batch.",
    shell_complete=completing.classes,
)
@click.option("--priority", default="", help="Within its queue: a number, low, high, critical.  [default: by class]")
@click.option("--cpu", default="", metavar="CORES", help="Cores a task.")
@click.option("--memory", default="", metavar="SIZE", help="Memory a task: 64Gi.")
@environment.options
@click.option("--workdir", default="", metavar="FOLDER", help="Where it starts.  [default: here]")
@click.option("--retries", type=click.IntRange(0, 1000), default=0, help="How often to start it again if it fails.")
@click.option("--image", default="", help="Run in this container image.")
@click.option("--array", default="", metavar="RANGE", help="One job a number: 0-99, or 0-99%8 for eight at once.")
@click.option("--after", multiple=True, metavar="JOB[:ok|any]", help="Not before it succeeded; :any: has ended.")
@click.option("-i", "--interactive", is_flag=True, help="Connect this terminal to it.")
@click.option("-t", "--tty", is_flag=True, help="Give it a terminal.")
@click.option("--detach", is_flag=True, help="Return at once with the job's name.")
@on_cluster.option("Run it on")
@click.option("--queue-anyway", is_flag=True, help="Accept it even if this fleet could never run it.")
@click.option("--key", default="", help="The same key again starts nothing twice.")
@click.option(
    "--on-interrupt",
    type=click.Choice(("ask", "cancel", "detach")),
    default="ask",
    show_default=True,
    help="What Ctrl-C does with the job.",
)
@click.pass_context
def run(ctx: click.Context, /, **wish: Any) -> None:
    """Run a command as a job, and stay: the plan, its output, its exit code.

    The command is run as it stands, without a shell.
    """
    document = document_of(wish)
    preview.check(document)
    if wish["kube"]:
        if wish["array"] and not wish["detach"]:
            raise click.UsageError("An array is many jobs; add --detach, then `yard attach --kube NAME` follows them.")
        ctx.exit(on_cluster.run(document, wish["detach"], wish["on_interrupt"]))
    with Client() as client:
        if wish["array"] and not wish["detach"]:
            raise click.UsageError("An array is many jobs; add --detach, then `yard jobs -w` and `yard logs NAME-0`.")
        preview.show(client.preview([document]), document, wish["queue_anyway"])
        try:
            answers = client.submit([document], wish["key"], wish["queue_anyway"])
        except KeyboardInterrupt:
            terminal.say("\nInterrupted while it was handed in; `yard jobs` shows whether it was taken.")
            ctx.exit(INTERRUPTED)
        if wish["detach"]:
            preview.names(answers)
            return
        ctx.exit(stay(client, str(answers[0]["name"]), document, wish["on_interrupt"]))


def document_of(wish: dict[str, Any]) -> Document:
    """The job that the options describe."""
    terminal = bool(wish["tty"] or wish["interactive"])
    if terminal and int(wish["tasks"]) > 1:
        raise click.UsageError("A terminal belongs to one task; leave --tasks out.")
    # what is here is not there: on a cluster neither this folder nor this environment means anything
    workdir = wish["workdir"] if wish["kube"] else os.path.abspath(wish["workdir"] or os.getcwd())
    export = wish["export"] or ("none" if wish["kube"] else "")
    variables = environment.chosen(wish["variables"], wish["env_files"], export)
    body = {"command": list(wish["command"]), "env": variables} | job_document.given(workdir=workdir)
    body |= job_document.given(retries=wish["retries"], image=wish["image"], tty=terminal)
    tasks = wish["tasks"] if wish["tasks"] > 1 else 0
    cpu = float(wish["cpu"]) if wish["cpu"].replace(".", "", 1).isdecimal() else wish["cpu"]
    limit = job_document.duration(wish["time_limit"], "--time-limit")
    memory = job_document.size(wish["memory"], "--memory")
    job_class = wish["job_class"] or ("interactive" if terminal else "")
    document = job_document.given(name=wish["name"], queue=wish["queue"], tasks=tasks, cpu=cpu, memory=memory)
    document |= job_document.given(time_limit=limit, array=wish["array"], after=list(wish["after"]))
    document |= job_document.given(**{"class": job_class})
    document |= {} if wish["priority"] == "" else {"priority": job_document.number_or_name(wish["priority"])}
    return document | job_document.gpus(wish["gpus"]) | {"run": body}


def stay(client: Client, name: str, document: Document, on_interrupt: str) -> int:
    """With the job until it ends, or until the user has seen enough."""
    try:
        return _stay(client, name, document)
    except KeyboardInterrupt:
        client.close()  # an answer may be half read
        return interrupted(client, name, on_interrupt)


def _stay(client: Client, name: str, document: Document) -> int:
    from gpuyard.runtime.clock import SystemClock

    if document["run"].get("tty"):
        from gpuyard.cli.jobs import attaching

        visit = attaching.Visit()
        if following.await_phase(client, name, "running", SystemClock(), quiet=True) == 0:
            visit = attaching.connect_when_open(client, name)
        if visit.left:
            terminal.say()
            _say_it_goes_on(name)
            return 0
        if not visit.shown:  # it had ended before its terminal was found, or said nothing: what it wrote is kept
            following.Output(client, following.speakers_of(document | {"name": name})).follow()
    else:
        following.Output(client, following.speakers_of(document | {"name": name})).follow()
    following.await_phase(client, name, "ended", SystemClock())
    job = client.job(name)
    if job["phase"] != "succeeded" or job.get("message"):  # a success says no more than how far it came
        terminal.say(f"{following.ending(job)}.")
    return following.exit_code_of(job)


def interrupted(client: Client, name: str, wish: str) -> int:
    """Ctrl-C: the job goes on unless it is to be cancelled too. Whichever it is, it is said; also if Ctrl-C follows."""
    terminal.say()
    try:
        if wish == "ask" and sys.stdin.isatty():
            wish = "cancel" if click.confirm(f"Cancel {name} too?", default=False, err=True) else "detach"
        if wish == "cancel":
            client.cancel(name)
            terminal.say(f"{name} is cancelled.")
            return INTERRUPTED
    except (click.Abort, KeyboardInterrupt):
        client.close()
        terminal.say()
    _say_it_goes_on(name)
    return INTERRUPTED


def _say_it_goes_on(name: str) -> None:
    terminal.say(f"{name} goes on. `yard logs {name} -f` shows its output, `yard cancel {name}` ends it.")
