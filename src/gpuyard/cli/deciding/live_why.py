"""`yard why` of a running yard: the API's answer, drawn as that of a file is. Called by `why`."""

from __future__ import annotations

from gpuyard.cli.console import terminal
from gpuyard.cli.rendering import why_text
from gpuyard.client import Client
from gpuyard.runtime.clock import SystemClock


def write(job: str, form: str) -> None:
    """Ask, and print the answer."""
    with Client() as client:
        answer = client.why(job)
    if form == "table":
        why_text.draw(terminal.Screen(), answer, SystemClock().now())
    else:
        terminal.write_document(answer, form)
