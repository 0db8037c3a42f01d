"""Which version of Kubernetes the tests meet, and what its module file says."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.kube import components


@pytest.mark.parametrize(("word", "version"), [("", components.WRITTEN), ("1.34", "1.34.4"), ("1.34.2", "1.34.2")])
def test_a_version_is_named_in_short_in_full_or_not_at_all(word: str, version: str):
    assert components.chosen(word) == version


def test_what_is_no_version_is_told_in_a_sentence():
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.kube.components"],
        capture_output=True, text=True, check=False, env={**os.environ, "KUBE": "latest"},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("KUBE=latest is no version of Kubernetes; say one of 1.33, 1.34")
    assert done.stderr.count("\n") == 1


def test_the_module_of_another_version_names_that_version_alone():
    text = components.derived((components.SOURCES / "go.mod").read_text(), "1.34.4")
    assert "1.36." not in text
    assert "0.36." not in text
    assert "k8s.io/kubernetes v1.34.4" in text
    assert "k8s.io/api => k8s.io/api v0.34.4" in text


def test_the_module_names_the_version_that_is_built_without_a_word():
    assert f"k8s.io/kubernetes v{components.WRITTEN}\n" in (components.SOURCES / "go.mod").read_text()
