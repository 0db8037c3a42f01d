"""Which job a caller means by a name. Used by whatever answers about one job, or does something to it."""

from __future__ import annotations

from typing import Generic

from gpuyard.model.errors import NotFound
from gpuyard.model.outside import text
from gpuyard.runtime.serving.port import KnownJobs, R
from gpuyard.runtime.serving.viewing import Viewer


class Lookup(Generic[R]):
    """Finds jobs for callers; those that they may not know of do not exist for them."""

    def __init__(self, jobs: KnownJobs[R]) -> None:
        self._jobs = jobs

    def seen(self, viewer: Viewer, name: str) -> R:
        """The job of that name, or one sentence why there is none."""
        for key in viewer.keys(name):
            job = self._find(key)
            if job is not None and viewer.sees(job):
                return job
        if self._is_array(viewer, name):
            raise NotFound(f"{name} is an array, not one job; its jobs are {name}-0 and so on")
        raise NotFound(f"there is no job {name}{self._hint(viewer, name)}")

    def meant(self, viewer: Viewer, name: str) -> list[R]:
        """The members of an array that are not over, those that wait first; or the one job of that name."""
        for key in viewer.keys(name):
            found = [job for job in self._jobs.members(key) if viewer.sees(job)]
            if found:
                return sorted(found, key=lambda job: job.shown)  # or they would follow those that end
        return [self.seen(viewer, name)]

    def _find(self, key: str) -> R | None:
        if told := text.wrong_line(key):
            raise NotFound(f"there is no such job: its name {told}")
        return self._jobs.find(key)

    def _is_array(self, viewer: Viewer, name: str) -> bool:
        """Whether the caller may know of an array of that name, also of one that has ended."""
        owners = (owner for key in viewer.keys(name) for owner in self._jobs.array_owners(key))
        return any(viewer.sees_all or viewer.owns(owner) for owner in owners)

    def _hint(self, viewer: Viewer, name: str) -> str:
        """Operators are told under which name they find it."""
        if not (viewer.sees_all and viewer.shared):
            return ""
        near = sorted(job.key for job in self._jobs.active() if job.name == name)
        return f"; did you mean {near[0]}?" if near else ""
