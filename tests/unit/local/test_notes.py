"""The files between control plane and supervisors: no value ends its field, and what was changed is known as such."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.worlds.local.supervising.notes import Damaged, Order, read_pairs, write_pairs

WORDS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\0\n:=0123456789"), max_size=20)


@given(st.lists(st.tuples(WORDS, WORDS), max_size=6))
def test_whatever_is_written_reads_back_the_same(pairs: list[tuple[str, str]]):
    with tempfile.TemporaryDirectory() as folder:
        write_pairs(f"{folder}/note", pairs)
        assert read_pairs(f"{folder}/note") == pairs


def test_a_nul_in_the_name_of_a_variable_adds_no_field(tmp_path: Path):
    """The attack: such a name ended its field in the order, and `uid` followed."""
    evil = "env:A\0uid\x000\0arg\0sh"
    write_pairs(str(tmp_path / "order"), [("uid", "1000"), ("arg", "true"), (evil, "x")])
    order = Order(read_pairs(str(tmp_path / "order")))
    assert (order.text("uid"), order.command) == ("1000", ["true"])


@given(at=st.integers(min_value=0), cut=st.booleans(), byte=st.integers(1, 255))
def test_a_damaged_note_is_never_believed(at: int, cut: bool, byte: int):
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/note"
        write_pairs(path, [("pid", "17"), ("uid", "1000"), ("told", "a: b\n")])
        content = bytearray(Path(path).read_bytes())
        at %= len(content)
        if cut:
            del content[at:]
        else:
            content[at] ^= byte
        Path(path).write_bytes(content)
        with contextlib.suppress(Damaged):  # another way to write the same length is no damage
            assert read_pairs(path) == [("pid", "17"), ("uid", "1000"), ("told", "a: b\n")]


def test_an_empty_file_and_one_of_another_kind_are_damaged(tmp_path: Path):
    for content in (b"", b"pid\x0017\0", os.urandom(64), b"5 0\nabc", b"-1 0\n"):
        (tmp_path / "note").write_bytes(content)
        with pytest.raises(Damaged):
            read_pairs(str(tmp_path / "note"))
