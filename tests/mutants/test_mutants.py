"""The mutants themselves: each is one mistake, and a mistake that matters is noticed."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.mutants import argued, importing
from tests.mutants.changing import mutants, mutated
from tests.mutants.reaching import HOOK, telling

SOURCE = '''"""A text with 1 in it."""
LIMIT: int = 3

def fits(a: int | None, b: list[int]) -> bool:
    """Whether 1 < 2."""
    assert a != 7
    if a is None or not b:
        return False
    return min(b[1:]) < a + LIMIT
'''


def changes_of(tmp_path: Path, source: str = SOURCE) -> set[str]:
    path = tmp_path / "m.py"
    path.write_text(source)
    return {f"{m.before} -> {m.after}" for m in mutants(path, "m.py")}


def test_operators_constants_branches_and_returns_go_wrong_one_at_a_time(tmp_path: Path):
    assert changes_of(tmp_path) == {
        "3 -> 4",
        "3 -> 2",
        "if a is None or not b -> if False",
        "if a is None or not b -> if True",
        "a is None or not b -> a is None and (not b)",
        "a is None -> a is not None",
        "not b -> b",
        "False -> True",
        "min(b[1:]) < a + LIMIT -> min(b[1:]) <= a + LIMIT",
        "min(b[1:]) < a + LIMIT -> min(b[1:]) >= a + LIMIT",
        "min(b[1:]) -> max(b[1:])",
        "1 -> 2",
        "1 -> 0",
        "a + LIMIT -> a - LIMIT",
    }


def test_each_mutant_differs_from_the_module_and_from_every_other(tmp_path: Path):
    path = tmp_path / "m.py"
    path.write_text(SOURCE)
    plain = ast.unparse(ast.parse(SOURCE))
    wrong = [ast.unparse(mutated(SOURCE, m)) for m in mutants(path, "m.py")]
    assert plain not in wrong
    assert len(set(wrong)) == len(wrong)


def test_a_statement_says_that_it_is_reached_and_a_branch_not_taken_says_nothing():
    seen: set[str] = set()
    space: dict[str, object] = {HOOK: seen.add}
    exec(compile(telling("m.py", SOURCE), "m.py", "exec"), space)
    assert seen == set()
    assert space["fits"](1, [5, 2]) is True  # type: ignore[operator]
    assert seen == {"m.py:5:4", "m.py:6:4", "m.py:7:4", "m.py:9:4"}


def test_every_argued_mutant_is_still_there():
    """Reasons go with the line they were given for."""
    gone = []
    for entry in argued.entries():
        path = importing.BRAIN / entry["file"]
        there = [m for m in mutants(path, entry["file"]) if path.exists() and m.text == entry["line"]]
        made = {f"{m.before} -> {m.after}" for m in there}
        wanted = made if entry["changes"] == "any" else set(entry["changes"])
        if not there or wanted - made:
            gone.append(f"{entry['file']}: {entry['line']}")
    assert gone == []
