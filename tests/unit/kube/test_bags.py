"""Names filed under names, few or many, are there once until they are taken out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuyard.worlds.kubernetes.keeping.bags import FEW, Bags

STEPS = st.lists(st.tuples(st.booleans(), st.sampled_from("ab"), st.integers(0, FEW + 3)), max_size=80)


@given(STEPS)
def test_bags_are_like_sets_whatever_is_put_in_and_taken_out(steps: list[tuple[bool, str, int]]) -> None:
    bags, sets = Bags(), {"a": set[str](), "b": set[str]()}
    for comes, bag, number in steps:
        name = f"n{number}"
        (bags.add if comes else bags.discard)(bag, name)
        (sets[bag].add if comes else sets[bag].discard)(name)
        assert sorted(bags.of(bag)) == sorted(sets[bag])
        assert bags.only(bag) == ("".join(sets[bag]) if len(sets[bag]) == 1 else "")
        assert set(bags) == {each for each, names in sets.items() if names}


def test_many_are_filed_and_gone_again() -> None:
    bags = Bags()
    for number in range(5 * FEW):
        bags.add("gang", f"n{number}")
    assert len(bags.of("gang")) == 5 * FEW
    for number in range(5 * FEW):
        bags.discard("gang", f"n{number}")
    assert "gang" not in bags
    assert bags.of("gang") == ()
