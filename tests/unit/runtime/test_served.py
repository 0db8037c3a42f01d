"""Whatever people ask is answered over the port alone: here the world behind it is a toy, without disk or process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from gpuyard.brain.foresee import Foresight
from gpuyard.model.errors import Conflict, Denied, Never, NotFound
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.service import Caller
from gpuyard.runtime.serving.served_yard import ServedYard
from tests.support.toy_port import ToyPort, ToyRecord
from tests.support.yards import fleet

ME, ADMIN, OTHER = Caller("me", 1000), Caller("root", 0, admin=True), Caller("you", 1001)
FLEET = """
nodes: [{name: n0, gpus: 4, model: H100}, {name: n1, gpus: 4, model: H100}]
queues: [{name: team, quota: 8}]
"""


def document(name: str, **keys: object) -> dict[str, object]:
    return {"name": name, "queue": "team", "run": {"command": ["true"]}, **keys}


@pytest.fixture
def port() -> ToyPort:
    return ToyPort(fleet(FLEET), shared=True)


@pytest.fixture
def yard(port: ToyPort) -> ServedYard[ToyRecord]:
    return ServedYard(port)


def test_a_job_is_forecast_accepted_listed_and_told(yard: ServedYard[ToyRecord]):
    assert [each["verdict"] for each in yard.preview(ME, [document("a", gpus=4)])] == ["starts"]
    assert yard.submit(ME, [document("a", gpus=4)])[0]["name"] == "a"
    told = yard.job(ME, "a")
    assert (told["phase"], told["held_gpus"], told["history"][0]["tasks"][0]["state"]) == ("running", 4, "running")
    assert [each["name"] for each in yard.jobs(ME)] == ["a"]
    assert yard.logs(ME, "a", 0, 0) == (b"toy\n", 4, True)
    assert yard.nodes(ME)[0]["jobs"] + yard.nodes(ME)[1]["jobs"] == ["a"]


def test_why_names_the_reason_and_hides_whose_jobs_are_in_the_way(yard: ServedYard[ToyRecord]):
    yard.submit(OTHER, [document("secret", tasks=2, gpus=4)])
    yard.submit(ME, [document("mine", gpus=4)])
    told = yard.why(ME, "mine")
    assert told["phase"] == "waiting"
    assert "secret" not in str(told)
    assert "you/secret" in str(yard.why(ADMIN, "me/mine")["in_the_way"])


def test_rights_are_asked_for_above_the_port(yard: ServedYard[ToyRecord]):
    yard.submit(OTHER, [document("secret", gpus=1)])
    with pytest.raises(NotFound):
        yard.job(ME, "secret")
    with pytest.raises(NotFound):
        yard.act(ME, "you/secret", "cancel")
    with pytest.raises(Denied):
        yard.drain(ME, {"node": "n0"})
    with pytest.raises(Denied):
        yard.set_queue(ME, {"name": "team", "quota": 1}, dry_run=True)
    assert yard.act(ADMIN, "you/secret", "cancel")["phase"] == "cancelled"


def test_queues_drains_and_reports_are_worked_out_from_the_moment(yard: ServedYard[ToyRecord], port: ToyPort):
    yard.submit(ME, [document("a", gpus=4)])
    (team,) = yard.queues()
    assert (team["used"], team["quota"]) == (4, 8)
    assert yard.set_queue(ADMIN, {"name": "team", "limit": 2}, dry_run=False)["applied"]
    assert port.queues[0].limit.gpu < port.queues[0].quota.gpu
    node = port.records["me/a"].life.places[0].node
    drained = yard.drain(ADMIN, {"node": node, "reason": "fan"})
    assert [each["job"] for each in drained["moves"]] == ["me/a"]
    assert port.records["me/a"].life.places[0].node != node
    assert yard.report(ME, "user", 0.0)[0]["gpu_seconds"] == 7.0


def test_what_cannot_be_is_refused_before_the_world_hears_of_it(yard: ServedYard[ToyRecord], port: ToyPort):
    with pytest.raises(Never):
        yard.submit(ME, [document("huge", gpus=16)])
    yard.submit(ME, [document("a", gpus=1)], key="once")
    assert yard.submit(ME, [document("a", gpus=1)], key="once")[0]["name"] == "a"
    with pytest.raises(Conflict):
        yard.submit(ME, [document("a", gpus=2)])
    assert list(port.records) == ["me/a"]


def test_a_submission_is_looked_ahead_for_once_and_nobody_waits_for_that(
    yard: ServedYard[ToyRecord], port: ToyPort, monkeypatch: pytest.MonkeyPatch
):
    """What others hold is looked at once, besides whether the job could run at all; all stands still for neither."""
    yard.submit(OTHER, [document("there", gpus=4)])
    still, ahead, real_still, real_look = [False], list[tuple[int, bool]](), port.jobs.still, Foresight.__init__

    @contextlib.contextmanager
    def watched() -> Iterator[None]:
        still[0] = True
        with real_still():
            yield
        still[0] = False

    def look(self: Foresight, snapshot: Snapshot, cycles: int | None = None) -> None:
        ahead.append((len(snapshot.jobs), still[0]))
        real_look(self, snapshot, cycles)

    monkeypatch.setattr(port.jobs, "still", watched)
    monkeypatch.setattr(Foresight, "__init__", look)
    yard.submit(ME, [document("a", gpus=2)])
    assert ahead == [(1, False), (2, False)]
    yard.submit(ME, [document("b", gpus=2)])
    assert ahead[2:] == [(3, False)], "that such a job could run is known by now"
