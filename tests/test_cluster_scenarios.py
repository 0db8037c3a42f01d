"""Every scenario under tests/scenarios/kubernetes is a test of its own, named by its sentence."""

from __future__ import annotations

import pytest

from gpuyard.kube.objects import moment
from tests.support.cluster_reading import ClusterScenario, judged, load_all
from tests.support.scenario import NOW


@pytest.mark.parametrize("scenario", load_all(), ids=lambda s: s.name)
def test_a_cluster_is_read_as_its_objects_say(scenario: ClusterScenario):
    problems = judged(scenario, moment(NOW))
    if problems:
        pytest.fail(f"{scenario.name}\n({scenario.file})\n" + "\n".join(f"  - {p}" for p in problems), pytrace=False)
