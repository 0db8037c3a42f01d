"""What goes wrong in the scheduler of a cluster is told, kept for a report, and over when it is over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from gpuyard.files.reports import KEPT, ReportFolder
from gpuyard.kube.objects import PodObject
from gpuyard.runtime.clock import SystemClock, SystemDice
from gpuyard.runtime.clustered.scheduler import ClusterScheduler, WorldSettings
from gpuyard.worlds.kubernetes import pods
from tests.support import yards
from tests.support.kube.cluster import until
from tests.support.kube.fake_kubelet import pod
from tests.support.kube.fake_server import FakeServer, bookmark, status, stream

PATIENCE_S = 60


async def empty(request: web.Request) -> web.StreamResponse:
    """A cluster without anything in it."""
    if request.query.get("sendInitialEvents") == "true":
        return await stream(bookmark(9, ends=True), then=PATIENCE_S)(request)
    return web.json_response({"groups": []}) if request.path == "/apis" else await status(404)(request)


def lived(folder: Path, acts: Callable[[ClusterScheduler], None]) -> None:
    """A scheduler over that cluster, which is started; `acts` in a thread of its own."""

    def live(server: FakeServer) -> None:
        settings = WorldSettings(server.access, yards.fleet("policy: {}\n"), identity="us", elects=False)
        scheduler = ClusterScheduler(settings, SystemClock(), SystemDice(), ReportFolder(folder))
        scheduler.start()
        try:
            acts(scheduler)
        finally:
            scheduler.close()

    async def play() -> None:
        async with asyncio.timeout(PATIENCE_S), FakeServer(empty) as server:
            await asyncio.to_thread(live, server)

    asyncio.run(play())


def test_turns_that_fail_are_told_and_kept_for_a_report_until_they_do_not(tmp_path: Path):
    def acts(scheduler: ClusterScheduler) -> None:
        until(lambda: scheduler.driver.last_turn, PATIENCE_S, "it turns")
        assert (scheduler.readiness().fails, scheduler.trouble()) == (False, "")
        observe = scheduler.world.observe

        def stumbles() -> Any:
            raise ZeroDivisionError("somewhere")

        scheduler.world.observe = stumbles  # type: ignore[method-assign]
        scheduler.world.cache.news()
        until(lambda: scheduler.readiness().fails, PATIENCE_S, "a turn has failed")
        assert scheduler.readiness().turns
        told = scheduler.trouble()
        assert "observe: ZeroDivisionError: somewhere" in told
        (kept,) = tmp_path.iterdir()
        assert str(kept) in told
        report = json.loads(kept.read_text())
        assert "stumbles" in report["traceback"]
        assert report["snapshot"]["kind"] == "Snapshot"
        scheduler.world.observe = observe  # type: ignore[method-assign]
        until(lambda: not scheduler.readiness().fails, PATIENCE_S, "turns go on")
        assert scheduler.trouble() == ""

    lived(tmp_path, acts)


def test_a_pod_that_we_stumble_over_is_named_and_kept_for_a_report_once(tmp_path: Path, monkeypatch: Any):
    def stumbles(*_: Any) -> Any:
        raise KeyError("odd")

    def acts(scheduler: ClusterScheduler) -> None:
        monkeypatch.setattr(pods, "group_of", stumbles)
        for name in ("one", "two"):
            document = pod(name, 1)
            document["metadata"] |= {"namespace": "team", "uid": name}
            seen = msgspec.convert(document, PodObject)
            scheduler.world._loop.call_soon_threadsafe(scheduler.world.cache.pods.put, seen)
        names = "team/one, team/two are set apart"
        until(lambda: names in scheduler.trouble(), PATIENCE_S, "both are named")
        assert not scheduler.readiness().fails
        (kept,) = tmp_path.iterdir()
        assert json.loads(kept.read_text())["error"] == "KeyError: 'odd'"

    lived(tmp_path, acts)


def test_a_part_of_the_world_that_ends_by_a_mistake_begins_again_and_it_is_told(tmp_path: Path):
    def acts(scheduler: ClusterScheduler) -> None:
        expire, ended = scheduler.world.taker.expire, list[str]()

        def stumbles() -> None:
            if not ended:
                ended.append("once")
                raise KeyError("expire")
            ended.append("again")
            expire()

        scheduler.world.taker.expire = stumbles  # type: ignore[method-assign]
        until(lambda: "KeyError: 'expire'" in scheduler.trouble(), PATIENCE_S, "it is told")
        until(lambda: "again" in ended, PATIENCE_S, "it goes on")
        (kept,) = tmp_path.iterdir()
        assert json.loads(kept.read_text())["about"] == "the scheduler itself"

    lived(tmp_path, acts)


def test_a_folder_keeps_the_newest_reports_and_only_its_owner_reads_them(tmp_path: Path):
    folder = ReportFolder(tmp_path / "reports")
    kept = [folder.report(f"turn-{number}", {"number": number}) for number in range(KEPT + 2)]
    assert sorted(map(str, (tmp_path / "reports").iterdir())) == kept[2:]
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "reports").iterdir()} == {0o600}
    assert (tmp_path / "reports").stat().st_mode & 0o777 == 0o700
