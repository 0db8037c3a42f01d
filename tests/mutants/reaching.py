"""Which trial reaches which statement of the brain: every statement of a function is made to say so itself."""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass, field

from tests.mutants import importing
from tests.mutants.changing import key

HOOK = "__reached__"
BODIES = ("body", "orelse", "finalbody", "handlers", "cases")


@dataclass
class Reached:
    """What was reached since it was last taken."""

    seen: set[str] = field(default_factory=set)

    def take(self) -> frozenset[str]:
        """What was reached, as `file:line:column`; forgets it."""
        taken = frozenset(self.seen)
        self.seen.clear()
        return taken


def watch() -> Reached:
    """Have the brain, which must not have been imported yet, say which of its statements are reached."""
    reached = Reached()
    setattr(builtins, HOOK, reached.seen.add)
    importing.install(telling)
    return reached


def telling(file: str, source: str) -> ast.Module:
    """The module, with a word before every statement of every function."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.body = told(node.body, file)
    return ast.fix_missing_locations(tree)


def told(body: list[ast.stmt], file: str) -> list[ast.stmt]:
    """The statements, each with its word before it; functions inside say theirs themselves."""
    found: list[ast.stmt] = []
    for statement in body:
        word = ast.Call(ast.Name(HOOK, ast.Load()), [ast.Constant(f"{file}:{key(statement)}")], [])
        found += [ast.copy_location(ast.Expr(word), statement), statement]
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
            inner(statement, file)
    return found


def inner(node: ast.AST, file: str) -> None:
    """The same inside loops, branches and handlers."""
    for name in BODIES:
        below = getattr(node, name, [])
        if below and isinstance(below[0], ast.stmt):
            setattr(node, name, told(below, file))
        else:
            for part in below:
                inner(part, file)
