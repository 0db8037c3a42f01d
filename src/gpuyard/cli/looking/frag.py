"""`yard frag`: how scattered the free GPUs of a snapshot are, before any plan.

Called by `root`. The brain measures (rule 25); this prints.
"""

from __future__ import annotations

from gpuyard.cli.console import options, sources, terminal
from gpuyard.model.snapshot import Snapshot


@options.command(
    "frag",
    """
    yard frag --snapshot fleet.yaml
    yard frag --snapshot fleet.yaml -o json | jq .largest_gang
    """,
)
@options.snapshot()
@options.output()
def frag(path: str, form: str) -> None:
    """How scattered the free GPUs are: what is stranded, and which shapes fit now or would if packed."""
    write(sources.read(path).snapshot, form)


def write(snapshot: Snapshot, form: str) -> None:
    """Measure and print."""
    from gpuyard.brain import foresee
    from gpuyard.cli.rendering import frag_text
    from gpuyard.cli.rendering.documents import fragmentation_document

    fragmentation = foresee.fragmentation(snapshot)
    if form == "table":
        frag_text.draw(terminal.Screen(), fragmentation)
        policy = snapshot.policy.alerts
        if policy.fragmentation and any(pool.share >= policy.fragmentation for pool in fragmentation.day):
            terminal.write(f"\n{frag_text.offer_line(foresee.defrag(snapshot))}\n")
    else:
        terminal.write_document(fragmentation_document(fragmentation), form)
