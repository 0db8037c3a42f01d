"""The jobs of a running yard as a table: who is listed, in which order, arrays as one row.

Called by `looking.jobs`; other commands borrow how a shape, a place or an end is said.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from gpuyard.cli.console import terminal, words
from gpuyard.cli.console.choosing import OVER, JobChoice
from gpuyard.cli.rendering.listings import live_tables
from gpuyard.cli.rendering.listings.live_tables import amount, seconds
from gpuyard.cli.rendering.listings.tables import Listing, TableWish, column
from gpuyard.client import Client
from gpuyard.model.answers import progress as steps
from gpuyard.runtime.clock import SystemClock

Document = dict[str, Any]

TABLE_FIELDS = (
    "name", "user", "queue", "class", "phase", "reason.code", "tasks", "groups", "gpus", "fraction", "gpu_memory",
    "mig", "asked_gpus", "held_gpus", "submitted", "started", "ended", "exit_code", "array", "index",
)  # fmt: skip
"""What a table of jobs shows or is chosen by; ten thousand whole jobs would take longer to send than to list."""

WIDE_FIELDS = (
    *(field for field in TABLE_FIELDS if field != "reason.code"),
    "reason",
    "message",
    "priority",
    "placements",
    "progress",
)
NAME_FIELDS = ("name", "user", "queue", "class", "phase", "array", "submitted", "started", "ended")

ACTIVE = ("stopping", "running", "starting", "waiting", "held")
"""In the order in which they are listed."""

STYLES = {"running": "green", "waiting": "yellow", "starting": "cyan", "failed": "red"}


@dataclass(frozen=True)
class JobsWish:
    """Which jobs are listed, and how."""

    table: TableWish
    choice: JobChoice
    ended: bool = False
    """Those that ended, instead of the active ones."""
    everything: bool = False
    """Active and ended, however long ago."""
    each: bool = False
    """Members of arrays one by one."""

    @property
    def drawn(self) -> bool:
        """Whether people read it, and not programs."""
        return self.table.form in ("table", "wide")

    def takes(self, job: Document) -> bool:
        """Whether the job is asked for."""
        over = job["phase"] in OVER
        return (self.everything or over == self.ended or bool(self.choice.phases)) and self.choice.takes(job)


def show(wish: JobsWish) -> None:
    """The jobs; only what the chosen form shows is asked for."""
    whole = wish.table.form in ("json", "yaml") or bool(wish.table.sort_by)
    fields = () if whole else {"name": NAME_FIELDS, "wide": WIDE_FIELDS}.get(wish.table.form, TABLE_FIELDS)

    def ask(client: Client) -> list[Document]:
        found = [job for job in client.jobs(wish.everything, fields) if wish.takes(job)]
        found.sort(key=standing)
        return folded(found) if wish.drawn and not wish.each else found

    none = "There are no such jobs." if wish.choice or wish.ended else "No job runs or waits."
    live_tables.show(replace(JOBS, none=none), ask, wish.table)


def standing(job: Document) -> tuple[int, float]:
    """Where a job stands in the list: what runs, newest first; what waits, longest first; what ended, newest first."""
    phase = job["phase"]
    if phase in OVER:
        return len(ACTIVE), -(seconds(job.get("ended")) or 0.0)
    began = seconds(job.get("started")) or seconds(job.get("submitted")) or 0.0
    waits = phase in ("waiting", "held")
    return ACTIVE.index(phase), (seconds(job.get("submitted")) or 0.0) if waits else -began


def folded(jobs: Sequence[Document]) -> list[Document]:
    """The same with the members of each array as one row, where the first of them stood."""
    members: dict[str, list[Document]] = defaultdict(list)
    for job in jobs:
        members[_array(job)].append(job)
    rows: dict[str, Document] = {}
    for job in jobs:
        key = _array(job)
        rows.setdefault(key, job if len(members[key]) == 1 else _row_of(members[key]))
    return list(rows.values())


def _array(job: Document) -> str:
    """The array it belongs to with its owner; a job by itself is its own."""
    return f"{job.get('user', '')}/{job.get('array')}/" if job.get("array") else str(job["name"])


def _row_of(members: Sequence[Document]) -> Document:
    """One row for many: their phases counted, their GPUs summed, the age of the oldest, the commonest reason."""
    phases = Counter(str(job["phase"]) for job in members)
    reasons = Counter(job["reason"]["code"] for job in members if job.get("reason"))
    counted = ", ".join(f"{number} {phase}" for phase, number in phases.most_common())
    row = {key: value for key, value in members[0].items() if key not in ("reason", "exit_code", "message")}
    row |= {"name": f"{members[0]['array']}[{_indices(members)}]", "phase": counted, "members": len(members)}
    row |= {"asked_gpus": _total(members, asked), "held_gpus": _total(members, lambda job: job.get("held_gpus", 0))}
    row["placements"] = [place for job in members for place in job.get("placements", ())]
    return row | ({"reason": {"code": reasons.most_common(1)[0][0]}} if reasons else {})


def _total(members: Sequence[Document], of: Any) -> float:
    total = round(sum(float(of(job)) for job in members), 3)
    return int(total) if total == int(total) else total


def _indices(members: Sequence[Document]) -> str:
    """The numbers of the members: `0-99`, or how many where there are gaps."""
    numbers = sorted(int(job["index"]) for job in members if job.get("index") is not None)
    if numbers and numbers[-1] - numbers[0] + 1 == len(numbers):
        return f"{numbers[0]}-{numbers[-1]}"
    return f"{len(members)} of them"


# --- what is said of a job -----------------------------------------------------------------------


def shape(job: Document) -> str:
    """Tasks × GPUs of each group, alike ones together; of a folded array how often."""
    each = f"{job['members']}·" if "members" in job else ""
    if not job.get("groups"):
        return f"{each}{job.get('tasks', 1)}×{_ask(job)}"
    parts: dict[str, int] = {}
    for group in leaves(job):
        ask = _ask(group)
        parts[ask] = parts.get(ask, 0) + int(group.get("tasks", 1))
    return each + " + ".join(f"{tasks}×{ask}" for ask, tasks in parts.items())


def leaves(job: Document) -> Iterator[Document]:
    """The groups that have tasks, however deep they stand."""
    for group in job["groups"]:
        yield from leaves(group) if "groups" in group else (group,)


def _ask(group: Document) -> str:
    if whole := group.get("gpus"):
        return str(whole)
    if isinstance(mig := group.get("mig"), dict):
        return "+".join(profile if count == 1 else f"{count}·{profile}" for profile, count in mig.items())
    found = group.get("fraction") or group.get("gpu_memory") or mig
    return str(found) if found else "cpu"


def gpus(job: Document) -> str:
    """What it holds of what it asks for, as one number where they are the same."""
    wanted, held = asked(job), job.get("held_gpus", 0)
    return amount(wanted) if held in (0, wanted) else f"{amount(held)}/{amount(wanted)}"


def asked(job: Document) -> float:
    """The GPUs of all its tasks."""
    told = job.get("asked_gpus")
    return told if told is not None else sum(map(_whole, leaves(job) if "groups" in job else [job]))


def _whole(group: Document) -> float:
    return float(group.get("tasks", 1)) * float(group.get("gpus") or 0)


def age(job: Document) -> str:
    """Since it was submitted."""
    came = job.get("submitted")
    return "-" if came is None else _span(came, None, int(_CLOCK.now()))


def run_time(job: Document) -> str:
    """How long it has run, or ran; a dash before its start."""
    begun = job.get("started")
    return "-" if begun is None or "members" in job else _span(begun, job.get("ended"), int(_CLOCK.now()))


_CLOCK = SystemClock()


@lru_cache(maxsize=4096)
def _span(begun: Any, end: Any, now: int) -> str:
    """Kept, because the members of an array all came at the same moment."""
    return words.duration((seconds(end) or now) - (seconds(begun) or now))


def reason(job: Document) -> str:
    """One word: why it waits, or how it ended."""
    if job.get("exit_code"):
        return words.exit_status(int(job["exit_code"]))
    told = job.get("reason") if job["phase"] in ("waiting", "held") or "members" in job else None
    return str(told["code"]) if told else "-"


def progress(job: Document) -> str:
    """How far it is by its own word: `3,000 of 12,000 steps, 3.4 steps/s, about 44m left, last checkpoint 4m ago`."""
    told, now = job.get("progress"), _CLOCK.now()
    if not told:
        return "-"
    left, saved = seconds(told.get("ends")), seconds(told.get("saved"))
    return steps.listed(
        steps.steps(told["done"], told.get("total", 0.0)),
        steps.speed(told.get("steps_per_second", 0.0)),
        f"about {words.duration(left - now)} left" if left is not None else "",
        f"last checkpoint {words.duration(now - saved)} ago" if saved is not None else "",
    )


def where(job: Document) -> str:
    """The nodes its tasks run on."""
    from gpuyard.model.job import Placement

    places = [Placement(each["node"], tuple(each.get("gpus", ()))) for each in job.get("placements") or ()]
    return words.places(places) or "-"


def sentence(job: Document) -> str:
    """Why, in words."""
    return str((job.get("reason") or {}).get("message") or job.get("message") or "-")


class Styled(str):
    """A phase: plain in a plain table, coloured in a drawn one."""

    __slots__ = ()

    def __rich__(self) -> Any:
        return terminal.text(str(self), STYLES.get(str(self), ""))


JOBS: Listing[Document] = Listing(
    "job",
    (
        column("NAME", lambda job: job["name"], cuts=True),
        column("QUEUE", lambda job: job.get("queue", "default"), cuts=True),
        column("PHASE", lambda job: Styled(job["phase"]), cuts=True),
        column("SHAPE", shape, cuts=True),
        column("GPUS", gpus, right=True),
        column("AGE", age, right=True),
        column("RUN", run_time, right=True),
        column("REASON", reason),
        column("USER", lambda job: job.get("user") or "-", wide=True),
        column("CLASS", lambda job: job.get("class", "training"), wide=True),
        column("PRIORITY", lambda job: job.get("priority", "-"), right=True, wide=True),
        column("WHERE", where, wide=True, wraps=True),
        column("PROGRESS", progress, wide=True, wraps=True),
        column("WHY", sentence, wide=True, wraps=True),
    ),
    lambda job: job,
    more="choose by --phase, --queue or a name, or see all with `| less`",
)
