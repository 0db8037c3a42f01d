"""What tenants wrote of what they ask for, as a file of ours takes it: keys and values.

Called where task groups of a cluster are made. An API server bounds keys and values of labels, but not the values of
affinity, nor anything in the templates of kinds that it does not know. What is longer or moves a cursor is cut and
plain, alike wherever it stands, and different from others; it could be no label of a node or pod.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from functools import cache
from operator import is_
from typing import Any, TypeVar

from gpuyard.model.outside import text

T = TypeVar("T")


def values(found: T) -> T:
    """The same with every text inside as a file takes it; itself, where nothing is other than it was."""
    shape: Any = type(found)
    changed = {}
    for name in _names(shape):
        before = getattr(found, name)
        now = _readable(before) if before else before
        if now is not before:
            changed[name] = now
    return replace(found, **changed) if changed else found  # type: ignore[type-var]


@cache
def _names(shape: type[Any]) -> tuple[str, ...]:
    """Of what it has; nothing, where it is no value with parts."""
    return tuple(field.name for field in fields(shape)) if is_dataclass(shape) else ()


def _readable(found: Any) -> Any:
    if isinstance(found, str):
        return text.named(found, text.KEY_MAX) if found else found
    return _all_of(found) if isinstance(found, tuple) else values(found)


def _all_of(found: tuple[Any, ...]) -> tuple[Any, ...]:
    """Pairs stay in the order of their keys."""
    now = tuple(map(_readable, found))
    if all(map(is_, found, now)):
        return found
    is_mapping = all(isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str) for each in now)
    return tuple(sorted(now)) if is_mapping else now
