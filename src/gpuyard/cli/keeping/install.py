"""`yard install` and `yard uninstall`: GPUYard on a Kubernetes cluster, and off it again. Called by `root`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from gpuyard.cli.console import options, terminal, words
from gpuyard.model.errors import GpuYardError, Refused

if TYPE_CHECKING:
    from gpuyard.kube.client import KubeClient
    from gpuyard.runtime.clustered.installing import InstallStep, Leaving

AGAIN = "nothing is lost, and the same command goes on from there"


class Unfinished(GpuYardError):
    """Not everything could be done."""


def _reached(command: Any) -> Any:
    """How the cluster is found."""
    for option in (
        click.option("--context", default="", metavar="NAME", help="A context other than the current one."),
        click.option("--kubeconfig", default="", metavar="FILE", help="The cluster.  [default: as kubectl does]"),
        click.option("--namespace", default="gpuyard-system", show_default=True, help="Where its programs are."),
    ):
        command = option(command)
    return command


@options.command(
    "install",
    """
    yard install --dry-run -o yaml | less
    yard install
    yard install --image registry.example/gpuyard:1 --exclusive
    """,
)
@_reached
@click.option("--image", default="", help="Run the programs from this image.  [default: you run `yard serve` yourself]")
@click.option(
    "--tls-secret", default="", metavar="NAME", help="Serve teams the yard's API, with this Secret's certificate."
)
@click.option(
    "--kubelet-config", default="", metavar="PATH", help="Of all nodes: agents read the topology policy from it."
)
@click.option("--exclusive", is_flag=True, help="Refuse pods that ask another scheduler for GPUs.")
@click.option("--except", "excepted", multiple=True, metavar="NAMESPACE", help="Its pods may do so all the same.")
@click.option("--policies/--no-policies", default=True, help="Whether the API server guards marks, places and queues.")
@click.option("--force", is_flag=True, help="Take over what others have settled otherwise.")
@click.option("--dry-run", is_flag=True, help="Ask nobody: only write what would be applied.")
@click.option("-o", "--output", "form", type=click.Choice(("text", "yaml")), default="text", help="For --dry-run.")
def install(kubeconfig: str, context: str, **given: Any) -> None:
    """Make the namespace, accounts, rights, kinds, programs and policies on a cluster; running work is not touched.

    It can be run again at any time, also after it was interrupted: what is there already is left as it is.
    """
    installing = _installing()
    form, dry, force = given.pop("form"), given.pop("dry_run"), given.pop("force")
    wish = installing.InstallWish(**given)
    if wish.tls_secret and not wish.image:
        raise click.UsageError("--tls-secret is for the programs of --image; `yard serve --listen` takes files.")
    if wish.kubelet_config and not (wish.image and wish.kubelet_config.startswith("/")):
        raise click.UsageError("--kubelet-config is a path on the nodes, for the agents of --image; it begins with /.")
    if form == "yaml" and not dry:
        raise click.UsageError("-o yaml writes what --dry-run would apply; give both.")
    if dry:
        _write(installing.documents(wish), form)
        return
    steps = asyncio.run(
        _with_client(kubeconfig, context, lambda client: _shown(installing.install(client, wish, force)))
    )
    _summed("installed", steps)


@options.command("uninstall", "yard uninstall\nyard uninstall --keep-queues --yes")
@_reached
@click.option("--keep-queues", is_flag=True, help="Leave the kind Queue and all queues.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def uninstall(namespace: str, kubeconfig: str, context: str, keep_queues: bool, yes: bool) -> None:
    """Take GPUYard off a cluster. Pods that run go on; those that wait for it wait until somebody else places them."""
    installing = _installing()
    found = asyncio.run(_with_client(kubeconfig, context, installing.leaving))
    terminal.say(_told(found, namespace, keep_queues))
    options.agree("Go on?", yes, default=False)
    gone = asyncio.run(
        _with_client(kubeconfig, context, lambda client: _shown(installing.uninstall(client, namespace, keep_queues)))
    )
    _summed("taken away", gone)


def _installing() -> Any:
    try:
        from gpuyard.runtime.clustered import installing
    except ModuleNotFoundError as missing:
        raise Refused(f"{missing.name} is not installed, which clusters need; `pip install 'gpuyard[kube]'`") from None
    return installing


async def _with_client(kubeconfig: str, context: str, act: Callable[[KubeClient], Awaitable[Any]]) -> Any:
    from gpuyard.kube import credentials
    from gpuyard.kube.client import KubeClient
    from gpuyard.runtime.clock import SystemClock

    client = await KubeClient(credentials.find(kubeconfig, context), SystemClock()).open()
    try:
        return await act(client)
    finally:
        await client.close()


async def _shown(steps: AsyncIterator[InstallStep]) -> list[InstallStep]:
    done = []
    async for step in steps:
        terminal.write(f"{step}\n")
        done.append(step)
    return done


def _summed(verb: str, steps: list[InstallStep]) -> None:
    counts = Counter(step.outcome.value for step in steps)
    told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    if counts.get("refused"):
        raise Unfinished(f"Not everything could be {verb} ({told}); mend what the lines above say: {AGAIN}.")
    terminal.say(f"GPUYard is {verb}: {told}.")


def _write(documents: list[dict[str, Any]], form: str) -> None:
    if form == "text":
        from gpuyard.kube import applying

        for document in documents:
            terminal.write(f"{applying.name_of(document)}\n")
        return
    import yaml

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    terminal.write(yaml.dump_all(documents, Dumper=Plain, sort_keys=False, width=110, allow_unicode=True))


def _told(found: Leaving, namespace: str, keep_queues: bool) -> str:
    """What goes, and what that means for whom."""
    kept = words.agreeing(found.queues, *(("stays", "stay") if keep_queues else ("goes", "go")))
    gone, goes_on = words.agreeing(found.gpu_nodes, "goes", "go"), words.agreeing(found.running, "runs", "run")
    lines = [
        f"The namespace {namespace}, accounts, rights, programs, policies and kinds of GPUYard go.",
        f"{words.counted(found.queues, 'queue')} {kept}; {words.counted(found.gpu_nodes, 'GpuNode')} {gone}.",
        f"{words.counted(found.running, 'pod')} that it has placed {goes_on} on.",
    ]
    if found.waiting:
        waits, them = (words.agreeing(found.waiting, *each) for each in (("waits", "wait"), ("it", "them")))
        lines.append(
            f"{words.counted(found.waiting, 'pod')} {waits} for it, and will wait until another scheduler takes {them}."
        )
    if found.suspended:
        lines.append(f"Suspended by it, and resumed now: {words.some(list(found.suspended))}.")
    return "\n".join(lines)
