"""Laws of fair shares (rule 6), on random queue trees, demands and capacities: judged between siblings, in GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from gpuyard.brain.engine.sharing.fair_share import Shares, fair_shares
from gpuyard.brain.engine.sharing.quota import QueueTree
from gpuyard.model.queue import Queue
from gpuyard.model.resources import UNLIMITED, WHOLE
from tests.support.fleets import queue_trees
from tests.support.laws import law

GPU = 0
"""`gpu` is the first resource of every tree."""
SLACK = WHOLE / 1e6


@dataclass(frozen=True)
class Due:
    """What one queue wants, is promised and is given, in grains."""

    queue: Queue
    wish: float
    """Demand, as far as the limit lets it."""
    promised: float
    """The part that its quota grants whatever the others want."""
    share: float

    @property
    def extra(self) -> float:
        """What it is given of what is left over."""
        return self.share - self.promised

    @property
    def thirsty(self) -> bool:
        """Whether it would take more of what is left over."""
        return self.queue.weight > 0 and self.share < self.wish - SLACK


@dataclass(frozen=True)
class Family:
    """Siblings, and what their parent has for them."""

    share: float
    members: list[Due]

    @property
    def rest(self) -> float:
        """What is left over once promises are kept; quotas may promise more than there is."""
        return max(0.0, self.share - sum(one.promised for one in self.members))


@st.composite
def divisions(draw: Any) -> list[Family]:
    """Every family of a random tree, with what each member is due."""
    tree = QueueTree(draw(queue_trees()))
    capacity = draw(st.integers(0, 24)) * WHOLE
    demand = [[0] * len(tree.resources) for _ in tree.queues]
    for q, below in enumerate(tree.children):
        demand[q][GPU] = 0 if below else draw(st.integers(0, 64)) * WHOLE // 4
    shares = fair_shares(tree, demand, [capacity] * len(tree.resources))
    families = [(q, below) for q, below in enumerate(tree.children) if below]
    return [Family(shares[q][GPU], [due(tree, child, demand, shares) for child in below]) for q, below in families]


def due(tree: QueueTree, q: int, demand: list[list[int]], shares: Shares) -> Due:
    """What the queue wants, is promised and gets."""
    asked = sum(demand[leaf][GPU] for leaf, path in enumerate(tree.paths) if q in path)
    wish = min(asked, tree.limit[q][GPU])
    quota = tree.quota[q][GPU]
    promised = min(shares[tree.parent[q]][GPU] if quota >= UNLIMITED else quota, wish)
    return Due(tree.queues[q], wish, promised, shares[q][GPU])


@law(divisions())
def test_everybody_gets_what_is_promised_and_nobody_more_than_it_wants(families: list[Family]):
    every = [one for family in families for one in family.members]
    assert [one for one in every if not one.promised - SLACK <= one.share <= one.wish + SLACK] == []


@law(divisions())
def test_what_is_left_over_goes_to_higher_priority_first_and_never_to_weight_zero(families: list[Family]):
    assert [pair for family in families for pair in overtaken(family.members)] == []


def overtaken(family: list[Due]) -> Iterator[tuple[Due, Due]]:
    """(who got something of the rest, who should have had it first)."""
    for one in family:
        if one.extra > SLACK:
            yield from ((one, other) for other in family if other.thirsty and other.queue.priority > one.queue.priority)
            if not one.queue.weight:
                yield one, one


@law(divisions())
def test_equals_divide_what_is_left_over_by_weight(families: list[Family]):
    """Nobody who still wants more has had less per weight than an equal."""
    assert [
        (one, other)
        for family in families
        for one in family.members
        for other in family.members
        if one.thirsty
        and other.queue.weight > 0
        and one.queue.priority == other.queue.priority
        and one.extra / one.queue.weight < other.extra / other.queue.weight - SLACK
    ] == []


@law(divisions())
def test_no_more_is_given_than_there_is_and_nothing_is_kept_from_the_thirsty(families: list[Family]):
    for family in families:
        given = sum(one.extra for one in family.members)
        assert given <= family.rest + SLACK
        assert given >= family.rest - SLACK or not any(one.thirsty for one in family.members)
