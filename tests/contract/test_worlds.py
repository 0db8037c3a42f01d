"""One suite for every world: gang, quota, preemption, time limit, node loss, drain. Rules by their number."""

from __future__ import annotations

from collections.abc import Callable

from tests.contract.conftest import Place

TWO_NODES = "nodes: [{name: n0, gpus: 4, model: H100}, {name: n1, gpus: 4, model: H100}]"
ONE_NODE = "nodes: [{name: n0, gpus: 4, model: H100}]"

Make = Callable[[str], Place]


def nodes_of(document: dict) -> list[str]:
    return sorted(place["node"] for place in document.get("placements", ()))


def test_a_gang_starts_whole(world: Make):
    place = world(TWO_NODES)
    place.submit("gang", 0.4, tasks=8, gpus=1)
    assert len(place.until("gang", "running")["placements"]) == 8
    assert place.until("gang")["phase"] == "succeeded"


def test_a_gang_that_cannot_start_whole_holds_nothing(world: Make):
    place = world(TWO_NODES)
    place.submit("first", 0.5, tasks=2, gpus=1)
    place.until("first", "running")
    place.submit("gang", 0.1, tasks=8, gpus=1)
    document = place.until("gang", "waiting")
    assert not document.get("placements")
    assert place.until("first")["phase"] == "succeeded"
    assert place.until("gang")["phase"] == "succeeded"


def test_a_queue_never_passes_its_limit(world: Make):
    place = world(f"{ONE_NODE}\nqueues: [{{name: a, quota: 2, limit: 2}}]")
    place.submit("one", 0.6, queue="a", gpus=2)
    place.until("one", "running")
    place.submit("two", 0.1, queue="a", gpus=1)
    assert place.until("two", "waiting")["phase"] == "waiting"
    assert "limit" in place.why("two")
    assert place.until("two")["phase"] == "succeeded"


def test_a_higher_priority_takes_and_the_victim_runs_again_later(world: Make):
    place = world(ONE_NODE)
    place.submit("low", 1.0, gpus=4, priority=10)
    place.until("low", "running")
    place.submit("high", 0.3, gpus=4, priority=90)
    place.until("high", "running")
    assert place.until("low", "waiting", "starting", "stopping")["phase"] == "waiting"
    assert place.until("high")["phase"] == "succeeded"
    document = place.until("low")
    assert (document["phase"], document["evictions"]) == ("succeeded", 1)


def test_a_time_limit_ends_a_job(world: Make):
    place = world(ONE_NODE)
    place.submit("long", 30.0, gpus=1, time_limit="1s")
    document = place.until("long")
    assert document["phase"] == "failed"
    assert "time limit" in document["message"]


def test_a_lost_node_sends_its_gang_back_to_wait_and_it_starts_elsewhere(world: Make):
    place = world(TWO_NODES)
    place.submit("gang", 0.8, tasks=2, gpus=2)
    before = nodes_of(place.until("gang", "running"))
    place.lose_node(before[0])
    assert before[0] not in nodes_of(place.until("gang", "running"))
    document = place.until("gang")
    assert document["phase"] == "succeeded"
    assert document["attempts"] == 2


def test_an_elastic_gang_shrinks_when_a_node_is_lost(world: Make):
    place = world(TWO_NODES)
    place.submit("elastic", 6.0, tasks=8, min=2, gpus=1)  # none is done before all have begun, on a slow machine too
    place.until("elastic", "running")
    place.lose_node("n1")
    document = place.until("elastic")
    assert (document["phase"], document["attempts"]) == ("succeeded", 1)


def test_nothing_new_goes_on_a_cordoned_node_and_what_runs_there_goes_on(world: Make):
    place = world(TWO_NODES)
    place.submit("old", 0.5, gpus=4)
    where = nodes_of(place.until("old", "running"))[0]
    place.cordon(where)
    place.submit("new", 0.1, gpus=2)
    assert nodes_of(place.until("new", "running")) != [where]
    assert place.until("old")["phase"] == "succeeded"


def test_a_drained_node_is_emptied_and_its_gang_runs_on_elsewhere(world: Make):
    place = world(TWO_NODES)
    place.submit("gang", 1.0, tasks=2, gpus=1)
    before = nodes_of(place.until("gang", "running"))[0]
    place.drain(before)
    while before in nodes_of(place.until("gang", "running")):
        pass  # time stands meanwhile
    document = place.until("gang")
    assert (document["phase"], document["attempts"]) == ("succeeded", 2)


def test_what_finds_no_other_place_leaves_a_drained_node_all_the_same(world: Make):
    place = world(TWO_NODES)
    place.submit("here", 1.0, gpus=4)
    node = nodes_of(place.until("here", "running"))[0]
    place.submit("there", 1.0, gpus=4)
    place.until("there", "running")
    place.drain(node)
    assert not nodes_of(place.until("here", "waiting"))
    assert place.until("there")["phase"] == "succeeded"
    assert nodes_of(place.until("here", "running")) != [node]
    assert place.until("here")["evictions"] == 1


def test_who_may_not_be_disturbed_stays_on_a_drained_node_until_it_ends(world: Make):
    place = world(TWO_NODES)
    place.submit("notebook", 0.6, gpus=1, **{"class": "interactive"})
    place.drain(nodes_of(place.until("notebook", "running"))[0])
    document = place.until("notebook")
    assert (document["phase"], document["attempts"]) == ("succeeded", 1)
