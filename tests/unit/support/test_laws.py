"""What is found by chance is kept: a broken law becomes a scenario that every later run tries again."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuyard.model.snapshot import Snapshot
from tests.support import laws
from tests.support.fleets import snapshots
from tests.support.judging import judged
from tests.support.scenario import load_all


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["proof", "dev"])
def test_a_law_that_is_broken_in_proof_is_kept_as_a_scenario(
    profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(laws, "FOUND", tmp_path)
    monkeypatch.setattr(laws, "PROFILE", profile)

    @laws.law(snapshots(), share=0.05)
    def test_no_fleet_has_nodes(snapshot: Snapshot) -> None:
        laws.tell(snapshot)
        assert not snapshot.nodes

    with pytest.raises(AssertionError):
        test_no_fleet_has_nodes()
    found = load_all(tmp_path)
    assert [scenario.name for scenario in found] == ["Found by no fleet has nodes"] * (profile == "proof")
    assert [judged(scenario)[0] for scenario in found] == [[]] * len(found)
