"""The fleet of a yard that was given none: this machine's own GPUs.

Called where a yard begins. A machine without NVIDIA GPUs has no such fleet; what to do then is the caller's choice.
"""

from __future__ import annotations

from gpuyard.agent import discovery
from gpuyard.files.fleet import ONLY_QUEUE
from gpuyard.model.node import Pool
from gpuyard.model.snapshot import Snapshot


def fleet_of_this_machine(now: float) -> Snapshot | None:
    """What NVML finds here, with one queue for everybody; None if it finds nothing."""
    nodes = discovery.nodes()
    if not nodes:
        return None
    pools = tuple(Pool(name) for name in sorted({node.pool for node in nodes}))
    return Snapshot(now=now, pools=pools, nodes=nodes, queues=(ONLY_QUEUE,))
