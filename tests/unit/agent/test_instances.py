"""GPU instances of MIG: what NVML tells of each, and how Prometheus gets it."""

from __future__ import annotations

from types import SimpleNamespace

from gpuyard.agent.exporting import families
from gpuyard.agent.exporting.families import Export, Family, GpuHolder
from gpuyard.agent.nvml import plausible
from gpuyard.agent.nvml.facts import (
    DeviceFacts,
    MachineFacts,
    MigSlice,
    NotTold,
    Readings,
    Sample,
    SliceReadings,
    Trouble,
    changed,
)
from gpuyard.agent.nvml.library import Library
from gpuyard.agent.watching import GpuView, MachineView, Watch
from tests.support import records
from tests.unit.agent.test_nvml import FakeNvml, NvmlMistake

GIB = 1 << 30
USED, FREE = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"
CUT = DeviceFacts(
    0, "GPU-0", "NVIDIA H100", "00000000:00:00.0", memory=80 * GIB, mig=True,
    slices=(
        MigSlice("1c.3g.40gb", "MIG-a", 2, 0, 40 * GIB), MigSlice("1c.3g.40gb", "MIG-b", 2, 1, 40 * GIB),
        MigSlice("1g.10gb", "MIG-c", 9, 0, 10 * GIB),
    ),
)  # fmt: skip
READ = Readings(
    "GPU-0", 0, memory_used=7 * GIB, memory_free=73 * GIB, temperature_c=30, utilization=NotTold("not supported"),
    slices=(
        SliceReadings("MIG-a", 5 * GIB, 35 * GIB), SliceReadings("MIG-b", 5 * GIB, 35 * GIB),
        SliceReadings("MIG-c", 2 * GIB, 8 * GIB),
    ),
)  # fmt: skip


class CutNvml(FakeNvml):
    """The first GPU may have four MIG devices and has two; of the second no memory is told."""

    def nvmlDeviceGetMaxMigDeviceCount(self, handle):
        return 4 if handle == 0 else 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle, index):
        if index > 1:
            raise NvmlMistake(6)
        return f"part-{index}"

    def nvmlDeviceGetMemoryInfo(self, handle):
        if handle == "part-1":
            raise NvmlMistake(3)
        return SimpleNamespace(total=10 * GIB, used=GIB, free=9 * GIB)


def told(readings: Readings | None, **holders: list[GpuHolder]) -> dict[str, Family]:
    view = MachineView(1.0, None, (GpuView(CUT, readings, "seen"),))
    export = Export(view, 2.0, holders={name.replace("_", "-"): each for name, each in holders.items()})
    return {family.name: family for family in families.families(export)}


def lines(family: Family) -> list[tuple[str, str, float]]:
    return [(labels["GPU_I_PROFILE"], labels["GPU_I_ID"], value) for labels, value in family.series]


def test_the_door_tells_the_memory_of_each_mig_device_that_there_is():
    cut, whole = Library(CutNvml()).sample().gpus
    none = NotTold("not supported")
    assert cut.slices == (SliceReadings("GPU-part-0", GIB, 9 * GIB), SliceReadings("GPU-part-1", none, none))
    assert whole.slices == ()


def test_each_instance_has_a_line_of_its_own_in_the_place_of_its_gpus():
    found = told(READ)
    assert lines(found[USED]) == [("3g.40gb", "2", 5120), ("1g.10gb", "9", 2048)]
    assert lines(found[FREE]) == [("3g.40gb", "2", 35840), ("1g.10gb", "9", 8192)]
    assert {labels["UUID"] for labels, _ in found[USED].series} == {"GPU-0"}
    assert lines(found["DCGM_FI_DEV_GPU_TEMP"]) == [("", "", 30)]
    assert lines(found["DCGM_FI_DEV_GPU_UTIL"]) == []


def test_what_is_not_told_of_an_instance_has_no_line_and_no_zero():
    none = NotTold("not supported")
    partly = changed(READ, slices=(SliceReadings("MIG-a", none, none), READ.slices[2]))
    assert lines(told(partly)[USED]) == [("1g.10gb", "9", 2048)]
    untold = changed(READ, slices=tuple(SliceReadings(each.uuid, none, none) for each in READ.slices))
    assert lines(told(untold)[USED]) == [("", "", 7168)]
    assert lines(told(None)[USED]) == []


def test_an_instance_is_labelled_with_those_who_hold_its_devices_else_with_its_gpus():
    found = told(READ, MIG_b=[GpuHolder(pod="b")], GPU_0=[GpuHolder(job="all")])[USED]
    assert [(labels["GPU_I_ID"], labels["pod"], labels["hpc_job"]) for labels, _ in found.series] == [
        ("2", "b", ""), ("9", "", "all"),
    ]  # fmt: skip


def test_no_two_lines_have_the_same_labels():
    for family in told(READ, MIG_a=[GpuHolder(pod="p")], MIG_b=[GpuHolder(pod="p")]).values():
        names = [tuple(labels.items()) for labels, _ in family.series]
        assert len(names) == len(set(names)), family.name


def test_more_memory_than_an_instance_has_is_not_believed():
    absurd = changed(READ, slices=(SliceReadings("MIG-c", 11 * GIB, -1),))
    ((checked,),) = (gpu.slices for gpu in plausible.believable(Sample((absurd,)), [CUT]).gpus)
    assert isinstance(checked.memory_used, NotTold)
    assert isinstance(checked.memory_free, NotTold)


class CutLater(records.ReplayedNvml):
    """Counts how often what there is was asked."""

    surveys = 0

    def machine(self) -> MachineFacts | Trouble:
        self.surveys += 1
        return super().machine()


def test_an_instance_that_is_cut_later_is_asked_for():
    asked = CutLater("synthetic-h100x2-mig")
    watch = Watch(asked, lambda: 0.0)
    watch.look()
    watch.look()
    assert asked.surveys == 1
    sample = asked.sample()
    assert isinstance(sample, Sample)
    new = changed(sample.gpus[0], slices=(SliceReadings("MIG-new", GIB, GIB),))
    asked.instead = changed(sample, gpus=(new, *sample.gpus[1:]))
    watch.look()
    watch.look()
    assert asked.surveys > 1
