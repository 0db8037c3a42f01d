"""Nobody's documents keep the others waiting: what is read and thought about does not hold the lock, and has an end."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

from gpuyard import files
from gpuyard.brain import foresee
from gpuyard.model.errors import Refused, TooMuch
from gpuyard.model.ownership import Owner
from gpuyard.runtime.serving import call_limits
from gpuyard.runtime.serving.call_limits import Patience
from gpuyard.runtime.serving.prospects import forecast
from tests.support.yards import ME, TestYard, sh


def is_free(yard: TestYard) -> bool:
    """Whether somebody else can take the lock now."""
    found = []

    def take() -> None:
        found.append(yard.world.desk.lock.acquire(timeout=300))
        yard.world.desk.lock.release()

    other = threading.Thread(target=take)
    other.start()
    other.join()
    return bool(found[0])


def test_two_hundred_thousand_unknown_keys_are_refused_at_once(yard: TestYard):
    with pytest.raises(TooMuch, match="a job has more than 20,000 keys and values"):
        yard.put(sh("true", name="a") | {f"key{n}": 1 for n in range(200_000)})


def test_unknown_keys_are_told_five_at_a_time(yard: TestYard):
    with pytest.raises(Refused) as told:
        yard.put(sh("true", name="a") | {f"key{n}": 1 for n in range(15_000)})
    assert str(told.value).count("unknown key ") == 5
    assert "has 14,995 more unknown keys" in str(told.value)


def test_documents_are_read_while_others_have_the_lock(yard: TestYard, monkeypatch: pytest.MonkeyPatch):
    seen: list[bool] = []
    read = files.read_submission

    def watched(*given: Any) -> Any:
        seen.append(is_free(yard))
        return read(*given)

    monkeypatch.setattr(files, "read_submission", watched)
    yard.put(sh("true", name="a"))
    yard.preview(ME, [sh("true", name="b")])
    assert seen == [True, True]


def test_looking_ahead_holds_nobody_up_and_is_done_once_for_all(yard: TestYard, monkeypatch: pytest.MonkeyPatch):
    plans: list[bool] = []
    foresight = foresee.Foresight

    def watched(*given: Any, **keys: Any) -> Any:
        plans.append(is_free(yard))
        return foresight(*given, **keys)

    monkeypatch.setattr(forecast, "Foresight", watched)
    told = yard.preview(ME, [sh("true", name=f"j{n}", gpus=8) for n in range(20)])
    assert [each["name"] for each in told] == [f"j{n}" for n in range(20)]
    assert [each["verdict"] for each in told] == ["starts"] * 2 + ["waits"] * 18
    assert plans == [True, True]  # whether such a job could run at all, and the plan
    plans.clear()
    yard.put(*(sh("true", name=f"k{n}", gpus=n % 2) for n in range(20)))
    assert plans == [True, True]  # once for each kind


@pytest.mark.parametrize(
    ("jobs", "words"),
    [
        ([{}] * 10_001, "one submission has at most 10,000 jobs, not 10,001"),
        ([sh("true", array="0-99999"), sh("true")], "one submission makes at most 100,000 jobs"),
    ],
)
def test_a_submission_has_an_end(yard: TestYard, jobs: list[dict[str, Any]], words: str):
    with pytest.raises(TooMuch, match=words):
        yard.put(*jobs)
    assert yard.jobs(ME) == []


def test_a_preview_has_an_end(yard: TestYard):
    with pytest.raises(TooMuch, match="one preview has at most 100 jobs, not 101"):
        yard.preview(ME, [sh("true")] * 101)


def test_time_to_think_runs_out():
    now = [0.0]
    patience = Patience.from_now(lambda: now[0])
    patience.spend(3, 10)
    now[0] = call_limits.THINK_S + 0.1
    with pytest.raises(TooMuch, match="10 different jobs at once take too long to look at"):
        patience.spend(4, 10)


def test_what_many_follow_is_looked_for_once(yard: TestYard, monkeypatch: pytest.MonkeyPatch):
    """The attack: thousands of jobs that each follow thousands; the lock was held for a query each."""
    yard.put(sh("true", name="a"))
    yard.until("a", "succeeded")
    with pytest.raises(Refused, match="after must have at most 256 entries, not 257"):
        yard.put(sh("true", name="b", after=["a"] * 257))
    gates, asked = yard.world.gates, Counter[str]()
    state_of = gates.state_of

    def counted(key: str, owner: Owner) -> str:
        asked[key] += 1
        return state_of(key, owner)

    monkeypatch.setattr(gates, "state_of", counted)
    yard.put(*[sh("true", name=f"j{n}", after=["a"] * 200) for n in range(20)])
    assert 0 < asked["a"] <= 3
    yard.until("j19", "succeeded")


def test_one_job_s_words_have_an_end(yard: TestYard):
    """The attack: documents of megabytes, again and again; what was submitted is kept, and fills the disk."""
    with pytest.raises(TooMuch, match="a job has more than 1,048,576 characters; put what is long into a file"):
        yard.put({"name": "big", "run": {"command": ["true", *["y" * 130_000] * 9]}})
    with pytest.raises(TooMuch):
        yard.put({"name": "big", "run": {"command": ["true"], "env": {f"V{n}": "y" * 130_000 for n in range(9)}}})
