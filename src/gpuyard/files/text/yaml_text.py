"""YAML text to plain data, with the line of every value on demand.

Called by `documents`. YAML is read as its 1.2 core schema reads it: `no` and `on` are text, times stay text, `010` is
not octal.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Any

import yaml

from gpuyard.files.problems import DEPTH_MAX, Path, unreadable

EXPANDED_MAX = 2_000_000
"""Values a YAML file may have once its aliases are written out."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # the C loader if it was built
    """The safe loader with the resolvers of YAML 1.2's core schema."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  # PyYAML's own name and shape


_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    # Only what YAML 1.1 takes for a float too: its writers leave `1e3` bare, and mean text.
    re.compile(r"^(?:[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"),
    list("-+0123456789."),
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile(r"^<<$"), ["<"])


class YamlDocument:
    """Parsed by libyaml; the node tree is kept, so that a line costs nothing until it is asked for."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        try:
            _refuse_depth(text, name)
            loader = _Loader(text)
            self._root = loader.get_single_node()
            if self._root is None:
                raise unreadable(name, "the file is empty")
            _refuse_expansion(self._root, text, name)
            _refuse_doubled_keys(self._root, name)
            self.data = loader.construct_document(self._root)
        except yaml.MarkedYAMLError as error:
            raise unreadable(name, _syntax_complaint(error, text), _line_of(error)) from None
        except (yaml.YAMLError, ValueError) as error:
            raise unreadable(name, f"broken YAML: {str(error).splitlines()[0]}") from None

    def line(self, at: Path) -> int:
        node, line = self._root, self._root.start_mark.line
        for part in at:
            found = _child(node, part)
            if found is None:
                break
            marked, node = found
            line = marked.start_mark.line
        return int(line) + 1


def _child(node: yaml.Node, part: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    """What carries the line (for a mapping its key) and the value."""
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    if isinstance(node, yaml.MappingNode):
        # The last one: merged keys stand before a mapping's own.
        for key, value in reversed(node.value):
            if key.value == str(part):
                return key, value
    return None


def _refuse_depth(text: str, name: str) -> None:
    """Looks at the characters first, and at libyaml's flat list of events only where they leave a doubt."""
    widest = max((len(found[0]) for found in re.finditer(r"^[ \-?]*", text, re.MULTILINE)), default=0)
    open_brackets = accumulate(1 if found[0] in "[{" else -1 for found in re.finditer(r"[\[\]{}]", text))
    if 2 * widest + max(open_brackets, default=0) < DEPTH_MAX:
        return
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_MAX:
            raise unreadable(name, f"nested deeper than {DEPTH_MAX} levels", event.start_mark.line + 1)


def _refuse_expansion(root: yaml.Node, text: str, name: str) -> None:
    """A small file of aliases to aliases can stand for billions of values, or contain itself."""
    if "*" in text and _expanded(root, {}) > EXPANDED_MAX:
        raise unreadable(name, "its aliases contain themselves, or stand for too many values")


def _expanded(node: yaml.Node, sizes: dict[int, int]) -> int:
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in sizes:
        sizes[id(node)] = EXPANDED_MAX + 1  # what a node inside itself finds
        pairs = isinstance(node, yaml.MappingNode)
        parts = [part for pair in node.value for part in pair] if pairs else node.value
        sizes[id(node)] = 1 + sum(_expanded(part, sizes) for part in parts)
    return sizes[id(node)]


def _refuse_doubled_keys(root: yaml.Node, name: str) -> None:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)
        if not isinstance(node, yaml.MappingNode):
            continue
        waiting.extend(value for _, value in node.value)
        doubled = _doubled_key([key for key, _ in node.value if isinstance(key, yaml.ScalarNode)])
        if doubled is not None:
            raise unreadable(name, f"the key {doubled.value} stands twice", doubled.start_mark.line + 1)


def _doubled_key(keys: list[yaml.ScalarNode]) -> yaml.ScalarNode | None:
    names = {key.value for key in keys}
    if len(names) == len(keys):
        return None
    return next(key for place, key in enumerate(keys) if key.value in {other.value for other in keys[:place]})


def _line_of(error: yaml.MarkedYAMLError) -> int:
    mark = error.problem_mark or error.context_mark
    return mark.line + 1 if mark else 0


def _syntax_complaint(error: yaml.MarkedYAMLError, text: str) -> str:
    line = _line_of(error)
    if line and text.splitlines()[line - 1 : line] and text.splitlines()[line - 1].lstrip(" ").startswith("\t"):
        return "broken YAML: a tab cannot indent; use spaces"
    if "expected a single document" in str(error.context):
        return "holds several documents; one is expected"
    return f"broken YAML: {error.problem or error.context}"
