"""Laws of what is known of GPUs, whatever NVML does: nothing raises, nobody is forgotten, unknown is not healthy."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuyard.agent import verdicts
from gpuyard.agent.device_plugin.plugin import Plugin
from gpuyard.agent.exporting import families, text
from gpuyard.agent.exporting.families import Export
from gpuyard.agent.nvml.facts import Readings, Trouble, told
from gpuyard.agent.nvml.faults import NvmlFault
from tests.support import records

NAMES = [name for name in Readings.__struct_fields__ if name not in ("uuid", "index", "processes", "xids", "fault")]
KINDS = ("hung", "died", "nonsense", "failed", "mismatch", "no driver", "no library")
VALUES = st.one_of(st.integers(-(2**63), 2**64), st.floats(allow_nan=False, allow_infinity=False))
MOMENTS = st.integers(0, 100).map(float)
FAULTS = st.builds(
    lambda kind, at, lasts, gpu, value, name, number: NvmlFault(
        kind, at, at + lasts, gpu, value, {name: number} if kind == "set" else {}
    ),
    st.sampled_from(["xid", "ecc", "lost", "thermal", "clock-drop", "link-down", "nonsense", "renumber", "set"]),
    MOMENTS, st.integers(1, 60), st.none() | st.integers(0, 7), st.none() | st.integers(1, 200),
    st.sampled_from(NAMES), VALUES,
)  # fmt: skip


@given(st.lists(FAULTS, max_size=5), st.lists(st.tuples(MOMENTS, st.none() | st.sampled_from(KINDS)), max_size=8))
def test_whatever_nvml_does_nobody_is_forgotten_and_nothing_unknown_is_told_as_healthy(faults, looks):
    asked, watch = records.watched("synthetic-mixed", *faults)
    plugin, known = Plugin(), set[str]()
    for at, kind in sorted(looks, key=lambda look: look[0]):
        asked.at, asked.trouble = at, Trouble(kind) if kind else None
        view = watch.look()
        plugin.see(view, at)
        assert known <= set(view.by_uuid())
        known = set(view.by_uuid())
        for gpu in view.gpus:
            judged = verdicts.health(gpu, at)
            assert (gpu.readings is not None) == (gpu.state == "seen")
            assert kind is None or judged.verdict in ("unknown", "sick")
            if judged.verdict == "healthy":
                assert gpu.readings is not None
                assert all(told(getattr(gpu.readings, name)) is not None for name in verdicts.VITAL)
            else:
                assert judged.evidence
        exposed = text.exposition(families.families(Export(view, at, "h")))
        assert kind is None or "DCGM_FI_" not in exposed
        well = {gpu.facts.uuid for gpu in view.gpus if verdicts.health(gpu, at).verdict in ("healthy", "suspect")}
        assert {device.uuid for device in plugin.devices if device.healthy} == well
