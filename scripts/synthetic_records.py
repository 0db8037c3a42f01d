"""Writes tests/records/synthetic-*.json: machines that nobody here has, made up from data sheets and NVML's own words.

Run it by hand when a record's form changes: `python -m scripts.synthetic_records`. A record says that it is synthetic.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from gpuyard.agent.nvml.facts import (
    NOT_SUPPORTED,
    DeviceFacts,
    Link,
    MachineFacts,
    MigSlice,
    NotTold,
    Pair,
    Readings,
    Sample,
)
from gpuyard.agent.nvml.record import NvmlRecord, written

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "records"
DAY = "2026-11-16"
ABSENT = NotTold(NOT_SUPPORTED)
GIB = 1 << 30


@dataclass(frozen=True)
class Sku:
    """A kind of card."""

    name: str
    architecture: str
    capability: str
    memory: int
    ports: int
    watts: int
    sm_mhz: int
    gpm: bool = False
    remaps: bool = True


H100 = Sku("NVIDIA H100 80GB HBM3", "hopper", "9.0", 80 * GIB, 18, 700, 1980, gpm=True)
A100 = Sku("NVIDIA A100-SXM4-80GB", "ampere", "8.0", 80 * GIB, 12, 400, 1410)
V100 = Sku("Tesla V100-SXM2-32GB", "volta", "7.0", 32 * GIB, 6, 300, 1530, remaps=False)
L40S = Sku("NVIDIA L40S", "ada", "8.9", 48 * GIB, 0, 350, 2520)

Links = Callable[[int, int], tuple[Link, ...]]


def bus(index: int) -> str:
    """Where a card sits."""
    return f"00000000:{0x1A + 8 * index:02x}:00.0"


def to_switch(sku: Sku) -> Links:
    """Every port leads to an NVSwitch."""
    return lambda index, count: tuple(
        Link(port, True, "switch", f"00000000:{0xC0 + port % 4:02x}:00.0", 4) for port in range(sku.ports)
    )


def in_islands(sku: Sku, size: int) -> Links:
    """Ports shared out among the others of an island of that size."""

    def links(index: int, count: int) -> tuple[Link, ...]:
        first = index // size * size
        peers = [other for other in range(first, min(first + size, count)) if other != index]
        return tuple(Link(port, True, "gpu", bus(peers[port % len(peers)]), 3) for port in range(sku.ports))

    return links


def unlinked(index: int, count: int) -> tuple[Link, ...]:
    """No NVLink at all."""
    return ()


def gpu(sku: Sku, index: int, links: tuple[Link, ...], slices: tuple[str, ...] = ()) -> DeviceFacts:
    """One card, cool and idle."""
    fabric = sku.gpm and bool(links) and links[0].remote == "switch"
    name = str(uuid.uuid5(uuid.NAMESPACE_URL, f"gpuyard.dev/synthetic/{sku.name}/{index}"))
    return DeviceFacts(
        index=index, uuid=f"GPU-{name}", name=sku.name, bus=bus(index), memory=sku.memory, minor=index,
        architecture=sku.architecture, compute_capability=sku.capability, pci_device=ABSENT, numa=index // 4,
        vbios="00.00.00.00.00", ecc=True, ecc_pending=True,
        mig=bool(slices) if sku.architecture != "volta" else ABSENT,
        mig_pending=bool(slices) if sku.architecture != "volta" else ABSENT,
        persistence=True, compute_mode=0,
        power_limit_mw=sku.watts * 1000, power_default_mw=sku.watts * 1000, power_min_mw=100_000,
        power_max_mw=sku.watts * 1000, shutdown_c=95, slowdown_c=89, gpu_max_c=87, memory_max_c=95,
        shutdown_margin_c=-8 if sku.gpm else ABSENT, slowdown_margin_c=-2 if sku.gpm else ABSENT,
        pcie_gen_max=5 if sku.gpm else 4, pcie_width_max=16, sm_clock_max_mhz=sku.sm_mhz, memory_clock_max_mhz=2619,
        links=links,
        slices=tuple(
            MigSlice(profile, f"MIG-{uuid.uuid5(uuid.NAMESPACE_URL, f'{name}/{place}')}", place + 1, 0, 10 * GIB)
            for place, profile in enumerate(slices)
        ),
        fabric_state="completed" if fabric else ABSENT, fabric_status=0 if fabric else ABSENT,
        fabric_cluster="" if fabric else ABSENT, fabric_clique=0 if fabric else ABSENT,
        fabric_health=0 if fabric else ABSENT,
    )  # fmt: skip


def readings(sku: Sku, facts: DeviceFacts) -> Readings:
    """What an idle card tells."""
    linked = 0 if facts.links else ABSENT
    ratio = 0.0 if sku.gpm else ABSENT
    remap, retired = (0, ABSENT) if sku.remaps else (ABSENT, 0)
    return Readings(
        uuid=facts.uuid, index=facts.index, utilization=0, memory_utilization=0, encoder=0, decoder=0,
        memory_used=600 << 20, memory_free=sku.memory - (600 << 20), temperature_c=31 + facts.index,
        memory_temperature_c=40, margin_c=56 if sku.gpm else ABSENT, power_mw=70_000, energy_mj=1_000_000,
        sm_clock_mhz=345, memory_clock_mhz=2619, video_clock_mhz=765, performance_state=0, clock_reasons=1,
        power_violation_ns=0, thermal_violation_ns=0, ecc_corrected=0, ecc_uncorrected=0, ecc_corrected_ever=0,
        ecc_uncorrected_ever=0, retired_corrected=retired, retired_uncorrected=retired, retired_pending=retired,
        remapped_corrected=remap, remapped_uncorrected=remap, remap_pending=remap, remap_failure=remap,
        pcie_replay=0, pcie_gen=5 if sku.gpm else 4, pcie_width=16, pcie_sent_bytes=0, pcie_received_bytes=0,
        nvlink_flit_errors=linked, nvlink_data_errors=linked, nvlink_replays=linked, nvlink_recoveries=linked,
        nvlink_sent_kib=linked, nvlink_received_kib=linked, links_up=len(facts.links) if facts.links else ABSENT,
        recovery_action=0 if sku.gpm else ABSENT, tensor_active=ratio, sm_active=ratio, sm_occupancy=ratio,
        graphics_active=ratio, dram_active=ratio, processes=(), xids=(),
    )  # fmt: skip


def machine(about: str, cards: Sequence[tuple[Sku, Links, tuple[str, ...]]]) -> NvmlRecord:
    """Cards in pairs behind PCIe switches, four to a NUMA node."""
    count = len(cards)
    gpus = tuple(gpu(sku, index, links(index, count), slices) for index, (sku, links, slices) in enumerate(cards))
    pairs = tuple(
        Pair(a.uuid, b.uuid, _between(a.index, b.index), 0, sum(link.bus == b.bus for link in a.links))
        for a, b in combinations(gpus, 2)
    )
    sample = Sample(tuple(readings(sku, facts) for (sku, _, _), facts in zip(cards, gpus, strict=True)))
    facts = MachineFacts("580.95.05", "13.0", "13.580.95.05", gpus, pairs)
    return NvmlRecord(made=DAY, synthetic=True, about=about, machine=facts, sample=sample)


def _between(one: int, other: int) -> int:
    return 10 if one // 2 == other // 2 else 40 if one // 4 == other // 4 else 50


def records() -> dict[str, NvmlRecord]:
    """Each by the name of its file."""
    h100, a100, v100 = to_switch(H100), in_islands(A100, 4), in_islands(V100, 4)
    cut = ("3g.40gb", "3g.40gb"), ("1g.10gb",) * 7
    return {
        "h100x8": machine("8 H100 behind NVSwitches: one island", [(H100, h100, ())] * 8),
        "h100x16": machine("16 H100 behind NVSwitches, for measuring", [(H100, h100, ())] * 16),
        "a100x8-two-islands": machine("8 A100 in two islands of four", [(A100, a100, ())] * 8),
        "l40sx8-pcie": machine("8 L40S without NVLink", [(L40S, unlinked, ())] * 8),
        "h100x2-mig": machine("2 H100 cut into slices", [(H100, h100, each) for each in cut]),
        "mixed": machine(
            "2 A100, 2 H100, 4 V100 in one machine",
            [(A100, in_islands(A100, 2), ())] * 2 + [(H100, in_islands(H100, 2), ())] * 2 + [(V100, v100, ())] * 4,
        ),
    }


def main() -> None:
    """Write them all."""
    FOLDER.mkdir(exist_ok=True)
    for name, record in records().items():
        (FOLDER / f"synthetic-{name}.json").write_text(written(record), encoding="utf-8")


if __name__ == "__main__":
    main()
