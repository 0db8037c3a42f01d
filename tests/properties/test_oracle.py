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

WIDER = SEEDS // 10
"""Besides, moments with taints, neighbours, power caps, nested groups and nodes that name no rack."""

MOST = 20_000
"""How far the list of known verdicts goes; a tenth of it for wider moments."""

AT_ONCE = 50 if SEEDS <= 300 else 250
KNOWN = Path(__file__).resolve().parent.parent / "oracle" / "known.txt"


def known() -> set[tuple[int, str]]:
    """The list, as (seed, kind)."""
    lines = [line.split() for line in KNOWN.read_text().splitlines() if line and not line.startswith("#")]
    return {(int(seed), kind) for seed, kind in lines}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "seeds",
    [range(first, min(first + AT_ONCE, SEEDS)) for first in range(0, SEEDS, AT_ONCE)]
    + [
        range(first, min(first + AT_ONCE, moments.WIDER + WIDER))
        for first in range(moments.WIDER, moments.WIDER + WIDER, AT_ONCE)
    ],
    ids=str,
)
def test_every_decision_is_one_that_the_rules_would_make(seeds: range):
    found = {(seed, v.kind): v.sentence for seed in seeds for v in judge(moments.draw(seed), engine.plan)}
    listed = {(seed, kind) for seed, kind in known() if seed in seeds}
    unlisted = sorted((seed, kind, found[seed, kind]) for seed, kind in set(found) - listed)
    assert (unlisted, sorted(listed - set(found))) == ([], [])


def test_the_list_of_known_verdicts_stays_where_it_is_checked():
    checked = (*range(MOST), *range(moments.WIDER, moments.WIDER + MOST // 10))
    assert [line for line in sorted(known()) if line[0] not in checked] == []
