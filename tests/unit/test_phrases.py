"""Numbers and lists in sentences."""

from __future__ import annotations

from gpuyard.model.outside.phrases import are, counted, listed


def test_one_of_something_is_said_as_one():
    assert [counted(n, "node") for n in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]
    assert [are(n) for n in (0, 1, 0.5, 2)] == ["are", "is", "are", "are"]
    assert counted("1", "GPU") == "1 GPU"  # as it is shown, whatever was rounded


def test_a_long_list_is_counted_at_its_end():
    assert listed(["a", "b"]) == "a, b"
    assert listed(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert listed(["a", "b", "c"], of=9) == "a, b, c and 6 more"
