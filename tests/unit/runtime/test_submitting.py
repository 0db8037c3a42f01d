"""A job of ours as objects of a cluster, and what is said of one that cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from gpuyard.files import read_submission
from gpuyard.model.errors import Refused
from gpuyard.runtime.clustered.submitting import manifests_of

RUN = {"command": ["python", "train.py"], "image": "registry.example/train:1"}


def made(classes: dict[str, int] | None = None, **keys: Any) -> dict[str, Any]:
    """The Job's spec."""
    document = {"name": "train", "gpus": 1, "run": {**RUN, **keys.pop("run", {})}, **keys}
    job = manifests_of(read_submission(document, 0.0, "train"), "team", classes=classes)[0]
    return dict(job["spec"])


def environment(spec: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each.get("value", "told") for each in spec["template"]["spec"]["containers"][0]["env"]}


def test_an_array_is_one_job_whose_pods_are_no_gang_and_fail_by_themselves():
    spec = made(array="0-9%3", time_limit="1h", run={"retries": 2})
    assert (spec["parallelism"], spec["completions"], spec["completionMode"]) == (3, 10, "Indexed")
    assert (spec["backoffLimitPerIndex"], "backoffLimit" in spec, "activeDeadlineSeconds" in spec) == (2, False, False)
    assert spec["podFailurePolicy"]["rules"][0]["action"] == "Ignore"
    assert spec["template"]["spec"]["activeDeadlineSeconds"] == 3600
    assert spec["template"]["metadata"]["annotations"] == {"gpuyard.dev/array": "true"}


def test_members_of_an_array_know_which_they_are():
    told = environment(made(array="0-9"))
    assert (told["GPUYARD_ARRAY"], told["GPUYARD_ARRAY_INDEX"]) == ("train", "told")
    assert told["GPUYARD_JOB"] == "train-$(GPUYARD_ARRAY_INDEX)"
    assert "WORLD_SIZE" not in told


def test_all_of_an_array_may_run_at_once_unless_it_says_how_many():
    assert made(array="0-9")["parallelism"] == 10
    assert made(array="0-1%8")["parallelism"] == 2


def test_a_priority_by_number_is_the_class_of_that_value():
    assert made({"b": 7, "a": 7, "other": 8}, priority=7)["template"]["spec"]["priorityClassName"] == "a"
    assert made(priority="urgent")["template"]["spec"]["priorityClassName"] == "urgent"
    assert "priorityClassName" not in made()["template"]["spec"]


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"priority": 7}, "none has the value 7; there is low (-1), high (9)"),
        ({"array": "1-3"}, "numbers are not 0 to N"),
        ({"array": "0,2"}, "numbers are not 0 to N"),
        ({"array": "0-3", "tasks": 2}, "an array of gangs"),
        ({"after": ["other"]}, "submit it when that has ended"),
        ({"tasks": 4, "min": 2}, "fewer tasks than it asks for"),
        ({"run": {"tty": True}}, "a terminal"),
    ],
)
def test_what_no_job_could_be_is_said_in_one_sentence(keys: dict[str, Any], told: str):
    with pytest.raises(Refused) as refused:
        made({"low": -1, "high": 9}, **keys)
    sentence = str(refused.value)
    assert told in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


def test_what_admission_adds_on_newer_clusters_stands_in_the_job_itself():
    spec = made(tasks=2)
    assert spec["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["type"] == "DisruptionTarget"
    tolerated = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    assert spec["template"]["spec"]["tolerations"] == [tolerated]
    assert "tolerations" not in made(gpus=0)["template"]["spec"]
