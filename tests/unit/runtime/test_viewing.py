"""What somebody who is not the yard's owner sees of others."""

from __future__ import annotations

from gpuyard.model.job import Job, TaskGroup, one_group
from gpuyard.model.ownership import Owner
from gpuyard.model.resources import Request
from gpuyard.model.snapshot import Reservation, Snapshot
from gpuyard.runtime.service import Caller
from gpuyard.runtime.serving import masking
from gpuyard.runtime.serving.port import PastEvent
from gpuyard.runtime.serving.viewing import Viewer
from gpuyard.worlds.local.state.records import Entry, Template

ME, OPERATOR = Viewer(Caller("me", 1000), True), Viewer(Caller("root", 0, admin=True), True)


def entry(number: int, name: str, owner: Owner) -> Entry:
    job = Job(name, one_group(TaskGroup(request=Request(gpus=1))), user=owner.user)
    return Entry(number, name, Template(number, name, "{}", job, owner, 0.0))


MINE, THEIRS = entry(1, "mine", Owner("me", 1000)), entry(2, "secret", Owner("you", 1001))


def test_a_moment_shows_others_jobs_as_shapes_alone():
    whole = Snapshot(
        now=0.0,
        jobs=(MINE.description(), THEIRS.description()),
        reservations=(Reservation("you/secret", ()),),
        memory={"aged": {"you/secret": 1, "me/mine": 2}},
    )
    seen = ME.moment(whole, [MINE, THEIRS])
    assert [(job.name, job.user) for job in seen.jobs] == [("mine", "me"), ("other-2", "")]
    assert seen.reservations[0].job == "other-2"
    assert seen.memory == {"aged": {"other-2": 1, "mine": 2}}
    assert OPERATOR.moment(whole, [MINE, THEIRS]) is whole


def test_jobs_go_by_the_names_that_their_viewer_knows():
    assert [ME.called(each) for each in (MINE, THEIRS)] == ["mine", "other"]
    assert [OPERATOR.called(each) for each in (MINE, THEIRS)] == ["me/mine", "you/secret"]


def test_events_are_their_owner_s_and_the_operators():
    happened = PastEvent(7, 1.0, "ended", "you/secret", "1001:you", {"message": "x"})
    assert ME.event(happened) == {"id": 7, "at": 1.0, "kind": "ended"}
    assert OPERATOR.event(happened)["job"] == "you/secret"
    assert ME.event(PastEvent(8, 1.0, "ended", "me/mine", "1000:me", {}))["job"] == "mine"


def test_neither_a_name_nor_a_number_alone_makes_an_owner():
    assert not ME.owns(Owner("me", 1001))
    assert not ME.owns(Owner("you", 1000))
    assert ME.owns(Owner("me", 1000))


def test_what_is_told_of_alerts_in_words_is_not_in_a_moment_for_others():
    kept = {"alerts": {"alerts": {"wait/q/training/Fragmented": {"since": 1.0, "sentence": "theirs waits"}}}}
    moment = Snapshot(memory={**kept, "evictions": {"theirs": [1.0]}})
    seen = masking.renamed(moment, {}, {"theirs": "other-1", "since": "other-2", "alerts": "other-3"})
    assert seen.memory == {"evictions": {"other-1": [1.0]}}
