"""Places that are kept for tasks whose pods do not exist yet, or that others have not left yet.

A book and no more: who is promised what, whom it waits for, until when. `observe` tells promised places as assigned;
`taking_back` makes promises and keeps them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from gpuyard.model.job import Bundle, Job, Placement, TaskGroup
from gpuyard.model.resources import Request

Chair = tuple[str, int]
"""A group and a number."""


@dataclass(slots=True)
class Promised:
    """What one job is to have."""

    places: dict[Chair, Placement]
    leavers: dict[str, str] = field(default_factory=dict)
    """Pods that must be gone first: their keys, and the uid of each."""
    until: float = float("inf")
    """By the clock that only counts up; after that it is forgotten."""
    asked: dict[str, Request] = field(default_factory=dict)
    """What a member of each group asked for when its place was kept: pods that come may ask for something else."""

    def outgrown(self, job: Job, come: Collection[Chair]) -> str:
        """A group of which pods have come that ask for more than was kept for them; "" if there is none."""
        groups = {group.name: group.request for group in job.task_groups()}
        for name in sorted({chair[0] for chair in come}):
            if name in self.asked and name in groups and not _is_within(groups[name], self.asked[name]):
                return name
        return ""


class Promises:
    """All that is promised, by job."""

    def __init__(self) -> None:
        self._by_job: dict[str, Promised] = {}
        self._count = 0

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._by_job))

    def __contains__(self, job: object) -> bool:
        return job in self._by_job

    def get(self, job: str) -> Promised | None:
        """What the job is promised."""
        return self._by_job.get(job)

    def make(self, job: str, places: Iterable[Placement], leavers: Mapping[str, str], until: float) -> list[Placement]:
        """Keep these for it, beside what it is promised already; as the brain is to know them, each by a name."""
        mine = self._by_job.setdefault(job, Promised({}))
        made = []
        for place in places:
            self._count += 1
            kept = replace(place, uid=f"promise/{self._count}", assigned=True, terminating=False)
            mine.places[place.group, place.task] = kept
            made.append(kept)
        mine.leavers.update(leavers)
        mine.until = until
        return made

    def keep(self, job: str, chair: Chair) -> Placement:
        """Somebody has come for it: it is promised no longer."""
        mine = self._by_job[job]
        place = mine.places.pop(chair)
        if not mine.places:
            del self._by_job[job]
        return place

    def drop(self, job: str) -> tuple[Placement, ...]:
        """Nothing is kept for it any more; what was."""
        mine = self._by_job.pop(job, None)
        return tuple(mine.places.values()) if mine is not None else ()

    def onto(self, job: Job, born: Collection[Chair]) -> Job:
        """The job with what it is promised; members that do not exist yet count as there as far as they have places."""
        mine = self._by_job.get(job.name)
        if mine is None:
            return job
        unborn = Counter(chair[0] for chair in mine.places if chair not in born)
        gang = _with_fewer_absent(job.gang, unborn)
        return replace(job, gang=gang, placements=(*job.placements, *mine.places.values()))


def _is_within(now: Request, kept: Request) -> bool:
    """Whether the place still suits: the same devices, and no more of anything else."""
    same = (now.gpus, now.share, now.gpu_memory, now.mig) == (kept.gpus, kept.share, kept.gpu_memory, kept.mig)
    had = dict(kept.extras)
    fewer = all(amount <= had.get(name, 0) for name, amount in now.extras)
    return same and fewer and now.cpu <= kept.cpu and now.memory <= kept.memory


def _with_fewer_absent(bundle: Bundle, unborn: Mapping[str, int]) -> Bundle:
    groups: list[TaskGroup | Bundle] = []
    for group in bundle.groups:
        if isinstance(group, Bundle):
            groups.append(_with_fewer_absent(group, unborn))
        else:
            groups.append(replace(group, absent=max(0, group.absent - unborn.get(group.name, 0))))
    return replace(bundle, groups=tuple(groups))


def matched(places: Mapping[Chair, Placement], free: Mapping[Chair, str]) -> list[tuple[Chair, Chair]]:
    """Which free pod takes which place, as chairs of places and of pods: its own number, else any of its group."""
    found = [(chair, chair) for chair in sorted(places) if chair in free]
    taken = {chair for chair, _ in found}
    spare = [chair for chair in sorted(free) if chair not in places]
    for chair in sorted(places.keys() - taken):
        other = next((each for each in spare if each[0] == chair[0]), None)
        if other is not None:
            spare.remove(other)
            found.append((chair, other))
    return found
