"""Sizes, durations and times as people write them, and back. Pure functions; a wrong unit is a `Wrong` that says so.

Called by `kinds` while reading and by `writing`. Amounts of CPU are milli-cores, of memory bytes; durations are
seconds; times are seconds since the epoch.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache

from gpuyard.files.problems import shown
from gpuyard.model.resources import UNLIMITED

BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}

SIZE_PATTERN = r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E)?$"
CPU_PATTERN = r"^[0-9]+(\.[0-9]+)?m?$"
DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d|w))+$"
TIME_PATTERN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})$"

_NUMBER_AND_UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]*)")
_DURATION = re.compile(DURATION_PATTERN)
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)")
_TIME = re.compile(TIME_PATTERN)
_NAIVE_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Wrong(ValueError):
    """What is wrong with a value: a predicate that follows its key ("must be ...", "is ...")."""


# --- sizes ---------------------------------------------------------------------------------------


def read_bytes(value: object) -> int:
    """`80Gi`, `1G` or plain bytes."""
    if isinstance(value, str):
        return _bytes_of(value)
    return _within(math.ceil(_number(value, "a size such as 80Gi, 1G or plain bytes")), value)


def read_cpu(value: object) -> int:
    """`500m` or a number of cores, as milli-cores."""
    if isinstance(value, str):
        return _milli_of(value)
    return _within(math.ceil(_number(value, "a number of cores, or milli-cores such as 500m") * 1000), value)


@lru_cache(maxsize=4096)
def _bytes_of(text: str) -> int:
    found = _NUMBER_AND_UNIT.fullmatch(text)
    factor = found and ({**BINARY, **DECIMAL}).get(found[2])
    if found is None or factor is None:
        raise Wrong(f"must be a size such as 80Gi, 1G or plain bytes, not {shown(text)}{_size_hint(found)}")
    return _within(math.ceil(Fraction(found[1]) * factor), text)


@lru_cache(maxsize=4096)
def _milli_of(text: str) -> int:
    found = _NUMBER_AND_UNIT.fullmatch(text)
    if found is None or found[2] not in ("", "m"):
        raise Wrong(f"must be a number of cores, or milli-cores such as 500m, not {shown(text)}")
    return _within(math.ceil(Fraction(found[1]) * (1 if found[2] else 1000)), text)


def _size_hint(found: re.Match[str] | None) -> str:
    unit = found[2][:1].upper() if found else ""
    if found is None or unit not in ("K", "M", "G", "T", "P"):
        return ""
    return f"; did you mean {found[1]}{unit}i?"


def _within(amount: int, value: object) -> int:
    if not 0 <= amount < UNLIMITED:
        raise Wrong(f"must be at least 0, not {shown(value)}" if amount < 0 else f"is too large: {shown(value)}")
    return amount


def _number(value: object, wanted: str) -> int | Fraction:
    """A finite number, exactly. Booleans are no numbers, whatever Python thinks."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Wrong(f"must be {wanted}, not {shown(value)}")
    return value if isinstance(value, int) else Fraction(repr(value))


def write_bytes(amount: int) -> int | str:
    """The shortest exact way to write it."""
    if amount >= UNLIMITED:
        return "unlimited"
    for unit, factor in reversed(BINARY.items()):
        if amount and amount % factor == 0:
            return f"{amount // factor}{unit}"
    return amount


def write_cpu(amount: int) -> int | str:
    """Whole cores as a number, else milli-cores."""
    if amount >= UNLIMITED:
        return "unlimited"
    return amount // 1000 if amount % 1000 == 0 else f"{amount}m"


# --- durations -----------------------------------------------------------------------------------


def read_duration(value: object) -> float:
    """`90s`, `10m`, `2h`, `1d`, `1h30m` or plain seconds, as seconds. A minus sign is the caller's to judge."""
    if isinstance(value, str):
        return _duration_of(value)
    return float(_number(value, "a duration such as 90s, 10m, 2h or 1d"))


@lru_cache(maxsize=4096)
def _duration_of(text: str) -> float:
    body = text.removeprefix("-")
    if not _DURATION.fullmatch(body):
        raise Wrong(f"must be a duration such as 90s, 10m, 2h, 1d or 1h30m, not {shown(text)}")
    seconds = math.fsum(float(amount) * SECONDS[unit] for amount, unit in _DURATION_PART.findall(body))
    if not math.isfinite(seconds):
        raise Wrong(f"is too long: {shown(text)}")
    return -seconds if body != text else seconds


def write_duration(seconds: float) -> str | float:
    """In the largest unit that leaves a whole number; odd ones as plain seconds."""
    if seconds <= 0 or seconds != int(seconds):
        return seconds
    unit = next(unit for unit in ("d", "h", "m", "s") if seconds % SECONDS[unit] == 0)
    return f"{int(seconds / SECONDS[unit])}{unit}"


# --- times ---------------------------------------------------------------------------------------


def read_time(value: object) -> float:
    """RFC 3339 with its zone: a time without one means another moment to every reader, so it is an error."""
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        hint = "; add Z for UTC" if isinstance(value, str) and _NAIVE_TIME.fullmatch(value) else ""
        raise Wrong(f"must be a time such as 2026-01-01T00:00:00Z, not {shown(value)}{hint}")
    try:
        return (datetime.fromisoformat(value.upper()) - _EPOCH).total_seconds()
    except (ValueError, OverflowError):
        raise Wrong(f"is not a time that exists: {shown(value)}") from None


def write_time(seconds: float) -> str:
    """RFC 3339 in UTC, to the microsecond."""
    return (_EPOCH + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
