"""Alerts of a yard that runs: told in events, to whoever asks, and known after a restart."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuyard.runtime.alerting.channels import NotifyWish
from gpuyard.runtime.service import Caller
from tests.support.yards import ADMIN, ME, TestYard, sh

pytestmark = pytest.mark.slow

FLEET = """
policy: {classes: {training: {alert_after: 200ms}}}
nodes: [{name: n0, gpus: 2, model: H100-SXM5-80GB}]
"""


def until(found: Callable[[], Any], what: str, seconds: float = 300.0) -> Any:
    end = time.monotonic() + seconds
    while not (answer := found()):
        assert time.monotonic() < end, what
        time.sleep(0.02)
    return answer


def kinds(yard: TestYard) -> list[str]:
    return [event["kind"] for event in yard.events(ADMIN, 0, 1000) if event["kind"].startswith("alert")]


def test_a_long_wait_is_told_once_also_over_a_restart_and_again_when_it_is_over(tmp_path: Path):
    yard = TestYard(tmp_path, FLEET)
    yard.start()
    try:
        yard.put(sh("sleep 60", name="first", gpus=2), sh("true", name="late", gpus=2))
        (alert,) = until(lambda: yard.alerts(ADMIN), "no alert")
        assert (alert["kind"], alert["jobs"], alert["count"]) == ("wait", ["late"], 1)
        assert yard.status()["alerts"] == {"info": 0, "warning": 1, "critical": 0}
        assert yard.snapshot(ADMIN)["memory"]["alerts"]["alerts"]
        yard.close()
        yard = TestYard(tmp_path, FLEET)
        yard.start()
        until(lambda: yard.status()["last_cycle"], "it does not turn")
        assert [each["key"] for each in yard.alerts(ADMIN)] == [alert["key"]]
        assert kinds(yard) == ["alert"]
        yard.act(ME, "first", "cancel")
        yard.until("late", "succeeded")
        until(lambda: not yard.alerts(ADMIN), "it never ends")
        assert kinds(yard) == ["alert", "alert-over"]
    finally:
        yard.stop()


def test_what_the_yard_raises_reaches_the_operator_s_command_once_and_once_more_when_it_is_over(tmp_path: Path):
    script = tmp_path / "tell"
    script.write_text(f"#!/bin/sh\ncat >> {tmp_path}/got; echo >> {tmp_path}/got\n")
    script.chmod(0o755)
    yard = TestYard(tmp_path / "state", FLEET, notify=NotifyWish(command=str(script)))
    yard.start()
    try:
        yard.put(sh("sleep 60", name="first", gpus=2), sh("true", name="late", gpus=2))
        until(lambda: (tmp_path / "got").exists() and yard.status()["notices"] == "ok", "nobody was told")
        yard.act(ME, "first", "cancel")
        yard.until("late", "succeeded")
        until(lambda: len((tmp_path / "got").read_text().splitlines()) == 2, "the end was not told")
        begun, over = map(json.loads, (tmp_path / "got").read_text().splitlines())
        assert begun[0]["labels"] == over[0]["labels"]
        assert (len(begun), len(over)) == (1, 1)
        assert over[0]["endsAt"] < begun[0]["endsAt"]
    finally:
        yard.stop()


def test_a_job_that_was_held_waits_from_its_release_on(tmp_path: Path):
    yard = TestYard(tmp_path, FLEET)
    yard.start()
    try:
        yard.put(sh("sleep 60", name="first", gpus=2))
        yard.until("first", "running")
        yard.put(sh("true", name="late", gpus=2, held=True))
        time.sleep(0.3)
        assert yard.alerts(ADMIN) == []
        begin = time.time()
        yard.act(ME, "late", "release")
        assert yard.world.snapshot().jobs[1].waiting_since is not None
        assert (yard.world.snapshot().jobs[1].waiting_since or 0.0) >= begin - 0.01
        until(lambda: yard.alerts(ADMIN), "no alert")
    finally:
        yard.stop()


def test_where_many_share_a_yard_only_operators_are_told_whose_jobs_wait(tmp_path: Path):
    yard = TestYard(tmp_path, FLEET, shared=False)
    yard.start()
    try:
        yard.put(sh("sleep 60", name="first", gpus=2), sh("true", name="late", gpus=2))
        until(lambda: yard.alerts(ADMIN), "no alert")
        object.__setattr__(yard.settings, "shared", True)  # who asks matters, not how tasks run
        (told,) = yard.alerts(Caller("somebody", 4711))
        assert "late" not in str(told)
        assert told["sentence"] == "wait: 1 concerned (queue default, class training, reason NotEnoughGpus)"
        assert "late" in yard.alerts(Caller("root", 0, admin=True))[0]["sentence"]
    finally:
        object.__setattr__(yard.settings, "shared", False)
        yard.stop()
