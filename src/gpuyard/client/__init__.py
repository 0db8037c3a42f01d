"""What programs call: the client of the API, sync and async, and `progress()` for use inside a job.

Called by the command line and by users' own programs. It speaks HTTP to a yard; it never reads its database. What is
not used is not imported: `from gpuyard.client import progress` costs a training script nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuyard.client.asynchronous import AsyncClient
    from gpuyard.client.errors import Unreachable
    from gpuyard.client.progressing import progress
    from gpuyard.client.synchronous import Client

__all__ = ["AsyncClient", "Client", "Unreachable", "progress"]

_HOMES = {
    "AsyncClient": "asynchronous",
    "Client": "synchronous",
    "Unreachable": "errors",
    "progress": "progressing",
}


def __getattr__(name: str) -> Any:
    """The name, from its module; this is where that is imported."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
