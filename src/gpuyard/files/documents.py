"""Text to plain data, YAML or JSON, with the line of every value on demand.

Called by `snapshots` and `jobs`. Knows syntax and nothing of what the keys mean. Broken syntax, doubled keys,
nesting without end: one sentence each, never a traceback.

YAML is read as its 1.2 core schema reads it: `no` and `on` are text, times stay text, `010` is not octal.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, NoReturn, Protocol

import yaml

from gpuyard.files.problems import Path, nearest, shown, shown_path, unreadable

DEPTH_MAX = 100
"""Nesting beyond this is refused: no real file comes near, and the C parsers would overflow their stack."""

EXPANDED_MAX = 2_000_000
"""Values a YAML file may have once its aliases are written out."""


class Document(Protocol):
    """Plain data, and where it came from."""

    name: str
    data: Any

    def line(self, at: Path) -> int:
        """The line of a value, or of the nearest thing around it; 0 if unknown."""


def read_text(path: pathlib.Path) -> str:
    """The text of a file, or one sentence why there is none."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise unreadable(str(path), f"no such file{_sibling(path)}") from None
    except IsADirectoryError:
        raise unreadable(str(path), "this is a folder, not a file") from None
    except UnicodeDecodeError:
        raise unreadable(str(path), "this is not a text file (not UTF-8)") from None
    except OSError as error:
        raise unreadable(str(path), f"cannot be read: {error.strerror or error}") from None


def _sibling(path: pathlib.Path) -> str:
    try:
        found = nearest(path.name, (other.name for other in path.parent.iterdir()))
    except OSError:
        return ""
    return f"; did you mean {path.parent / found}?" if found else ""


def parse(text: str, name: str) -> Document:
    """JSON if it looks like it, else YAML (of which JSON is nearly a part)."""
    if not text.strip():
        raise unreadable(name, "the file is empty")
    if name.endswith(".json"):
        return JsonDocument(text, name)
    if text.lstrip().startswith("{"):
        try:
            return JsonDocument(text, name)
        except json.JSONDecodeError:
            pass
    return YamlDocument(text, name)


# --- JSON ----------------------------------------------------------------------------------------

_BLANK = re.compile(r"[ \t\r\n]*")


class _Doubled(dict[str, Any]):
    """An object in which a key stood twice; `key` is that key."""

    key = ""


class _NotANumber(ValueError):
    """NaN or Infinity, which JSON does not have and Python reads all the same."""


class JsonDocument:
    """Parsed by the standard library's C scanner: fast enough, and unlike faster ones it can tell a doubled key."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self._text = text
        self._starts: dict[Path, list[int]] = {}
        self._doubled = False
        try:
            self.data = json.loads(text, object_pairs_hook=self._object, parse_constant=_refuse_constant)
        except json.JSONDecodeError as error:
            if not name.endswith(".json"):
                raise
            raise unreadable(
                name, f"broken JSON: {_lowered(error.msg)} at column {error.colno}", error.lineno
            ) from None
        except RecursionError:
            raise unreadable(name, f"nested deeper than {DEPTH_MAX} levels") from None
        except ValueError as error:
            raise unreadable(name, _number_complaint(error)) from None
        if self._doubled:
            self._refuse_doubled()

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) == len(pairs):
            return made
        self._doubled = True
        doubled = _Doubled(made)
        keys = [key for key, _ in pairs]
        doubled.key = next(key for key in keys if keys.count(key) > 1)
        return doubled

    def _refuse_doubled(self) -> NoReturn:
        at, key = next(_doubled_in(self.data, ()))
        where = f" in {shown_path(at)}" if at else ""
        raise unreadable(self.name, f"the key {shown(key)} stands twice{where}", self.line(at))

    def line(self, at: Path) -> int:
        """Walks the text again with the C scanner, value by value, down to the place asked for."""
        position = self._skip(0)
        for depth, part in enumerate(at):
            step = self._item(at[:depth], position, part) if isinstance(part, int) else self._member(position, part)
            if step is None:
                break
            position = step
        return self._text.count("\n", 0, position) + 1

    def _skip(self, position: int) -> int:
        found = _BLANK.match(self._text, position)
        return found.end() if found else position

    def _after(self, position: int) -> int:
        return self._skip(_SCAN.raw_decode(self._text, position)[1])

    def _item(self, prefix: Path, position: int, index: int) -> int | None:
        if self._text[position] != "[":
            return self._member(position, str(index))
        starts = self._starts.setdefault(prefix, [self._skip(position + 1)])
        while len(starts) <= index:
            end = self._after(starts[-1])
            if self._text[end] != ",":
                return None
            starts.append(self._skip(end + 1))
        return starts[index]

    def _member(self, position: int, key: str) -> int | None:
        if self._text[position] != "{":
            return None
        position = self._skip(position + 1)
        while self._text[position] == '"':
            found, end = _SCAN.raw_decode(self._text, position)
            value = self._skip(self._skip(end) + 1)
            if found == key:
                return value
            position = self._after(value)
            position = self._skip(position + 1) if self._text[position] == "," else position
        return None


_SCAN = json.JSONDecoder()


def _refuse_constant(name: str) -> NoReturn:
    raise _NotANumber(f"{name} is not a number that JSON has")


def _number_complaint(error: ValueError) -> str:
    return str(error) if isinstance(error, _NotANumber) else "holds a number with too many digits"


def _doubled_in(value: Any, at: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, _Doubled):
        yield at, value.key
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for part, inner in parts:
        yield from _doubled_in(inner, (*at, part))


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


# --- YAML ----------------------------------------------------------------------------------------


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
    re.compile(
        r"^(?:[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
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
