"""NICs and the GPUs near them, from a /sys made by hand."""

from __future__ import annotations

from pathlib import Path

from gpuyard.agent import discovery
from gpuyard.agent.exporting import families
from gpuyard.agent.exporting.families import Export
from gpuyard.agent.gpu_node import spec_of
from gpuyard.agent.nvml import nics, record
from gpuyard.agent.nvml.facts import DeviceFacts, MachineFacts, Nic, NotTold, changed
from gpuyard.agent.watching import GpuView, MachineView
from tests.support import records

SWITCH = "pci0000:17/0000:17:01.0/0000:18:00.0"
OTHER_PORT = "pci0000:17/0000:17:03.0"
FAR = "pci0000:9b/0000:9b:01.0"


class MadeSys:
    """A folder as the kernel fills it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def device(self, path: str, numa: int = -1) -> Path:
        place = self.root / "devices" / path
        place.mkdir(parents=True)
        (place / "numa_node").write_text(f"{numa}\n")
        listed = self.root / "bus" / "pci" / "devices"
        listed.mkdir(parents=True, exist_ok=True)
        (listed / place.name).symlink_to(place)
        return place

    def nic(self, kind: str, name: str, device: Path | None, **files: str) -> Path:
        place = self.root / "class" / kind / name
        place.mkdir(parents=True)
        if device is not None:
            (place / "device").symlink_to(device)
        for file, text in files.items():
            (place / file).write_text(f"{text}\n")
        return place

    def port(self, nic: Path, number: int, state: str, rate: str) -> None:
        place = nic / "ports" / str(number)
        place.mkdir(parents=True)
        (place / "state").write_text(f"{state}\n")
        (place / "rate").write_text(f"{rate}\n")


def gpu(index: int, path: str | NotTold, numa: int = -1) -> DeviceFacts:
    return DeviceFacts(index, f"GPU-{index}", "NVIDIA H100", f"00000000:{index:02x}:00.0", numa=numa, pci_path=path)


def test_a_nic_is_told_with_its_place_and_its_link(tmp_path: Path):
    sys = MadeSys(tmp_path)
    device = sys.device(f"{SWITCH}/0000:19:00.0/0000:1a:00.0", numa=1)
    rdma = sys.nic("infiniband", "mlx5_0", device)
    sys.port(rdma, 1, "1: DOWN", "10 Gb/sec (4X SDR)")
    sys.port(rdma, 2, "4: ACTIVE", "400 Gb/sec (4X NDR)")
    sys.nic("net", "eth0", device, operstate="up", speed="100000")
    path = f"{SWITCH}/0000:19:00.0/0000:1a:00.0"
    assert nics.nics(tmp_path) == (
        Nic("mlx5_0", "infiniband", "0000:1a:00.0", path, 1, "active", 400_000),
        Nic("eth0", "net", "0000:1a:00.0", path, 1, "up", 100_000),
    )


def test_a_link_that_is_down_has_no_speed_and_no_zero(tmp_path: Path):
    sys = MadeSys(tmp_path)
    sys.nic("net", "eth0", sys.device(f"{FAR}/0000:9c:00.0"), operstate="down", speed="-1")
    sys.nic("net", "eth1", sys.device(f"{FAR}/0000:9c:00.1"))
    down, untold = nics.nics(tmp_path)
    assert (down.state, down.speed_mbps) == ("down", NotTold("not supported"))
    assert (untold.state, untold.speed_mbps) == (NotTold("not supported"), NotTold("not supported"))


def test_what_is_no_pci_device_of_its_own_is_no_nic(tmp_path: Path):
    sys = MadeSys(tmp_path)
    sys.nic("net", "lo", None)
    usb = sys.device("pci0000:00/0000:00:14.0") / "usb1" / "1-1"
    usb.mkdir(parents=True)
    sys.nic("net", "phone", usb)
    function = sys.device("pci0000:00/0000:00:08.1")
    (function / "physfn").mkdir()
    sys.nic("net", "eth0v0", function)
    (tmp_path / "class" / "net" / "bonding_masters").write_text("")
    virtio = sys.device("pci0000:00/0000:00:03.0") / "virtio0"
    virtio.mkdir()
    sys.nic("net", "ens3", virtio)
    assert [(nic.name, nic.bus) for nic in nics.nics(tmp_path)] == [("ens3", "0000:00:03.0")]


def test_a_machine_without_such_folders_has_no_nics_and_tells_no_path(tmp_path: Path):
    assert nics.nics(tmp_path) == ()
    assert isinstance(nics.pci_path(tmp_path, "0000:1b:00.0"), NotTold)


def test_the_path_of_a_gpu_is_the_one_that_the_kernel_has(tmp_path: Path):
    MadeSys(tmp_path).device(f"{SWITCH}/0000:1b:00.0")
    assert nics.pci_path(tmp_path, "0000:1b:00.0") == f"{SWITCH}/0000:1b:00.0"


GPUS = (
    gpu(0, f"{SWITCH}/0000:19:01.0/0000:1b:00.0", numa=0),
    gpu(1, f"{SWITCH}/0000:19:02.0/0000:1c:00.0", numa=0),
    gpu(2, f"{OTHER_PORT}/0000:2b:00.0", numa=0),
    gpu(3, f"{FAR}/0000:9d:00.0", numa=1),
)


def nearest(path: str, numa: int | NotTold, gpus: tuple[DeviceFacts, ...] = GPUS) -> tuple[str, list[int]]:
    near, found = discovery.near(Nic("mlx5_0", "infiniband", path[-12:], path, numa), gpus)
    return near, [each.index for each in found]


def test_a_switch_is_nearer_than_a_numa_node_and_that_than_the_machine():
    assert nearest(f"{SWITCH}/0000:19:00.0/0000:1a:00.0", 0) == ("switch", [0, 1])
    assert nearest("pci0000:17/0000:17:05.0/0000:3a:00.0", 0) == ("numa", [0, 1, 2])  # the host's bridge is no switch
    assert nearest("pci0000:17/0000:17:05.0/0000:3a:00.0", -1) == ("node", [0, 1, 2, 3])
    assert nearest("pci0000:50/0000:50:05.0/0000:5a:00.0", 7) == ("node", [0, 1, 2, 3])


def test_where_the_machine_tells_no_places_no_nearness_is_claimed():
    untold = (gpu(0, NotTold("unknown")), gpu(1, NotTold("unknown")))
    assert nearest("pci0000:00/0000:00:03.0", -1, untold) == ("node", [0, 1])
    assert nearest("", NotTold("failed"), untold) == ("node", [0, 1])
    flat = (gpu(0, "pci0000:00/0000:00:06.0"), gpu(1, "pci0000:00/0000:00:07.0"))
    assert nearest("pci0000:00/0000:00:03.0", -1, flat) == ("node", [0, 1])


def test_the_cluster_and_prometheus_are_told_which_gpus_are_near():
    nic = Nic("mlx5_0", "infiniband", "0000:1a:00.0", f"{SWITCH}/0000:19:00.0/0000:1a:00.0", 0, "active", 400_000)
    untold = Nic("eth0", "net", "0000:5a:00.0", "pci0000:50/0000:5a:00.0", -1)
    machine = MachineFacts("580", "13.0", "13", GPUS, nics=(nic, untold))
    view = MachineView(1.0, machine, tuple(GpuView(each, None, "unknown") for each in GPUS))
    spec = spec_of(view)
    assert spec is not None
    first, second = spec.nics
    assert (first.name, first.numa, first.state, first.speed_mbps) == ("mlx5_0", 0, "active", 400_000)
    assert (first.near, first.gpus) == ("switch", ["GPU-0", "GPU-1"])
    assert (second.numa, second.near, len(second.gpus)) == (None, "node", 4)
    (told,) = (each for each in families.families(Export(view, 2.0)) if each.name == "gpuyard_nic_near_gpu")
    assert [(labels["nic"], labels["near"], labels["gpu"]) for labels, _ in told.series][:3] == [
        ("mlx5_0", "switch", "0"), ("mlx5_0", "switch", "1"), ("eth0", "node", "0"),
    ]  # fmt: skip


def test_a_node_with_more_nics_than_its_record_takes_is_still_told():
    many = tuple(Nic(f"eth{number}", "net", "0000:1a:00.0") for number in range(100))
    spec = spec_of(MachineView(1.0, MachineFacts("580", "13.0", "13", nics=many)))
    assert spec is not None
    assert len(spec.nics) == 64


def test_a_record_from_before_nics_were_told_still_opens_and_a_new_one_keeps_them(tmp_path: Path):
    old = records.machine("h200")
    assert old.machine.nics == ()
    nic = Nic("mlx5_0", "infiniband", "0000:1a:00.0", "pci0000:17/0000:1a:00.0", 0, "active", 400_000)
    kept = changed(old, machine=changed(old.machine, nics=(nic,)))
    (tmp_path / "new.json").write_text(record.written(kept))
    assert record.read(tmp_path / "new.json").machine.nics == (nic,)
