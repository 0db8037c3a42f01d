"""The device plugin against a kubelet of our own, over real sockets: registered, asked, restarted, ill and well."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from gpuyard.agent.device_plugin import offers
from gpuyard.agent.device_plugin import v1beta1_pb2 as api
from gpuyard.agent.device_plugin.plugin import Plugin
from gpuyard.agent.device_plugin.registering import ENDPOINT, Registering
from gpuyard.agent.nvml.facts import Trouble
from gpuyard.agent.nvml.faults import NvmlFault
from tests.support import records
from tests.support.kubelet import FakeKubelet

pytestmark = pytest.mark.slow

NAME = "synthetic-h100x8"
UUIDS = [gpu.uuid for gpu in records.machine(NAME).machine.gpus]


class Node:
    """A kubelet, a plugin, and the machine that it watches."""

    def __init__(self, folder: Path, *faults: NvmlFault) -> None:
        self.asked, self.watch = records.watched(NAME, *faults)
        self.said: list[str] = []
        self.plugin = Plugin()
        self.kubelet = FakeKubelet(folder)
        self.registering = Registering(self.plugin, self.said.append, folder)
        self.look(0.0)

    def look(self, at: float) -> None:
        self.asked.at = at
        self.plugin.see(self.watch.look(), at)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path, NvmlFault("lost", at=10, until=20, gpu=3))
    made.kubelet.start()
    made.registering.look()
    made.kubelet.until(lambda: made.kubelet.allocatable() == 8)
    yield made
    made.registering.stop()
    made.kubelet.stop()


def test_a_kubelet_is_told_of_every_gpu_by_uuid_with_its_numa_node(node: Node):
    (request,) = node.kubelet.registered
    assert (request.version, request.endpoint, request.resource_name) == ("v1beta1", ENDPOINT, "nvidia.com/gpu")
    assert request.options.get_preferred_allocation_available
    assert set(node.kubelet.devices) == set(UUIDS)
    assert node.kubelet.numa() == {uuid: [index // 4] for index, uuid in enumerate(UUIDS)}


def test_one_lost_gpu_lowers_what_can_be_had_by_one_and_comes_back(node: Node):
    node.look(10.0)
    node.kubelet.until(lambda: node.kubelet.allocatable() == 7)
    assert node.kubelet.devices[UUIDS[3]] == "Unhealthy"
    node.look(20.0)
    node.kubelet.until(lambda: node.kubelet.allocatable() == 8)


def test_what_is_not_known_is_not_healthy(node: Node):
    node.asked.trouble = Trouble("hung")
    node.look(5.0)
    node.kubelet.until(lambda: node.kubelet.allocatable() == 0)
    assert len(node.kubelet.devices) == 8
    node.asked.trouble = None
    node.look(6.0)
    node.kubelet.until(lambda: node.kubelet.allocatable() == 8)


def test_a_container_gets_its_gpus_by_cdi_name_and_no_variable(node: Node):
    request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=UUIDS[2:4])])
    (answer,) = node.kubelet.call("Allocate", request, api.AllocateResponse).container_responses
    assert [device.name for device in answer.cdi_devices] == [f"nvidia.com/gpu={uuid}" for uuid in UUIDS[2:4]]
    assert dict(answer.envs) == {}


def test_a_gpu_that_never_was_is_refused(node: Node):
    request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=["GPU-none"])])
    with pytest.raises(grpc.RpcError, match="GPU-none"):
        node.kubelet.call("Allocate", request, api.AllocateResponse)


def test_the_kubelet_is_steered_to_gpus_that_lie_near_each_other(node: Node):
    wish = api.ContainerPreferredAllocationRequest(available_deviceIDs=UUIDS[1:], allocation_size=2)
    request = api.PreferredAllocationRequest(container_requests=[wish])
    (answer,) = node.kubelet.call(
        "GetPreferredAllocation", request, api.PreferredAllocationResponse
    ).container_responses
    assert set(answer.deviceIDs) in [set(UUIDS[n : n + 2]) for n in (2, 4, 6)]


def test_a_kubelet_that_starts_anew_is_told_again(node: Node):
    node.kubelet.stop()
    node.kubelet.start()
    node.registering.look()
    node.kubelet.until(lambda: len(node.kubelet.registered) == 2 and node.kubelet.allocatable() == 8)
    node.registering.look()
    assert len(node.kubelet.registered) == 2  # it knows us: once is enough


def test_without_a_kubelet_the_plugin_waits_and_says_so(tmp_path: Path):
    node = Node(tmp_path)
    node.registering.look()
    node.registering.look()
    assert node.said == [f"no kubelet listens in {tmp_path}"]
    (tmp_path / "kubelet.sock").touch()  # a kubelet that died and left its socket
    node.registering.look()
    assert "takes no registration" in node.said[-1]
    assert not (tmp_path / ENDPOINT).exists()


# --- which GPUs ----------------------------------------------------------------------------------


def seen(name: str, chosen=None) -> tuple[Plugin, list[str]]:
    _, watch = records.watched(name)
    plugin = Plugin(chosen)
    plugin.see(watch.look(), 0.0)
    return plugin, [gpu.uuid for gpu in records.machine(name).machine.gpus]


@pytest.mark.parametrize(
    ("name", "free", "must", "size", "wanted"),
    [
        ("synthetic-l40sx8-pcie", "1234567", "", 2, ("23", "45", "67")),
        ("synthetic-l40sx8-pcie", "134567", "", 4, ("4567",)),
        ("synthetic-l40sx8-pcie", "01234567", "5", 1, ("5",)),
        ("synthetic-a100x8-two-islands", "0124567", "", 4, ("4567",)),
        ("synthetic-a100x8-two-islands", "0124567", "", 3, ("012",)),
        ("synthetic-a100x8-two-islands", "0145", "", 4, ("0145",)),
        ("synthetic-h100x8", "1234567", "", 4, ("4567",)),
    ],
)
def test_gpus_are_chosen_by_what_joins_them(name: str, free: str, must: str, size: int, wanted: tuple[str, ...]):
    plugin, uuids = seen(name)
    found = plugin.preferred([uuids[int(n)] for n in free], [uuids[int(n)] for n in must], size)
    assert "".join(sorted(str(uuids.index(uuid)) for uuid in found)) in wanted


def test_every_size_is_met_from_whatever_is_free():
    for name in ("synthetic-l40sx8-pcie", "synthetic-a100x8-two-islands", "synthetic-h100x8"):
        plugin, uuids = seen(name)
        for free in range(1, 256):
            there = [uuid for n, uuid in enumerate(uuids) if free >> n & 1]
            for size in range(1, len(there) + 1):
                found = plugin.preferred(there, [], size)
                assert len(set(found)) == size
                assert set(found) <= set(there)


def test_gpus_that_a_pod_was_bound_to_come_before_the_topologys_favourite():
    _, uuids = seen(NAME)
    plugin, _ = seen(NAME, lambda available, size: [uuids[0], uuids[7]])
    assert plugin.preferred(uuids, [], 2) == sorted([uuids[0], uuids[7]])
    assert uuids[7] not in plugin.preferred(uuids[:4], [], 2)  # they are not free: another choice, no refusal
    assert len(plugin.preferred(uuids, [], 3)) == 3


def test_gpus_cut_into_slices_are_not_offered_whole():
    plugin, _ = seen("synthetic-h100x2-mig")
    assert plugin.devices == ()


def test_the_messages_checked_in_are_those_of_the_proto_file():
    text = (Path(__file__).resolve().parents[3] / "src/gpuyard/agent/device_plugin/v1beta1.proto").read_text()
    for name, message in api.DESCRIPTOR.message_types_by_name.items():
        assert f"message {name} " in text
        for field in message.fields:
            assert f"{field.name} = {field.number};" in text, json.dumps([name, field.name])


def test_whoever_binds_pods_is_told_when_a_kubelet_has_devices_and_before_it_has_none(tmp_path: Path):
    told: list[tuple[bool, int]] = []
    node = Node(tmp_path)

    def tell(ready: bool) -> bool:
        told.append((ready, node.kubelet.allocatable()))
        return True

    node.registering.tell_ready = tell
    node.kubelet.start()
    node.registering.start()
    node.kubelet.until(lambda: node.kubelet.allocatable() == 8)
    _until(lambda: told and told[-1][0])
    node.kubelet.stop()
    _until(lambda: told[-1][0] is False)
    node.kubelet.start()
    _until(lambda: told[-1][0] is True)
    node.kubelet.until(lambda: node.kubelet.allocatable() == 8)
    node.registering.stop()
    assert told[-1] == (False, 8)  # told first, and only then gone
    node.kubelet.stop()


def test_what_could_not_be_told_is_told_again(tmp_path: Path):
    tries: list[bool] = []

    def tell(ready: bool) -> bool:
        tries.append(ready)
        return len(tries) > 2

    node = Node(tmp_path)
    node.registering.tell_ready, node.registering.look_s = tell, 0.01
    node.registering.start()
    _until(lambda: len(tries) == 3)
    node.registering.stop()
    assert tries == [False] * 3
    assert any("could not be told that devices cannot be had" in words for words in node.said)


def _until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


# --- parts of GPUs -------------------------------------------------------------------------------


def offered(name: str, parts: int = 1, cut: bool = False) -> dict[str, Plugin]:
    _, watch = records.watched(name)
    found = {resource: Plugin(offer=offer) for resource, offer in offers.offers(watch.look(), parts, cut).items()}
    for plugin in found.values():
        plugin.see(watch.view, 0.0)
    return found


def test_a_gpu_whose_time_is_shared_is_offered_in_parts_and_not_whole():
    (plugin,) = offered(NAME, parts=3).values()
    assert list(offered(NAME, parts=3)) == ["nvidia.com/gpu.shared"]
    assert len(plugin.devices) == 24
    two = [f"{UUIDS[0]}::0", f"{UUIDS[0]}::2"]
    assert plugin.hand(two).cdi == (f"nvidia.com/gpu={UUIDS[0]}",)  # the same GPU is given once
    assert all(len(device.uuid) <= 63 for device in plugin.devices)  # the kubelet's bound


def test_slices_are_offered_by_profile_where_that_is_wanted_and_a_cut_gpu_never_whole():
    found = offered("synthetic-h100x2-mig", cut=True)
    assert {resource: len(plugin.devices) for resource, plugin in found.items()} == {
        "nvidia.com/gpu": 0, "nvidia.com/mig-1g.10gb": 7, "nvidia.com/mig-3g.40gb": 2,
    }  # fmt: skip
    first = found["nvidia.com/mig-3g.40gb"].devices[0]
    assert found["nvidia.com/mig-3g.40gb"].hand([first.uuid]).cdi == (f"nvidia.com/gpu={first.uuid}",)
    assert list(offered("synthetic-h100x2-mig")) == ["nvidia.com/gpu"]


def test_a_slice_is_as_well_as_its_gpu():
    _, watch = records.watched("synthetic-h100x2-mig", NvmlFault("ecc", gpu=0))
    plugin = Plugin(offer=offers.slices("3g.40gb"))
    plugin.see(watch.look(), 0.0)
    assert [device.healthy for device in plugin.devices] == [False, False]
    other = Plugin(offer=offers.slices("1g.10gb"))
    other.see(watch.view, 0.0)
    assert all(device.healthy for device in other.devices)


def test_every_resource_has_a_socket_of_its_own(tmp_path: Path):
    kubelet = FakeKubelet(tmp_path)
    kubelet.start()
    made = [Registering(plugin, lambda _: None, tmp_path, name) for name, plugin in offered(NAME, 2, True).items()]
    made += [Registering(Plugin(), lambda _: None, tmp_path)]
    for each in made:
        each.look()
    assert {(each.resource_name, each.endpoint) for each in kubelet.registered} == {
        ("nvidia.com/gpu.shared", "gpuyard-gpu.shared.sock"), ("nvidia.com/gpu", ENDPOINT),
    }  # fmt: skip
    for each in made:
        each.stop()
    kubelet.stop()
