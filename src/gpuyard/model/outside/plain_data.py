"""Plain data read by the type it is meant to have: what somebody wrote into a file is not what we wrote until proven.

Asked for every part of what the brain remembers; knows the few types that those are made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

SINGLE: dict[Any, tuple[type, ...]] = {float: (float, int), int: (int,), str: (str,), bool: (bool,)}
"""What each plain type may be written as."""


def hints(kind: type) -> dict[str, Any]:
    """The types of a class's fields, by name."""
    return get_type_hints(kind)


def typed(value: Any, kind: Any) -> Any:
    """The value as that type has it, lists as tuples; anything else is a ValueError that says where."""
    if kind in SINGLE:
        return _single(value, kind)
    origin, args = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return None if value is None and type(None) in args else typed(value, args[0])
    if origin is Mapping:
        return {key: _inside(each, args[1], key) for key, each in _mapping(value).items()}
    if origin is tuple:
        return _tuple(value, args)
    if hasattr(kind, "_fields"):
        return kind(*_tuple(value, tuple(hints(kind)[name] for name in kind._fields)))
    return kind.read(value) if hasattr(kind, "read") else value  # some read themselves


def _single(value: Any, kind: type) -> Any:
    """Python counts truth as a number, and JSON as Python reads it has numbers that are none."""
    fits = isinstance(value, SINGLE[kind]) and isinstance(value, bool) == (kind is bool)
    if not fits or (kind is float and not isfinite(value)):
        raise ValueError(f"{value!r:.40} is no {kind.__name__}")
    return value


def _mapping(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return value
    raise ValueError(f"{value!r:.40} is no mapping by name")


def _tuple(value: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{value!r:.40} is no list")
    if args[-1] is Ellipsis:
        return tuple(_inside(each, args[0], str(place)) for place, each in enumerate(value))
    if len(value) != len(args):
        raise ValueError(f"{value!r:.40} has not {len(args)} values")
    return tuple(_inside(each, kind, str(place)) for place, (each, kind) in enumerate(zip(value, args, strict=True)))


def _inside(value: Any, kind: Any, where: str) -> Any:
    try:
        return typed(value, kind)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
