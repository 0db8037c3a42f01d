"""Descriptors: how many this process may have, and how many of them the doors may use. Called by `hosting`.

The loop needs one for each supervisor, the store and the runs need some; whoever knocks gets a part of the rest, so no
crowd at the doors can take them from the loop. Tasks get the limit back that the yard was started with (`launch`).
"""

from __future__ import annotations

import resource

from gpuyard.server.doors.admitting import Limits


def raise_limit() -> int:
    """As many as the machine allows; how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return 1 << 20 if hard == resource.RLIM_INFINITY else hard


def limits_of(descriptors: int) -> tuple[Limits, Limits]:
    """What the Unix socket and TCP may use, each for itself; together less than half of all."""
    local, remote = min(2048, descriptors // 4), min(512, descriptors // 8)
    return Limits(local, local // 4), Limits(remote, remote // 4)
