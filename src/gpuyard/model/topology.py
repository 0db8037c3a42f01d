"""Named levels of closeness, outermost first, and what a job asks of them.

The levels above the node come from the snapshot's `topology`; `node` and `nvlink` are always there below them.
"""

from __future__ import annotations

from dataclasses import dataclass

NODE = "node"
NVLINK = "nvlink"
IMPLIED_LEVELS = (NODE, NVLINK)


@dataclass(frozen=True, slots=True)
class TopologyAsk:
    """The levels inside which tasks must (`required`) or should (`preferred`) stay together. "" is no wish."""

    required: str = ""
    preferred: str = ""


ANYWHERE = TopologyAsk()
