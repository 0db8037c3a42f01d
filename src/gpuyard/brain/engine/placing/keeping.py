"""Places that are kept for a job that waits: a stand-in that nobody can move or evict holds what is free of them.

Reservations are made in `reserving`; whoever makes room for another job sees to it that it gets none of what they keep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from gpuyard.brain.engine.picture.draft import Draft, Kept
from gpuyard.brain.engine.placing.devices import stands_free


def hold(draft: Draft, kept: Kept) -> None:
    """Hold those of the places that are free now and not held yet, device by device, and what is left of those that
    others share."""
    columns, standing = draft.fleet.columns, Counter(kept.stand_in.held)
    for held in kept.places:
        if kept.row.requests[held.leaf].gpus:
            part = held._replace(cpu=0, memory=0, cost=0)
            gpus = tuple(g for g in held.gpus if columns.free_mask[held.node] >> g & 1)
            if gpus:
                draft.tx.put(kept.stand_in, part._replace(gpus=gpus))
            for g in held.gpus:
                if left := int(columns.shares[held.node, g]):
                    draft.tx.put(kept.stand_in, part._replace(gpus=(g,), share=left))
        elif standing[held]:
            standing[held] -= 1
        elif stands_free(columns, held):
            draft.tx.put(kept.stand_in, held)


@contextmanager
def held_off(draft: Draft, binding: Iterable[Kept]) -> Iterator[None]:
    """For a while these reservations also hold what has fallen free of their places meanwhile."""
    before = [(kept.stand_in, len(kept.stand_in.held)) for kept in binding]
    for kept in binding:
        hold(draft, kept)
    yield
    for stand_in, count in before:
        draft.tx.lift_all(stand_in, stand_in.held[count:])
