"""Nodes of several test processes on one machine leave its kernel as it was before the first of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.kube.kernel_settings import NAMES, KernelSettings

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    folder = tmp_path / "sys"
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("0\n")
    return folder


def told(kernel: Path) -> set[str]:
    return {(kernel / name).read_text() for name in NAMES}


def come(kernel: Path) -> KernelSettings:
    """A node, whose kubelet sets everything."""
    made = KernelSettings(kernel.parent / "kept.json", kernel)
    made.come()
    for name in NAMES:
        (kernel / name).write_text("1\n")
    return made


def test_who_leaves_last_puts_back_what_was_there_before_the_first(kernel: Path):
    first = come(kernel)
    second = come(kernel)  # it finds what the first one's kubelet has set
    first.leave()
    assert told(kernel) == {"1\n"}, "the second is still there"
    second.leave()
    assert told(kernel) == {"0\n"}


def test_what_somebody_changes_while_no_node_is_there_is_kept(kernel: Path):
    come(kernel).leave()
    for name in NAMES:
        (kernel / name).write_text("7\n")
    come(kernel).leave()
    assert told(kernel) == {"7\n"}


def test_what_a_killed_process_left_is_put_back_by_the_next_who_leaves_last(kernel: Path):
    script = (
        "import os; from pathlib import Path; from tests.support.kube.kernel_settings import KernelSettings; "
        f"KernelSettings(Path({str(kernel.parent / 'kept.json')!r}), Path({str(kernel)!r})).come(); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False).returncode == 9
    come(kernel).leave()
    assert told(kernel) == {"0\n"}
