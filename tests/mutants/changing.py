"""One small mistake at a time: every way in which one operator, constant or branch of a module could be wrong.

Types, decorators, assertions and texts are left as they are: a mistake there is caught by other tools, or by a reader.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SWAPPED: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.FloorDiv,),
    ast.FloorDiv: (ast.Mult,),
    ast.Div: (ast.Mult,),
    ast.Mod: (ast.FloorDiv,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
}
"""Operators, and what could stand in their place."""

PAIRS = (("min", "max"), ("any", "all"), ("minimum", "maximum"))
RENAMED = {a: b for pair in PAIRS for a, b in (pair, pair[::-1])}
"""Functions and methods whose opposite takes the same arguments."""

ANNOTATIONS = {"annotation", "returns", "decorator_list", "type_params"}
LARGE = 10
"""From here on a constant is a matter of judgement, and a mistake is half or double of it."""

NEVER_WRONG = {"strict", "key"}
"""Keywords that are a tool's own affair: `zip(strict=...)`."""


@dataclass(frozen=True)
class Mutant:
    """One mistake: where it is, and how it reads before and after."""

    file: str
    line: int
    number: int
    statement: str | None
    before: str
    after: str
    text: str

    @property
    def name(self) -> str:
        """What `--only` takes."""
        return f"{self.file}:{self.line}/{self.number}"


@dataclass(frozen=True)
class Place:
    """Where a node hangs in its tree."""

    parent: ast.AST
    field: str
    index: int | None

    def put(self, node: ast.AST) -> None:
        """Hang another node there."""
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


# --- all of them ---------------------------------------------------------------------------------


def mutants(path: Path, file: str) -> list[Mutant]:
    """Every mutant of one module, in the order of its lines."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    found: list[Mutant] = []
    counts: dict[int, int] = {}
    for node, _, wrong, statement in changes(ast.parse(source)):
        line = node.lineno  # type: ignore[attr-defined]
        number = counts.get(line, 0)
        counts[line] = number + 1
        text = lines[line - 1].strip()
        found.append(Mutant(file, line, number, statement, shown(node), shown(wrong), text))
    return found


def mutated(source: str, mutant: Mutant) -> ast.Module:
    """The module with that one mistake in it."""
    tree = ast.parse(source)
    count = 0
    for node, place, wrong, _ in changes(tree):
        if node.lineno == mutant.line:  # type: ignore[attr-defined]
            if count == mutant.number:
                place.put(ast.copy_location(wrong, node))
                return ast.fix_missing_locations(tree)
            count += 1
    raise LookupError(f"there is no {mutant.name}")


def shown(node: ast.AST) -> str:
    """The node as source, short; of a branch only its head."""
    if isinstance(node, ast.If):
        return f"if {ast.unparse(node.test)}"
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 100 else text[:97] + "..."


Change = tuple[ast.AST, Place, ast.AST, str | None]


def changes(tree: ast.Module) -> Iterator[Change]:
    """Each node that could be wrong, where it hangs, what could stand there instead, and its statement."""
    yield from below(tree, None, None)


def below(node: ast.AST, statement: str | None, returned: str | None) -> Iterator[Change]:
    """The changes in a node's children; `returned` names the type that the function around them returns."""
    for place, child in children(node):
        inside, kind = statement, returned
        if isinstance(child, ast.FunctionDef):
            kind = ast.unparse(child.returns) if child.returns else None
        if isinstance(child, ast.stmt) and returned is not None:
            inside = key(child)
        for wrong in alternatives(child, node, kind):
            yield child, place, wrong, inside
        yield from below(child, inside, kind)


def children(node: ast.AST) -> Iterator[tuple[Place, ast.AST]]:
    """What hangs below and could be wrong."""
    for field, value in ast.iter_fields(node):
        if field in ANNOTATIONS or isinstance(node, ast.Assert | ast.Import | ast.ImportFrom):
            continue
        if isinstance(value, ast.AST) and not exempt(value):
            yield Place(node, field, None), value
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, ast.AST) and not exempt(item):
                    yield Place(node, field, index), item


def exempt(node: ast.AST) -> bool:
    """Whether nothing in it is looked at."""
    if isinstance(node, ast.keyword):
        return node.arg in NEVER_WRONG and isinstance(node.value, ast.Constant)
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def key(statement: ast.stmt) -> str:
    """A name for a statement inside its module."""
    return f"{statement.lineno}:{statement.col_offset}"


# --- what could be wrong with one node -----------------------------------------------------------


def alternatives(node: ast.AST, parent: ast.AST, returned: str | None) -> Iterator[ast.AST]:
    """What could stand there by mistake."""
    yield from other_operators(node)
    yield from other_functions(node)
    yield from other_constants(node, parent)
    yield from other_conditions(node, parent)
    if isinstance(node, ast.Return) and node.value is not None:
        yield from other_returns(node, returned)
    if isinstance(parent, ast.Slice) and isinstance(node, ast.expr) and not isinstance(node, ast.Constant):
        yield ast.BinOp(copy.deepcopy(node), ast.Add(), ast.Constant(1))


def other_operators(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            for swapped in SWAPPED.get(type(op), ()):
                wrong = copy.deepcopy(node)
                wrong.ops[i] = swapped()  # type: ignore[call-overload]
                yield wrong
    elif isinstance(node, ast.BoolOp | ast.BinOp | ast.AugAssign) and not is_type(node):
        for swapped in SWAPPED.get(type(node.op), ()):
            other = copy.deepcopy(node)
            other.op = swapped()  # type: ignore[assignment]
            yield other
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        yield copy.deepcopy(node.operand)


def is_type(node: ast.AST) -> bool:
    """Whether it is a union of types, such as `Move | Evict`."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and names_type(node.right)


def names_type(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return node.value is None
    return isinstance(node, ast.Name) and node.id[0].isupper() and not node.id.isupper()


def other_functions(node: ast.AST) -> Iterator[ast.AST]:
    if not isinstance(node, ast.Call):
        return
    wrong = copy.deepcopy(node)
    if isinstance(wrong.func, ast.Name) and wrong.func.id in RENAMED:
        wrong.func.id = RENAMED[wrong.func.id]
        yield wrong
    elif isinstance(wrong.func, ast.Attribute) and wrong.func.attr in RENAMED:
        wrong.func.attr = RENAMED[wrong.func.attr]
        yield wrong


def other_constants(node: ast.AST, parent: ast.AST) -> Iterator[ast.AST]:
    if not isinstance(node, ast.Constant) or isinstance(parent, ast.Expr | ast.JoinedStr | ast.FormattedValue):
        return
    if isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node.value, int | float) and abs(node.value) < LARGE:
        yield ast.Constant(node.value + 1)
        yield ast.Constant(node.value - 1)
    elif isinstance(node.value, int | float):
        yield ast.Constant(node.value * 2)
        yield ast.Constant(node.value // 2)


def other_conditions(node: ast.AST, parent: ast.AST) -> Iterator[ast.AST]:
    """A branch that is never or always taken, a loop never entered, a filter turned round."""
    if isinstance(node, ast.If):
        for never in (False, True):
            wrong = copy.copy(node)
            wrong.test = ast.Constant(never)
            yield wrong
    elif isinstance(node, ast.expr) and not isinstance(node, ast.Compare | ast.UnaryOp) and is_condition(node, parent):
        yield ast.UnaryOp(ast.Not(), copy.deepcopy(node))


def is_condition(node: ast.expr, parent: ast.AST) -> bool:
    """Whether it decides a loop, a choice or a filter; comparisons there have opposites of their own."""
    if isinstance(parent, ast.While | ast.IfExp):
        return node is parent.test
    return isinstance(parent, ast.comprehension) and node in parent.ifs


def other_returns(node: ast.Return, returned: str | None) -> Iterator[ast.AST]:
    if isinstance(node.value, ast.Constant | ast.Compare | ast.UnaryOp):
        return  # these have opposites of their own
    negate: dict[str | None, type[ast.unaryop]] = {"bool": ast.Not, "int": ast.USub, "float": ast.USub}
    if returned in negate:
        yield ast.Return(ast.UnaryOp(negate[returned](), copy.deepcopy(node.value)))  # type: ignore[arg-type]
