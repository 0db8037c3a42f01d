"""Text to plain data, YAML or JSON, with the line of every value on demand.

Called by `snapshots` and `jobs`. Knows syntax and nothing of what the keys mean. Broken syntax, doubled keys,
nesting without end: one sentence each, never a traceback.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from gpuyard.files.problems import DEPTH_MAX, Path, nearest, unreadable
from gpuyard.files.text.json_text import JsonDocument


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


@contextmanager
def depth_refused(name: str) -> Iterator[None]:
    """JSON can be nested just deep enough to be parsed, and too deep to be walked."""
    try:
        yield
    except RecursionError:
        raise unreadable(name, f"nested deeper than {DEPTH_MAX} levels") from None


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
    if name.endswith(".json") or text.lstrip()[0] == "{":
        try:
            return JsonDocument(text, name)
        except json.JSONDecodeError as error:
            if name.endswith(".json"):
                told = f"broken JSON: {error.msg[:1].lower()}{error.msg[1:]} (column {error.colno})"
                raise unreadable(name, told, error.lineno) from None
    from gpuyard.files.text.yaml_text import (
        YamlDocument,  # here, because half the time of a small JSON file would go to it
    )

    return YamlDocument(text, name)
