"""Whoever asks a world that has ended is told so at once; nothing is left that nobody began."""

from __future__ import annotations

import gc
import warnings

import pytest

from gpuyard.kube.credentials import KubeAccess
from gpuyard.model.errors import Refused
from gpuyard.runtime.clock import SystemClock, SystemDice
from gpuyard.worlds.kubernetes.world import KubernetesWorld, WorldSettings
from tests.support import yards


def test_a_world_that_was_closed_refuses_and_leaves_nothing_unbegun():
    settings = WorldSettings(KubeAccess("http://127.0.0.1:9"), yards.fleet("policy: {}\n"), elects=False)
    world = KubernetesWorld(settings, SystemClock(), SystemDice())
    world.start()
    world.close()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(Refused, match="followed no more"):
            world.post("/apis/authentication.k8s.io/v1/tokenreviews", b"{}")
        gc.collect()
    assert [str(each.message) for each in told if "never awaited" in str(each.message)] == []
