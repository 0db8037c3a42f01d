"""How amounts, times and places are said to people: `8`, `80Gi`, `2h5m`, `n0..n3[0-7]`.

Called by the tables. Nothing here knows a table or a colour; JSON gets its raw values from `documents`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gpuyard.cli.console import exits
from gpuyard.model.outside import phrases
from gpuyard.model.resources import UNLIMITED, WHOLE, as_gpus
from gpuyard.model.topology import NVLINK

if TYPE_CHECKING:
    from gpuyard.model.job import Job, Placement
    from gpuyard.model.reasons import Reason
    from gpuyard.model.resources import Request

FLEET = "fleet"
"""The level above all levels: anywhere."""

NODES_SHOWN = 4
"""More nodes than this are counted, not listed; `-o json` has them all."""

counted = phrases.counted
agreeing = phrases.agreeing
duration = phrases.duration

_UNITS = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


def gpus(amount: float) -> str:
    """An amount of grains; "unlimited" is drawn as a dash."""
    return "-" if amount >= UNLIMITED else str(as_gpus(amount))


def about(amount: float) -> str:
    """An amount of nano-GPU that is a measure and not a count: one decimal says enough."""
    return f"{round(amount / WHOLE, 1):g}"


def told(reason: Reason, job: str) -> str:
    """A reason where the job has just been named: the sentence without its subject."""
    return str(reason).removeprefix(f"{job} ")


def gpu_count(number: float) -> str:
    """A number of GPUs, parts included: "1 GPU", "0.5 GPUs"."""
    return counted(f"{number:g}", "GPU")


def size(amount: int) -> str:
    """Bytes in the largest unit that keeps them short: `80Gi`."""
    if amount >= UNLIMITED:
        return "-"
    for unit, scale in _UNITS:
        if amount >= scale:
            return f"{round(amount / scale, 1):g}{unit}"
    return str(amount)


def cores(milli: int) -> str:
    """Milli-cores as cores."""
    return "-" if milli >= UNLIMITED else f"{milli / 1000:g}"


def clock(moment: float, now: float) -> str:
    """A moment by the reader's clock: `14:02`, and with its day where that is not today."""
    import time

    then, today = time.localtime(moment), time.localtime(now)
    form = "%H:%M" if then[:3] == today[:3] else "%H:%M on %Y-%m-%d"
    return time.strftime(form, then)


def work(gpu_s: float) -> str:
    """GPU time that is used or lost, in the largest unit that keeps it readable: `2 GPU-minutes`, `1.5 GPU-hours`."""
    for unit, scale in (("GPU-hours", 3600), ("GPU-minutes", 60)):
        if gpu_s >= scale:
            return f"{gpu_s / scale:.3g} {unit}" if gpu_s < 1000 * scale else f"{gpu_s / scale:,.0f} {unit}"
    return f"{gpu_s:.3g} GPU-seconds"


def request(asked: Request) -> str:
    """What one task asks of GPUs: `8`, `0.5`, `20Gi`, `1g.10gb`, or `cpu`."""
    if asked.gpus:
        return str(asked.gpus)
    if asked.share:
        return str(as_gpus(asked.share))
    if asked.gpu_memory:
        return size(asked.gpu_memory)
    if asked.mig:
        return "+".join(profile if n == 1 else f"{n}·{profile}" for profile, n in asked.mig)
    return "cpu"


def shape(job: Job, placements: Sequence[Placement] = ()) -> str:
    """Tasks × GPUs of each group, of the whole job or of some placements of it: `4×8`, `1×1 + 4×8`."""
    placed = Counter(placement.group for placement in placements)
    parts: dict[str, int] = {}
    for group in job.task_groups():
        tasks = placed[group.name] if placements else group.tasks
        if tasks:
            ask = request(group.request)
            parts[ask] = parts.get(ask, 0) + tasks
    return " + ".join(f"{tasks}×{ask}" for ask, tasks in parts.items()) or "-"


def exit_status(code: int) -> str:
    """How a program ended: `exit 3`, or the signal that ended it."""
    return exits.signal_name(code) or f"exit {code}"


def places(placements: Iterable[Placement], most: int = NODES_SHOWN) -> str:
    """Nodes with their GPUs, alike neighbours folded: `n0..n3[0-7] n9[0,1]`."""
    held: dict[str, set[int]] = defaultdict(set)
    for placement in placements:
        held[placement.node] |= set(placement.gpus)
    folded = _fold([(node, _ranges(held[node])) for node in sorted(held, key=natural)])
    shown = [text for text, _ in folded[:most]]
    rest = sum(nodes for _, nodes in folded[most:])
    return " ".join(shown) + (f" +{counted(rest, 'node')}" if rest else "")


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """A sort key that puts `n2` before `n10`."""
    return tuple((int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name) if part)


def some(names: Sequence[str], most: int = NODES_SHOWN) -> str:
    """A list of names that does not run away."""
    rest = f" +{len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest or "-"


def percent(ratio: float) -> str:
    """A ratio as people say it."""
    return f"{ratio * 100:.0f}%"


def place(level: str) -> str:
    """A topology level as a place: "a rack", "an NVLink island"."""
    if level == NVLINK:
        return "an NVLink island"
    if level == FLEET:
        return "the whole fleet"
    return f"an {level}" if level[:1] in "aeiou" else f"a {level}"


def level_title(level: str) -> str:
    """A topology level at the head of a column."""
    return "ISLAND" if level == NVLINK else level.upper()


def _fold(nodes: list[tuple[str, str]]) -> list[tuple[str, int]]:
    """Runs of numbered neighbours that hold the same GPUs, each with its number of nodes."""
    runs: list[list[tuple[str, str]]] = []
    for node, held in nodes:
        if runs and runs[-1][-1][1] == held and _follows(runs[-1][-1][0], node):
            runs[-1].append((node, held))
        else:
            runs.append([(node, held)])
    return [(_run_text(run), len(run)) for run in runs]


def _run_text(run: list[tuple[str, str]]) -> str:
    first, last = run[0], run[-1]
    return f"{first[0]}{first[1]}" if len(run) == 1 else f"{first[0]}..{last[0]}{first[1]}"


def _follows(one: str, other: str) -> bool:
    a, b = re.fullmatch(r"(.*?)(\d+)", one), re.fullmatch(r"(.*?)(\d+)", other)
    return bool(a and b and a[1] == b[1] and int(b[2]) == int(a[2]) + 1)


def _ranges(indices: set[int]) -> str:
    """GPU indices, runs of three or more folded: `[0-3,6]`; nothing for a CPU-only task."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs]
    return f"[{','.join(parts)}]" if parts else ""
