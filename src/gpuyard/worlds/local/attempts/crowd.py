"""How many tasks run at once, of one user and in all: each is a supervisor and its processes, with GPUs or without.

Used by `gates` and `lifecycle`. Whoever is one too many waits, with the numbers, until others end.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from gpuyard.model.outside.phrases import agreeing, counted
from gpuyard.model.ownership import Caps
from gpuyard.model.policy import Policy
from gpuyard.model.reasons import Code, Reason
from gpuyard.worlds.local.launching.holdings import Holdings
from gpuyard.worlds.local.state.records import Entry


class Crowd:
    """Who waits because too many run."""

    def __init__(self, holdings: Holdings, caps: Caps) -> None:
        self.caps = caps
        self.policy = Policy()
        self._holdings = holdings
        self._waiting: dict[str, list[tuple[int, int, Entry]]] = {}
        """By who it really is (`Owner.identity`), the most urgent first."""
        self._here: set[int] = set()
        """Who is among them: each is there once, however often it was held and released."""

    def hindrance(self, entry: Entry, count: int) -> Reason | None:
        """Why so many tasks more of a job cannot run now."""
        user, own = entry.owner.user, self._holdings.tasks(entry.owner.identity)
        every = self._holdings.tasks()
        if self.caps.tasks and every + count > self.caps.tasks:
            told = f"{counted(every, 'task')} {agreeing(every, 'runs', 'run')} here, and {self.caps.tasks} may at once"
        elif self.caps.user_tasks and entry.owner.uid != 0 and own + count > self.caps.user_tasks:
            run = agreeing(own, "runs", "run")
            told = f"{counted(own, 'task')} of {user} {run}, and {self.caps.user_tasks} may at once"
        else:
            return None
        message = f"{told}; {entry.name} has {count} and follows when some end"
        return Reason(Code.WAITS_ITS_TURN, where=user, message=message)

    def wait(self, entry: Entry) -> None:
        """Until there is room."""
        if entry.id in self._here:
            return
        self._here.add(entry.id)
        rank = -self.policy.priority(entry.description())
        heapq.heappush(self._waiting.setdefault(entry.owner.identity, []), (rank, entry.id, entry))

    def next(self) -> Iterator[Entry]:
        """Those who may be tried now, as many as there is room for. Who turns out to wait for something else, or for
        nothing any more, takes none of it: nobody may end soon who would call those behind."""
        room_in_all = self.caps.tasks - self._holdings.tasks() if self.caps.tasks else len(self._waiting) << 20
        for owner in list(self._waiting):
            queue = self._waiting[owner]
            own = self.caps.user_tasks - self._holdings.tasks(owner) if self.caps.user_tasks else room_in_all
            while queue and (queue[0][2].owner.uid == 0 or tasks_of(queue[0][2]) <= own) and room_in_all > 0:
                entry = heapq.heappop(queue)[2]
                self._here.discard(entry.id)
                was_shown = entry.shown
                yield entry
                if entry.shown and not was_shown:
                    own, room_in_all = own - tasks_of(entry), room_in_all - tasks_of(entry)
            if not queue:
                self._waiting.pop(owner, None)


def tasks_of(entry: Entry) -> int:
    """As many tasks as the job needs to run at all."""
    return sum(group.min for group in entry.description().task_groups())
