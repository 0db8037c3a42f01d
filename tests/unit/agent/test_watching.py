"""What is known of a machine's GPUs over time, while NVML hangs, vanishes, talks nonsense or renumbers them."""

from __future__ import annotations

import pytest

from gpuyard.agent.nvml.facts import NotTold, Readings, Sample, Trouble, changed
from gpuyard.agent.nvml.faults import NvmlFault
from tests.support import records

NAME = "synthetic-h100x8"


def test_all_gpus_of_a_well_machine_are_seen_with_their_readings():
    _, watch = records.watched(NAME)
    view = watch.look()
    assert [gpu.state for gpu in view.gpus] == ["seen"] * 8
    assert all(gpu.readings is not None for gpu in view.gpus)
    assert view.trouble is None


@pytest.mark.parametrize("kind", ["hung", "died", "nonsense", "failed", "mismatch"])
def test_when_nvml_fails_every_gpu_is_unknown_and_its_last_values_are_not_told_again(kind):
    asked, watch = records.watched(NAME)
    watch.look()
    asked.at, asked.trouble = 10.0, Trouble(kind)
    view = watch.look()
    assert {gpu.state for gpu in view.gpus} == {"unknown"}
    assert {gpu.readings for gpu in view.gpus} == {None}
    assert all(str(Trouble(kind)) in gpu.why for gpu in view.gpus)
    assert (view.failures, view.since) == (1, 10.0)
    asked.at = 20.0
    assert watch.look().since == 10.0
    asked.at, asked.trouble = 30.0, None
    back = watch.look()
    assert {(gpu.state, gpu.since) for gpu in back.gpus} == {("seen", 30.0)}


def test_a_machine_that_never_answered_has_no_gpus_and_says_why():
    asked, watch = records.watched(NAME)
    asked.trouble = Trouble("hung")
    view = watch.look()
    assert (view.gpus, view.machine, view.trouble) == ((), None, Trouble("hung"))


def test_a_driver_that_is_gone_takes_every_gpu_along():
    asked, watch = records.watched(NAME, NvmlFault("no-driver", at=5))
    watch.look()
    asked.at = 6.0
    assert {gpu.state for gpu in watch.look().gpus} == {"lost"}


def test_one_lost_gpu_takes_no_other_along_and_may_come_back():
    asked, watch = records.watched(NAME, NvmlFault("lost", at=10, until=20, gpu=3))
    uuid = watch.look().gpus[3].facts.uuid
    asked.at = 10.0
    states = {gpu.facts.uuid: gpu.state for gpu in watch.look().gpus}
    assert states.pop(uuid) == "lost"
    assert set(states.values()) == {"seen"}
    asked.at = 20.0
    assert {gpu.state for gpu in watch.look().gpus} == {"seen"}


def test_values_no_gpu_has_are_unknown_and_the_others_stay():
    _, watch = records.watched(NAME, NvmlFault("nonsense", gpu=0))
    first, second = watch.look().gpus[:2]
    assert first.readings is not None
    assert second.readings is not None
    for name in ("utilization", "memory_used", "temperature_c", "power_mw", "sm_clock_mhz", "ecc_uncorrected"):
        value = getattr(first.readings, name)
        assert isinstance(value, NotTold), name
        assert value.why == "unknown"
    assert first.readings.pcie_replay == 0
    assert second.readings.utilization == 0


def test_renumbered_gpus_are_the_same_gpus():
    asked, watch = records.watched(NAME, NvmlFault("set", gpu=0, set={"utilization": 77}), NvmlFault("renumber", at=10))
    before = watch.look().by_uuid()
    (busy,) = (uuid for uuid, gpu in before.items() if gpu.readings is not None and gpu.readings.utilization == 77)
    asked.at = 10.0
    after = watch.look().by_uuid()
    assert after.keys() == before.keys()
    assert (before[busy].facts.index, after[busy].facts.index) == (0, 7)
    readings = after[busy].readings
    assert readings is not None
    assert readings.utilization == 77


def test_two_gpus_that_claim_one_uuid_are_both_unseen():
    asked, watch = records.watched(NAME)
    watch.look()
    sample = asked.sample()
    assert isinstance(sample, Sample)
    twins = changed(sample, gpus=(changed(sample.gpus[0], uuid=sample.gpus[1].uuid), *sample.gpus[1:]))
    asked.instead = twins
    assert [gpu.state for gpu in watch.look().gpus] == ["lost", "lost"] + ["seen"] * 6


def test_a_gpu_that_needs_a_reset_is_not_seen_as_well():
    asked, watch = records.watched(NAME)
    watch.look()
    sample = asked.sample()
    assert isinstance(sample, Sample)
    asked.instead = changed(sample, gpus=(changed(sample.gpus[0], fault="reset required"), *sample.gpus[1:]))
    first = watch.look().gpus[0]
    assert (first.state, first.readings) == ("lost", None)
    assert "needs a reset" in first.why


def test_xids_are_told_once_and_remembered_with_their_time():
    asked, watch = records.watched(NAME, NvmlFault("xid", at=5, gpu=2, value=79))
    watch.look()
    for asked.at in (6.0, 7.0):
        view = watch.look()
    assert [gpu.xids for gpu in view.gpus if gpu.xids] == [((6.0, 79),)]


def test_a_gpu_that_was_reset_is_not_blamed_for_what_was_before():
    fresh = NvmlFault("set", at=100, gpu=2, set={"energy_mj": 5})
    asked, watch = records.watched(NAME, NvmlFault("xid", at=5, gpu=2, value=74), fresh)
    watch.look()
    asked.at = 10.0
    assert watch.look().gpus[2].xids == ((10.0, 74),)
    asked.at = 99.0
    assert watch.look().gpus[2].xids == ((10.0, 74),)
    asked.at = 100.0
    assert watch.look().gpus[2].xids == ()


def test_a_gpu_that_appears_is_known_at_the_very_look_that_finds_it():
    asked, watch = records.watched(NAME, NvmlFault("lost", until=10, gpu=7))
    assert len(watch.look().gpus) == 7
    asked.at = 10.0
    view = watch.look()
    assert [gpu.state for gpu in view.gpus] == ["seen"] * 8
    assert view.machine is not None
    assert len(view.machine.gpus) == 8


def test_a_gpu_that_nothing_is_told_of_but_readings_hides_no_other():
    asked, watch = records.watched(NAME)
    watch.look()
    sample = asked.sample()
    assert isinstance(sample, Sample)
    asked.instead = changed(sample, gpus=(*sample.gpus, changed(sample.gpus[0], uuid="GPU-new", index=8)))
    for _ in range(3):
        assert [gpu.state for gpu in watch.look().gpus] == ["seen"] * 8


def test_every_reading_is_checked_or_named_as_one_that_needs_none():
    absurd: dict[str, int | float] = {
        name: -(10**6)
        for name in Readings.__struct_fields__
        if name not in ("uuid", "index", "processes", "xids", "fault", "slices")
    }
    _, watch = records.watched(NAME, NvmlFault("set", gpu=0, set=absurd))
    first = watch.look().gpus[0].readings
    assert first is not None
    assert all(isinstance(getattr(first, name), NotTold) for name in absurd)
