"""What a storm does to a yard: each fault strikes, and tells when and how it is undone.

Used by `storm`. A fault draws from the storm's dice alone, so that a seed gives the same storm again, as far as the
machine lets it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.chaos import ground
from tests.chaos.truth import Blow

if TYPE_CHECKING:
    from tests.chaos.storm import Storm

JUMPS_S = (-3600.0, -86400.0, -7.0, 5.0, 3600.0, 86400.0)


def kill_plane(storm: Storm) -> None:
    """kill -9 of the control plane, a moment from now: something may be on its way to it."""
    plane = storm.plane
    plane.killed = True
    threading.Timer(storm.dice.uniform(0.0, 0.1), plane.kill).start()


def stop_plane(storm: Storm) -> None:
    """It stands still, and goes on as if nothing had been."""
    if storm.plane.stopped:
        return
    storm.plane.signal(signal.SIGSTOP)
    storm.later(storm.dice.uniform(0.5, 4.0), lambda: storm.plane.signal(signal.SIGCONT))


def kill_supervisor(storm: Storm) -> None:
    """kill -9 of one that looks after a task: the task may not outlive it by much."""
    _hit(storm, ground.supervisors(storm.plane.state), signal.SIGKILL)


def kill_both(storm: Storm) -> None:
    """kill -9 of all that look after one task, where there is a guard too: neither notices the other's end."""
    found = ground.supervisors(storm.plane.state)
    if found:
        _, key = storm.dice.choice(found)
        both = [(pid, whose) for pid, whose in found if whose == key]
        for pid, _ in both:
            ground.strike(pid, signal.SIGSTOP)
        for one in both:
            _hit(storm, [one], signal.SIGKILL)


def stop_supervisor(storm: Storm) -> None:
    """One that stands still answers nobody."""
    _hit(storm, ground.supervisors(storm.plane.state), signal.SIGSTOP)


def kill_task(storm: Storm) -> None:
    """kill -9 of a task's own process, as an out-of-memory killer would."""
    _hit(storm, _tasks(storm), signal.SIGKILL)


def stop_task(storm: Storm) -> None:
    """A task that stands still hears nothing but SIGKILL."""
    _hit(storm, _tasks(storm), signal.SIGSTOP)


def fill_disk(storm: Storm) -> None:
    """Not a byte is left on the disk of the state."""
    _disk(storm, storm.disk.fill)


def use_up_inodes(storm: Storm) -> None:
    """Bytes are left, but not a file can be made."""
    _disk(storm, storm.disk.use_up_inodes)


def jump_clock(storm: Storm) -> None:
    """Somebody sets the clock, back or forth."""
    storm.clock.jump(storm.dice.choice(JUMPS_S))


FAULTS: dict[str, tuple[int, Callable[[Storm], None]]] = {
    "kill plane": (6, kill_plane),
    "stop plane": (3, stop_plane),
    "kill supervisor": (4, kill_supervisor),
    "kill both": (2, kill_both),
    "stop supervisor": (4, stop_supervisor),
    "kill task": (4, kill_task),
    "stop task": (3, stop_task),
    "full disk": (2, fill_disk),
    "no inodes": (2, use_up_inodes),
    "clock jump": (2, jump_clock),
}
"""How often each, among themselves."""


def _tasks(storm: Storm) -> list[tuple[int, ground.Key]]:
    found = ((pid, ground.key_of(pid)) for pid in ground.workers(storm.truth.folder))
    return [(pid, key) for pid, key in found if key is not None]


def _hit(storm: Storm, processes: list[tuple[int, ground.Key]], number: int) -> None:
    if not processes:
        return
    pid, key = storm.dice.choice(processes)
    if ground.strike(pid, number):
        storm.blows.append(Blow(key, storm.now(), kills=number == signal.SIGKILL))
        storm.note("blows", f"{key} {number}")
        if number == signal.SIGSTOP:
            storm.later(storm.dice.uniform(0.5, 4.0), lambda: ground.strike(pid, signal.SIGCONT))


def _disk(storm: Storm, spoil: Callable[[], None]) -> None:
    if storm.disk.is_ours and storm.disk.is_well:
        spoil()
        storm.later(storm.dice.uniform(1.0, 6.0), storm.disk.mend)
