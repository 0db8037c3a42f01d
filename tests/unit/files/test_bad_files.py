"""Bad files: each is refused with one clear sentence at the right line, and with a hint where a name is near."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuyard.files import Unreadable, parse_snapshot

HEADER = "apiVersion: gpuyard.dev/v1\nkind: Snapshot\n"
BAD = yaml.safe_load((Path(__file__).parent / "bad_files.yaml").read_text())


@pytest.mark.parametrize("case", BAD, ids=[case["wrong"] for case in BAD])
def test_a_bad_file_is_refused_in_one_sentence(case: dict[str, Any]):
    with pytest.raises(Unreadable) as refusal:
        parse_snapshot(HEADER + case["file"], "bad.yaml", 0.0)
    first = refusal.value.problems[0]
    assert case["says"] in first.message
    assert str(first) == f"bad.yaml:{case['line']}: {first.message}"
    assert "\n" not in first.message


def test_the_table_is_long_enough_to_mean_something():
    assert len(BAD) >= 100
    assert len({case["wrong"] for case in BAD}) == len(BAD)


def test_everything_that_is_wrong_is_told_at_once_and_in_the_order_of_the_file():
    text = HEADER + (
        "nodes:\n"
        "  - {name: n0, gpus: eight}\n"
        "queues:\n"
        "  - {name: research, qouta: 8}\n"
        "jobs:\n"
        "  - {name: a, queue: reserch}\n"
        "  - {name: b, queue: research, placements: [{node: n0}]}\n"
    )
    with pytest.raises(Unreadable) as refusal:
        parse_snapshot(text, "bad.yaml", 0.0)
    assert str(refusal.value).splitlines() == [
        "bad.yaml:4: node n0: gpus must be a whole number, not 'eight'",
        "bad.yaml:6: queue research has an unknown key qouta; did you mean quota?",
        "bad.yaml:8: job a stands in queue reserch, which does not exist; did you mean research?",
    ]


def test_a_flood_of_problems_is_cut_and_counted():
    jobs = "".join(f"  - {{name: j{number}, queue: nowhere}}\n" for number in range(80))
    with pytest.raises(Unreadable) as refusal:
        parse_snapshot(f"{HEADER}queues: [{{name: q}}]\njobs:\n{jobs}", "bad.yaml", 0.0)
    assert len(refusal.value.problems) == 50
    assert refusal.value.more == 30
    assert str(refusal.value).endswith("... and 30 more")
