"""Amounts of the resources that queues count, and their arithmetic. The order of resources is the queue tree's."""

from __future__ import annotations

Amounts = list[int]
"""One amount per counted resource, in the tree's order."""

GPUS = 0
"""Where GPUs stand in that order: first."""


def add(total: Amounts, amounts: Amounts, count: int = 1) -> None:
    """Add the cost of several to a total."""
    if len(amounts) == 1:  # GPUs alone, by far the most
        total[GPUS] += count * amounts[GPUS]
        return
    for r, amount in enumerate(amounts):
        total[r] += count * amount


def times(amounts: Amounts, count: int) -> Amounts:
    """The cost of several."""
    return [amount * count for amount in amounts]


def plus(left: Amounts, right: Amounts) -> Amounts:
    """The cost of both."""
    return [a + b for a, b in zip(left, right, strict=True)]


def minus(left: Amounts, right: Amounts) -> Amounts:
    """What is left of the one without the other."""
    return [a - b for a, b in zip(left, right, strict=True)]
