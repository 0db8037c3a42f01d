"""Three minutes of storm over two yards, one with control groups and one without; and the verdict, which is drawn from
what tasks wrote, can fail. `make chaos` blows for longer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuyard.worlds.local.supervising.confine import own_cgroup
from tests.chaos import ground, worker
from tests.chaos.truth import Blow, Line, Truth, Verdict, Wish

KEY = (1, 1, 0)
SEED = 2026
SECONDS = 90


# --- the storms ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_yard_loses_doubles_and_forgets_nothing_in_a_storm():
    """Side by side, each in processes of its own: most of a storm is waiting. Nothing in the verdict is a matter of
    speed: however loaded the machine, what was accepted comes to its end."""
    kinds = ["with"] * bool(own_cgroup()) + ["without"] * (os.geteuid() == 0 or not own_cgroup())
    storms = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.chaos", "--seed", str(SEED), "--seconds", str(SECONDS), "--cgroup", kind],
            cwd=ground.ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for kind in kinds
    ]  # fmt: skip
    try:
        told = [storm.communicate()[0] for storm in storms]
    finally:
        for storm in storms:
            storm.terminate()
            storm.wait()
    assert [storm.returncode for storm in storms] == [0] * len(kinds), "\n".join(told)


# --- the verdict, checked ------------------------------------------------------------------------


def line(kind: str, at: float, key: tuple[int, int, int] = KEY, rank: int = 0, more: str = "-") -> Line:
    return Line(kind, at, "j", rank, key, 1, more)


def verdict(
    *lines: Line, wish: Wish | None = None, blows: tuple[Blow, ...] = (), phase: str = "succeeded"
) -> list[str]:
    asked = wish or Wish("j", "work")
    return [told.partition(":")[0] for told in Verdict(list(lines), {"j": asked}, list(blows)).wrong({"j": phase})]


def test_work_that_was_done_once_is_fine():
    assert verdict(line("start", 1), line("done", 2)) == []


def test_a_success_that_no_task_knows_of_is_a_loss():
    assert verdict(line("start", 1)) == ["LOST"]
    assert verdict(line("start", 1), line("done", 2), wish=Wish("j", "work", tasks=2)) == ["LOST"]


def test_an_elastic_gang_goes_on_without_whom_the_storm_killed_and_nobody_else():
    lines = (line("start", 1), line("start", 1, (1, 1, 1), 1), line("done", 2))
    wish = Wish("j", "work", tasks=2, least=1)
    assert verdict(*lines, wish=wish) == ["LOST"]
    assert verdict(*lines, wish=wish, blows=(Blow((1, 1, 1), 1.5, kills=True),)) == []


def test_a_job_that_fails_though_nothing_was_wrong_with_it_is_a_loss():
    assert verdict(line("start", 1), line("done", 2), phase="failed") == ["LOST"]


def test_work_that_is_done_again_is_a_double_unless_the_storm_hit_it():
    again = (line("start", 1), line("done", 2), line("start", 3, (1, 2, 0)), line("done", 4, (1, 2, 0)))
    assert set(verdict(*again)) == {"DOUBLED"}
    assert verdict(*again, blows=(Blow(KEY, 1.5, kills=True),)) == []
    assert set(verdict(*again, blows=(Blow(KEY, 1.5, kills=False),))) == {"DOUBLED"}
    assert set(verdict(*again, blows=(Blow((1, 1, 1), 1.5, kills=True),))) == {"DOUBLED"}, "another rank's death"


def test_who_was_told_to_stop_as_it_finished_may_have_to_do_it_again():
    again = (line("done", 2), line("told", 2), line("start", 3, (1, 2, 0)), line("done", 4, (1, 2, 0)))
    assert verdict(line("start", 1), *again) == []


def test_the_yard_may_say_so_rarely_and_not_often():
    lines = [line("done", 2, (1, n, 0), n) for n in range(9)]
    stopped = {(1, n, 0) for n in range(9)}
    wish = {"j": Wish("j", "work", tasks=9)}
    assert Verdict(lines, wish, [], set(list(stopped)[:2])).wrong({"j": "succeeded"}) == []
    assert Verdict(lines, wish, [], stopped).wrong({"j": "succeeded"}) == [
        "DOUBLED: 9 gangs had done their work and count as stopped"
    ]


def test_a_task_that_begins_twice_is_a_double():
    assert verdict(line("start", 1), line("start", 1.1), line("done", 2)) == ["DOUBLED"]


def test_what_starts_long_after_it_was_cancelled_or_held_has_not_heard():
    assert verdict(line("start", 50), wish=Wish("j", "work", cancelled=1.0), phase="cancelled") == ["DISOBEYED"]
    assert verdict(line("start", 50), line("done", 51), wish=Wish("j", "work", holds=[(1.0, 99.0)])) == ["DISOBEYED"]


def test_a_gpu_that_is_locked_is_not_free_whatever_is_said(tmp_path: Path):
    import fcntl

    truth = Truth(tmp_path / "t")
    with (truth.folder / "locks" / "GPU-0.0").open("w+") as file:
        file.write("1-1-0 77 5.000")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        assert truth.held_since_before(6.0, ["GPU-0"]) == ["GPU-0.0 by 1-1-0 77 5.000"]
        assert truth.held_since_before(4.0, ["GPU-0"]) == []
    assert truth.held_since_before(6.0, ["GPU-0"]) == []


def test_two_that_have_one_gpu_are_told():
    assert "HELD TWICE" in verdict(line("start", 1), line("conflict", 1, more="GPU-0:1-1-0"), line("done", 2))


def test_who_takes_a_half_never_has_both_not_for_a_moment_and_a_third_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    truth, one_lock, got = Truth(tmp_path / "t"), worker.lock, []

    def noted_lock(*asked: str) -> int:
        descriptor = one_lock(*asked)
        got.extend([asked[1]] * (descriptor >= 0))
        return descriptor

    monkeypatch.setattr(worker, "lock", noted_lock)
    monkeypatch.setenv("GPUYARD_MARK", "y-1-1-0")
    assert worker.take(str(truth.folder), "GPU-0", halves=True)
    assert got == ["GPU-0.0"]
    assert worker.take(str(truth.folder), "GPU-0", halves=True)
    assert got == ["GPU-0.0", "GPU-0.1"]
    assert not worker.take(str(truth.folder), "GPU-0", halves=True)
    assert not worker.take(str(truth.folder), "GPU-0", halves=False)
    assert [each.kind for each in truth.lines()] == ["conflict", "conflict"]
