"""What the driver says becomes a node; records of machines stand in for the driver."""

from __future__ import annotations

import pytest

from gpuyard.agent import discovery
from gpuyard.agent.nvml.facts import UNKNOWN, Link, MachineFacts, NotTold, changed
from tests.support import records

TWO = ((0, 0, 1, 1, 2, 2, 3, 3), (0, 0, 0, 0, 1, 1, 1, 1))
"""Pairs behind a switch, four to a NUMA node."""


@pytest.mark.parametrize(
    ("name", "islands"),
    [
        ("synthetic-h100x8", (0,) * 8),
        ("synthetic-a100x8-two-islands", (0, 0, 0, 0, 1, 1, 1, 1)),
        ("synthetic-l40sx8-pcie", tuple(range(8))),
    ],
)
def test_links_become_graded_islands(name: str, islands: tuple[int, ...]):
    (node,) = discovery.nodes(records.machine(name).machine)
    assert tuple(gpu.island for gpu in node.gpus) == islands
    assert (tuple(gpu.switch for gpu in node.gpus), tuple(gpu.numa for gpu in node.gpus)) == TWO


def test_a_node_has_model_architecture_memory_and_the_uuids_of_its_gpus():
    record = records.machine("synthetic-h100x8")
    (node,) = discovery.nodes(record.machine)
    assert (node.model, node.architecture, node.gpu_memory) == ("H100-80GB-HBM3", "hopper", 80 << 30)
    assert [gpu.uuid for gpu in node.gpus] == [gpu.uuid for gpu in record.machine.gpus]


def test_a_real_h200_is_found_as_it_is():
    record = records.machine("h200")
    (node,) = discovery.nodes(record.machine)
    assert not record.synthetic
    assert (node.model, node.architecture, node.gpu_memory) == ("H200", "hopper", 143_771 << 20)
    assert [gpu.uuid for gpu in node.gpus] == ["GPU-d62dd4c9-959a-687b-eb99-51c5d65131d7"]


def test_every_model_of_a_machine_is_a_node_of_its_own():
    found = discovery.nodes(records.machine("synthetic-mixed").machine, "m")
    assert [(node.name, node.architecture, len(node.gpus)) for node in found] == [
        ("m", "ampere", 2), ("m-H100-80GB-HBM3", "hopper", 2), ("m-V100-SXM2-32GB", "volta", 4),
    ]  # fmt: skip


def test_a_cut_gpu_tells_its_slices_and_their_own_uuids():
    record = records.machine("synthetic-h100x2-mig")
    (node,) = discovery.nodes(record.machine)
    assert [gpu.slices for gpu in node.gpus] == [("3g.40gb", "3g.40gb"), ("1g.10gb",) * 7]
    assert [len(set(gpu.slice_uuids)) for gpu in node.gpus] == [2, 7]


def test_a_link_that_is_down_joins_nobody():
    machine = records.machine("synthetic-a100x8-two-islands").machine
    dead = tuple(Link(link.port, False, link.remote, link.bus) for link in machine.gpus[0].links)
    back = [
        changed(gpu, links=tuple(link for link in gpu.links if link.bus != machine.gpus[0].bus))
        for gpu in machine.gpus[1:]
    ]
    (node,) = discovery.nodes(changed(machine, gpus=(changed(machine.gpus[0], links=dead), *back)))
    assert [gpu.island for gpu in node.gpus] == [0, 1, 1, 1, 2, 2, 2, 2]


def test_what_lies_between_gpus_is_not_guessed_where_nobody_tells():
    machine = records.machine("synthetic-l40sx8-pcie").machine
    silent = NotTold(UNKNOWN)
    pairs = tuple(changed(pair, ancestor=silent) for pair in machine.pairs)
    gpus = tuple(changed(gpu, numa=-1) for gpu in machine.gpus)
    (node,) = discovery.nodes(changed(machine, pairs=pairs, gpus=gpus))
    assert {(gpu.switch, gpu.numa) for gpu in node.gpus} == {(0, 0)}


def test_gpus_of_one_fabric_across_nodes_carry_its_clique():
    machine = records.machine("synthetic-h100x8").machine
    gpus = tuple(changed(gpu, fabric_cluster="ab" * 16, fabric_clique=7) for gpu in machine.gpus)
    (node,) = discovery.nodes(changed(machine, gpus=gpus))
    assert dict(node.labels) == {"nvidia.com/gpu.clique": f"{'ab' * 16}.7"}
    (alone,) = discovery.nodes(machine)
    assert alone.labels == ()


def test_two_gpus_with_one_uuid_are_none_that_could_be_given_to_anybody():
    machine = records.machine("synthetic-h100x8").machine
    twin = changed(machine.gpus[1], uuid=machine.gpus[0].uuid)
    (node,) = discovery.nodes(changed(machine, gpus=(machine.gpus[0], twin, *machine.gpus[2:])))
    assert len(node.gpus) == 6


def test_no_gpus_are_no_nodes():
    assert discovery.nodes(MachineFacts("", "", "")) == ()
