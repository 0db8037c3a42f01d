"""What the driver says becomes a node; a library made by hand stands in for the driver."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpuyard.agent import discovery, nvml


class FakeNvml:
    """Eight GPUs of one model unless told otherwise; `links` maps a GPU to its peers by number, or to `switch`."""

    class NVMLError(Exception):
        pass

    def __init__(
        self, names: list[str], links: dict[int, list[Any]] | None = None, mig: dict[int, list[str]] | None = None
    ):
        self.names, self.links, self.mig = names, links or {}, mig or {}
        self.open = False

    def nvmlInit(self):
        self.open = True

    def nvmlShutdown(self):
        self.open = False

    def nvmlDeviceGetCount(self):
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetUUID(self, handle):
        return f"MIG-{handle[1]}" if isinstance(handle, tuple) else f"GPU-{handle}".encode()

    def nvmlDeviceGetName(self, handle):
        return handle[0] if isinstance(handle, tuple) else self.names[handle]

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(total=80 << 30)

    def nvmlDeviceGetPciInfo(self, handle):
        return SimpleNamespace(busId=f"00000000:0{handle}:00.0")

    def nvmlDeviceGetArchitecture(self, handle):
        return 9

    def nvmlDeviceGetNvLinkState(self, handle, link):
        if link >= len(self.links.get(handle, [])):
            raise self.NVMLError
        return 1

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle, link):
        return 2 if self.links[handle][link] == "switch" else 0

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle, link):
        return self.nvmlDeviceGetPciInfo(self.links[handle][link])

    def nvmlDeviceGetMigMode(self, handle):
        return [int(handle in self.mig), 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle):
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle, index):
        if index >= len(self.mig[handle]):
            raise self.NVMLError
        return f"NVIDIA H100 MIG {self.mig[handle][index]}", f"{handle}-{index}"


def test_gpus_behind_a_switch_are_one_island():
    library = FakeNvml(["NVIDIA H100 80GB HBM3"] * 4, {n: ["switch"] * 2 for n in range(4)})
    (node,) = discovery.nodes(library)
    assert (node.model, node.architecture, node.gpu_memory) == ("H100-80GB-HBM3", "hopper", 80 << 30)
    assert [(gpu.index, gpu.island, gpu.uuid) for gpu in node.gpus] == [(n, 0, f"GPU-{n}") for n in range(4)]
    assert not library.open


def test_bridged_pairs_are_islands_and_cards_without_links_stand_alone():
    pairs = {0: [1], 1: [0], 2: [3], 3: [2]}
    (node,) = discovery.nodes(FakeNvml(["NVIDIA A40"] * 5, pairs))
    assert [gpu.island for gpu in node.gpus] == [0, 0, 1, 1, 2]


def test_two_models_are_two_nodes():
    found = discovery.nodes(FakeNvml(["NVIDIA H200", "Tesla T4", "NVIDIA H200"]))
    assert [(node.model, [gpu.uuid for gpu in node.gpus]) for node in found] == [
        ("H200", ["GPU-0", "GPU-2"]),
        ("T4", ["GPU-1"]),
    ]
    assert len({node.name for node in found}) == 2


def test_a_cut_gpu_tells_its_slices_and_their_own_uuids():
    (node,) = discovery.nodes(FakeNvml(["NVIDIA H100"] * 2, mig={1: ["3g.40gb", "1g.10gb"]}))
    assert [gpu.slices for gpu in node.gpus] == [None, ("1g.10gb", "3g.40gb")]
    assert [gpu.slice_uuids for gpu in node.gpus] == [(), ("MIG-1-1", "MIG-1-0")]


def test_no_driver_is_no_gpus():
    class NoDriver(FakeNvml):
        def nvmlInit(self):
            raise self.NVMLError

    assert nvml.devices(NoDriver([])) == []


def test_the_real_library_answers_here():
    pytest.importorskip("pynvml")
    assert isinstance(nvml.devices(), list)
