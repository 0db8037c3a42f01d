"""A node or GPU is emptied gently: who moves, who stops, who stays; told before, kept over a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuyard.model.errors import Conflict, Denied, NotFound
from tests.support.yards import ADMIN, ME, TestYard, sh

pytestmark = pytest.mark.slow

TWO = "nodes: [{name: n0, gpus: 4, model: H100}, {name: n1, gpus: 4, model: H100}]\n"
LONG = "trap 'echo saved; exit 0' USR1; echo up; sleep 60 & wait"


def drain(yard: TestYard, node: str, gpu: int | None = None, **more: Any) -> dict[str, Any]:
    return yard.drain(ADMIN, {"node": node, "gpu": gpu, **more})


def node(yard: TestYard, name: str) -> dict[str, Any]:
    return next(each for each in yard.nodes(ADMIN) if each["name"] == name)


def where(yard: TestYard, name: str) -> str:
    return str(yard.until(name, "running")["placements"][0]["node"])


def until_phase(yard: TestYard, name: str, phase: str) -> dict[str, Any]:
    while (found := node(yard, name))["phase"] != phase:
        yard.wait_events(yard.store.last_event, 0.1)
    return found


@pytest.fixture
def two(tmp_path: Path):
    yard = TestYard(tmp_path, TWO)
    yard.start()
    yield yard
    yard.stop()


def test_a_job_moves_after_its_checkpoint_signal_and_the_node_is_drained(two: TestYard):
    two.put(sh(LONG, name="a", gpus=2, checkpoint={"signal": "SIGUSR1", "grace": "20s"}))
    first = where(two, "a")
    two.until_said("a", "up")
    answer = drain(two, first, reason="fan is loud")
    assert [each["job"] for each in answer["moves"]] == ["a"]
    found = until_phase(two, first, "drained")
    assert found["drain"]["reason"] == "fan is loud"
    assert where(two, "a") != first
    assert "saved" in two.output("a")
    assert two.job(ADMIN, "a")["evictions"] == 1


def test_where_there_is_no_other_place_it_stops_and_waits_again(two: TestYard):
    two.put(sh(LONG, name="a", gpus=4), sh(LONG, name="b", gpus=4))
    first = where(two, "a")
    where(two, "b")
    assert [each["job"] for each in drain(two, first)["stops"]] == ["a"]
    until_phase(two, first, "drained")
    assert two.until("a", "waiting")["history"][-1]["why"] == "drained"
    assert where(two, "b") != first


def test_a_dry_run_changes_nothing(two: TestYard):
    two.put(sh(LONG, name="a", gpus=2))
    first = where(two, "a")
    answer = two.drain(ADMIN, {"node": first, "gpu": None}, dry_run=True)
    assert (answer["applied"], answer["message"]) == (False, f"{first} (4 GPUs): 1 moves")
    assert node(two, first)["phase"] == "ready"
    assert two.job(ADMIN, "a")["attempts"] == 1


def test_a_notebook_stays_until_it_ends_and_goes_at_once_if_forced(two: TestYard):
    two.put(sh("sleep 60", name="notebook", gpus=1, **{"class": "interactive"}))
    first = where(two, "notebook")
    assert drain(two, first)["stays"] == [{"job": "notebook", "message": "is not preemptible; it stays until it ends"}]
    assert node(two, first)["phase"] == "draining"
    assert [each["job"] for each in drain(two, first, force=True)["moves"]] == ["notebook"]
    until_phase(two, first, "drained")
    assert where(two, "notebook") != first


def test_no_more_go_at_once_than_the_budget_allows(tmp_path: Path):
    yard = TestYard(tmp_path, f"{TWO}budgets: [{{name: api, jobs: [api-0, api-1], min_available: 1}}]")
    yard.start()
    drain(yard, "n1")
    for name in ("api-0", "api-1"):
        yard.put(sh("sleep 60", name=name, gpus=1, **{"class": "inference"}))
        assert where(yard, name) == "n0"
    yard.undrain(ADMIN, {"node": "n1", "gpu": None})
    answer = drain(yard, "n0")
    assert [each["job"] for each in answer["moves"]] == ["api-0"]
    assert answer["stays"] == [{"job": "api-1", "message": "its disruption budget api allows no more now"}]
    until_phase(yard, "n0", "drained")
    assert {where(yard, name) for name in ("api-0", "api-1")} == {"n1"}
    yard.stop()


def test_one_gpu_is_emptied_and_the_others_go_on(two: TestYard):
    two.put(sh(LONG, name="a", gpus=1), sh(LONG, name="b", gpus=1))
    at = {name: two.until(name, "running")["placements"][0] for name in ("a", "b")}
    gone, gpu = at["a"]["node"], at["a"]["gpus"][0]
    drain(two, gone, gpu)
    while two.until("a", "running")["placements"] == [at["a"]]:
        two.wait_events(two.store.last_event, 0.1)
    assert two.job(ADMIN, "b")["attempts"] == 1
    device = node(two, gone)["devices"][gpu]
    assert (device["health"], device["phase"], device["jobs"]) == ("healthy", "drained", [])
    assert node(two, gone)["phase"] == "ready"


def test_an_elastic_gang_gives_back_its_extras_without_a_restart(two: TestYard):
    two.put(sh("sleep 60", name="e", tasks=8, min=2, gpus=1))
    two.until("e", "running")
    drain(two, "n0")
    until_phase(two, "n0", "drained")
    document = two.job(ADMIN, "e")
    assert document["attempts"] == 1
    assert {place["node"] for place in document["placements"]} == {"n1"}


def test_a_drain_outlives_the_control_plane_and_can_be_undone(tmp_path: Path):
    yard = TestYard(tmp_path, TWO)
    yard.start()
    drain(yard, "n0", reason="why not")
    drain(yard, "n1", 3)
    yard.close()
    yard = TestYard(tmp_path, TWO)
    yard.start()
    assert node(yard, "n0")["phase"] == "drained"
    assert node(yard, "n1")["devices"][3]["phase"] == "drained"
    yard.undrain(ADMIN, {"node": "n0", "gpu": None})
    yard.undrain(ADMIN, {"node": "n1", "gpu": 3})
    assert [each["phase"] for each in yard.nodes(ADMIN)] == ["ready", "ready"]
    assert node(yard, "n1")["free"] == 4
    with pytest.raises(Conflict, match="n0 is open already"):
        yard.undrain(ADMIN, {"node": "n0", "gpu": None})
    yard.stop()


def test_only_administrators_drain_and_only_what_is_there(two: TestYard):
    with pytest.raises(Denied):
        two.drain(ME, {"node": "n0", "gpu": None})
    with pytest.raises(NotFound, match="no node n9"):
        drain(two, "n9")
    with pytest.raises(NotFound, match="n0 has no GPU 7; it has 4"):
        drain(two, "n0", 7)
