"""A task on a cut GPU sees its MIG slices by their own UUIDs, no two tasks the same, also after a crash."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpuyard.runtime.clock import SystemClock
from gpuyard.runtime.embedded.yard import EmbeddedYard, Settings
from tests.support.yards import ADMIN, TestYard, fleet, sh

pytestmark = pytest.mark.slow

CUT = "nodes: [{name: n0, gpus: 2, model: H100, mig: {1: [1g.10gb, 1g.10gb, 3g.40gb]}}]"
SHOW = "echo $CUDA_VISIBLE_DEVICES; sleep 60"
TOLD = ("MIG-a", "MIG-b", "MIG-c")


class Cut(TestYard):
    """A yard whose driver has told the slices' UUIDs."""

    def __init__(self, folder: Path) -> None:
        known = fleet(CUT)
        (node,) = known.nodes
        gpus = (node.gpus[0], replace(node.gpus[1], slice_uuids=TOLD))
        settings = Settings(folder, replace(known, nodes=(replace(node, gpus=gpus),)), term_grace=0.5)
        EmbeddedYard.__init__(self, settings, SystemClock())


def shown(yard: TestYard, name: str) -> str:
    yard.until(name, "running")
    while not yard.output(name):
        yard.wait_events(yard.store.last_event, 0.02)
    return yard.output(name).strip()


def test_each_task_gets_a_slice_of_its_own_and_a_whole_gpu_its_gpu(tmp_path: Path):
    yard = Cut(tmp_path)
    yard.start()
    yard.put(sh(SHOW, name="s0", mig="1g.10gb"), sh(SHOW, name="s1", mig="1g.10gb"), sh(SHOW, name="w", gpus=1))
    yard.put(sh(SHOW, name="big", mig="3g.40gb"))
    assert {shown(yard, "s0"), shown(yard, "s1")} == {"MIG-a", "MIG-b"}
    assert shown(yard, "big") == "MIG-c"
    assert shown(yard, "w").startswith("GPU-")
    yard.stop()


def test_a_slice_that_is_given_back_is_given_to_the_next(tmp_path: Path):
    yard = Cut(tmp_path)
    yard.start()
    yard.put(sh(SHOW, name="both", mig={"1g.10gb": 2}))
    assert shown(yard, "both") == "MIG-a,MIG-b"
    yard.put(sh(SHOW, name="next", mig="1g.10gb"))
    yard.act(ADMIN, "both", "cancel")
    assert shown(yard, "next") == "MIG-a"
    yard.stop()


def test_after_a_crash_a_slice_is_still_its_tasks(tmp_path: Path):
    yard = Cut(tmp_path)
    yard.start()
    yard.put(sh(SHOW, name="s0", mig="1g.10gb"))
    first = shown(yard, "s0")
    yard.close()
    yard = Cut(tmp_path)
    yard.start()
    yard.put(sh(SHOW, name="s1", mig="1g.10gb"))
    assert {first, shown(yard, "s1")} == {"MIG-a", "MIG-b"}
    yard.stop()


def test_virtual_slices_have_uuids_too(tmp_path: Path):
    yard = TestYard(tmp_path, CUT)
    yard.start()
    yard.put(sh(SHOW, name="s0", mig="1g.10gb"))
    assert shown(yard, "s0").startswith("MIG-")
    yard.stop()
