"""`yard defrag`: what timed defragmentation would move, with its bill (rule 15's last sentence).

Called by `root`. The brain proposes; this prints, and moves nothing: what is moved is the controller's business.
"""

from __future__ import annotations

import click

from gpuyard.cli.console import options, sources, terminal
from gpuyard.model.errors import Refused
from gpuyard.model.snapshot import Snapshot

BY_POLICY = "A running yard tidies up in the hours and within the budget that its policy gives it (`defragment`)"

IN_PICTURE = "A snapshot is a picture of a yard: no job in it can be moved"


@options.command(
    "defrag",
    """
    yard defrag --dry-run
    yard defrag --dry-run --snapshot fleet.yaml
    yard defrag --dry-run --snapshot fleet.yaml -o json | jq .bill
    """,
)
@click.option("--dry-run", is_flag=True, help="Only say what would be moved, and what it costs and gains.")
@options.snapshot()
@options.output()
def defrag(dry_run: bool, path: str, form: str) -> None:
    """What tidying up would move, gain and cost.

    Nobody waits for it, so it must pay: gain and cost are both GPU-seconds.
    """
    if not dry_run:
        why = IN_PICTURE if path not in ("", options.KUBE) else BY_POLICY
        raise Refused(f"{why}. Add --dry-run to see the proposal and its bill; nothing is disturbed.")
    write(sources.read(path).snapshot, form)


def write(snapshot: Snapshot, form: str) -> None:
    """Propose and print."""
    from gpuyard.brain import foresee
    from gpuyard.cli.rendering import defrag_text
    from gpuyard.cli.rendering.documents import defrag_document

    plan = foresee.defrag(snapshot)
    if form == "table":
        defrag_text.draw(terminal.Screen(), snapshot, plan)
    else:
        terminal.write_document(defrag_document(plan), form)
