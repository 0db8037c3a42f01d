"""Manifests for other schedulers become ours by one field, and the guide names it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.kube.migrating import GUIDE, manifests

ABSENT = "(absent)"


def differences(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two documents differ, leaf by leaf."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from differences(before.get(key, ABSENT), after.get(key, ABSENT), f"{path}.{key}".strip("."))
    elif before != after:
        yield path, before, after


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("kube-scheduler/before", "kube-scheduler/after", ("schedulerName", ABSENT, "gpuyard")),
        ("volcano/before", "volcano/after", ("schedulerName", "volcano", "gpuyard")),
        ("kueue/before", "kueue/after", ("schedulerName", ABSENT, "gpuyard")),
        ("kueue/after", "kueue/without-kueue", ("suspend", True, False)),
        ("kai/before", "kai/after", ("schedulerName", "kai-scheduler", "gpuyard")),
    ],
)
def test_one_field_is_changed_and_the_guide_names_it(before: str, after: str, expected: tuple[str, Any, Any]):
    old, new = manifests(before), manifests(after)
    changed = [found for each in zip(old, new, strict=True) for found in differences(*each)]
    assert changed
    assert {(path.rpartition(".")[2], was, becomes) for path, was, becomes in changed} == {expected}
    assert f"`{expected[0]}" in GUIDE.read_text()
    assert f"examples/migrate/{after.partition('/')[0]}" in GUIDE.read_text()


def test_everything_that_is_refused_or_left_aside_by_name_stands_in_the_guide():
    from gpuyard.worlds.kubernetes.asking import unmet

    text = GUIDE.read_text()
    assert [key for key in (*unmet.CONDITIONS, *unmet.WISHES) if f"`{key}" not in text] == []
