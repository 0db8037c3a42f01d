"""The topology policy of this node's kubelet, from its configuration file."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gpuyard.agent.gpu_node import spec_of
from gpuyard.agent.kubelet_config import NOTHING_TOLD, KubeletConfig, KubeletTopology
from gpuyard.agent.nvml import record as records
from gpuyard.agent.watching import GpuView, MachineView

KUBELET = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
# topologyManagerPolicy: none
topologyManagerPolicy: "single-numa-node"
topologyManagerScope: pod
featureGates: {TopologyManager: true}
"""
RECORDS = sorted((Path(__file__).resolve().parents[2] / "records").glob("*.json"))


class Read:
    def __init__(self, path: Path) -> None:
        self.said: list[str] = []
        self.path = path
        self.config = KubeletConfig(path, self.said.append)

    def topology(self) -> KubeletTopology:
        return self.config.topology()


@pytest.fixture
def read(tmp_path: Path) -> Read:
    return Read(tmp_path / "config.yaml")


def test_policy_and_scope_are_read_and_a_change_is_seen(read: Read):
    read.path.write_text(KUBELET)
    assert read.topology() == KubeletTopology("single-numa-node", "pod")
    read.path.write_text('{"topologyManagerPolicy": "restricted"}')
    assert read.topology() == KubeletTopology("restricted", "")
    assert read.said == []


def test_no_file_and_no_policy_insist_on_nothing_and_are_not_worth_a_word(read: Read):
    assert read.topology() == NOTHING_TOLD
    read.path.write_text("kind: KubeletConfiguration\n")
    assert read.topology() == NOTHING_TOLD
    read.path.unlink()
    assert read.topology() == NOTHING_TOLD
    assert read.said == []


@pytest.mark.parametrize("text", [b"{", b"\xff\xfe", b"[" * 5000, b"a: &a [*a]"])
def test_a_file_that_cannot_be_read_is_told_once_and_insists_on_nothing(read: Read, text: bytes):
    read.path.write_text(KUBELET)
    read.topology()
    read.path.write_bytes(text)
    assert read.topology() == read.topology() == NOTHING_TOLD
    (line,) = read.said
    assert line.startswith("the kubelet's configuration is not read")
    assert line.isprintable()
    read.path.write_text(KUBELET)
    assert read.topology().policy == "single-numa-node"


def test_words_that_are_no_policy_are_told_short(read: Read):
    read.path.write_text('topologyManagerPolicy: "' + "x" * 500 + '\\e[2J"\ntopologyManagerScope: [1, 2]\n')
    told = read.topology()
    assert len(told.policy) <= 60
    assert told.policy.isprintable()
    assert told.scope == "[1, 2]"


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_kubelet_that_is_not_told_of_numa_nodes_is_not_said_to_insist_on_any(path: Path):
    machine = records.read(path).machine
    readings = {each.uuid: each for each in records.read(path).sample.gpus}
    blind = [msgspec.structs.replace(gpu, numa=-1) for gpu in machine.gpus]
    wanted = KubeletTopology("single-numa-node", "pod")
    for gpus in (machine.gpus, blind):
        view = MachineView(
            1.0, machine, tuple(GpuView(g, readings[g.uuid], "seen") for g in gpus if g.uuid in readings)
        )
        spec = spec_of(view, kubelet=wanted)
        assert spec is not None
        known = gpus is not blind and all(isinstance(gpu.numa, int) and gpu.numa >= 0 for gpu in gpus)
        assert spec.topology_policy == ("single-numa-node" if known else "")
