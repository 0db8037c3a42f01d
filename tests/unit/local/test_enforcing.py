"""What a job asks of cores and memory is known, kept to where the system can, and said to be only counted where not."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuyard.cli.keeping import which_yard
from gpuyard.model.errors import Never
from gpuyard.worlds.local.supervising import confine
from gpuyard.worlds.local.supervising.notes import Order
from tests.support.yards import ME, TestYard, sh


def test_a_machine_knows_its_cores_and_memory_also_where_its_gpus_are_virtual(monkeypatch: pytest.MonkeyPatch):
    """The attack: 4000Gi and 500 cores were accepted on a machine of 23 GiB and two."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("gpuyard.agent.discovery.memory_bytes", lambda: 23 << 30)
    (node,) = which_yard.one_virtual_node(0.0).snapshot.nodes
    assert (node.cpu, node.memory, len(node.gpus)) == (2000, 23 << 30, 8)


@pytest.mark.parametrize(("asked", "told"), [({"memory": "4000Gi"}, "memory"), ({"cpu": 500}, "500 CPUs")])
def test_more_than_any_node_has_is_refused(tmp_path: Path, asked: dict[str, object], told: str):
    yard = TestYard(tmp_path, "nodes: [{name: n0, gpus: 1, cpu: 2, memory: 23Gi}]")
    yard.start()
    with pytest.raises(Never, match=told):
        yard.put(sh("true", name="a", **asked))
    yard.stop()


def test_what_is_only_counted_is_said_to_be(tmp_path: Path):
    yard = TestYard(tmp_path, "nodes: [{name: n0, gpus: 1, cpu: 2, memory: 23Gi}]")
    yard.start()
    asked = sh("true", name="a", cpu=1, memory="1Gi")
    for enforced, told in (((), "its cores and its memory are counted"), (("cpu",), "its memory is counted")):
        yard._plane.launcher.enforces = frozenset(enforced)
        assert yard.preview(ME, [asked])[0]["note"].startswith(f"{told} and not enforced")
    yard._plane.launcher.enforces = frozenset(("cpu", "memory"))
    assert "note" not in yard.preview(ME, [asked])[0]
    assert "note" not in yard.preview(ME, [sh("true", name="a")])[0]
    yard.stop()


def test_a_control_group_keeps_a_task_to_what_it_asked_for(tmp_path: Path):
    order = Order([("cgroup", str(tmp_path)), ("memory", "1024"), ("cpu", "150000 100000")])
    group = Path(confine.CGroup(order).path)
    assert (group / "memory.max").read_text() == "1024"
    assert (group / "cpu.max").read_text() == "150000 100000"


def test_what_groups_are_kept_to_is_what_the_system_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert confine.enforced("") == confine.enforced(str(tmp_path)) == frozenset()
    asked: list[str] = []
    monkeypatch.setattr(confine, "_write", lambda _path, _name, value: asked.append(value))
    (tmp_path / "cgroup.subtree_control").write_text("memory pids\n")
    assert confine.enforced(str(tmp_path)) == {"memory"}
    assert asked == ["+cpu", "+memory"]
