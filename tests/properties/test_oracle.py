"""The engine against the oracle: tiny random moments, every decision judged by an exhaustive reading of the rules.

tests/oracle/known.txt lists what is wrong today, exactly: a new verdict fails, and so does one that is gone. Why those
remain is told in docs/decisions/0006.
`python -m tests.oracle` counts, shows and shrinks what it finds.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.oracle import engine, moments
from tests.oracle.judge import judge

SEEDS = int(os.environ.get("ORACLE_SEEDS", "20000" if os.environ.get("HYPOTHESIS_PROFILE") == "proof" else "300"))
"""300 moments in `make test`, 20,000 in `make proof`."""

BESIDE = {moments.WIDER: 3 / 20, moments.NAMED: 1 / 20, moments.ALIGNED: 1 / 20}
"""Besides, from other seeds on, a part as many: moments with taints, neighbours, power caps, nested groups and nodes
that name no rack; moments with quotas that name a model; and moments with kubelets that insist on NUMA nodes."""

MOST = 20_000
"""How far the list of known verdicts goes."""

AT_ONCE = 50 if SEEDS <= 300 else 250


def ranges(count: int) -> list[range]:
    """The seeds of so many plain moments, and of those beside them."""
    return [range(count), *(range(first, first + int(count * part)) for first, part in BESIDE.items())]


KNOWN = Path(__file__).resolve().parent.parent / "oracle" / "known.txt"


def known() -> set[tuple[int, str]]:
    """The list, as (seed, kind)."""
    lines = [line.split() for line in KNOWN.read_text().splitlines() if line and not line.startswith("#")]
    return {(int(seed), kind) for seed, kind in lines}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "seeds",
    [seeds[first : first + AT_ONCE] for seeds in ranges(SEEDS) for first in range(0, len(seeds), AT_ONCE)],
    ids=str,
)
def test_every_decision_is_one_that_the_rules_would_make(seeds: range):
    found = {(seed, v.kind): v.sentence for seed in seeds for v in judge(moments.draw(seed), engine.plan)}
    listed = {(seed, kind) for seed, kind in known() if seed in seeds}
    unlisted = sorted((seed, kind, found[seed, kind]) for seed, kind in set(found) - listed)
    assert (unlisted, sorted(listed - set(found))) == ([], [])


def test_the_list_of_known_verdicts_stays_where_it_is_checked():
    assert [line for line in sorted(known()) if not any(line[0] in seeds for seeds in ranges(MOST))] == []
