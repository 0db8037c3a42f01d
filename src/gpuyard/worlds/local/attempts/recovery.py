"""The first minutes after a crash: every job of the store is brought to one of waiting, running, ended.

Called once by `world.adopt` before the loop turns. An attempt whose row was written but whose supervisor was never
started is started now: the claim in its folder makes sure that nothing runs twice.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpuyard.model.events import JobSeen
from gpuyard.model.job import Phase
from gpuyard.model.node import Node
from gpuyard.model.snapshot import Snapshot
from gpuyard.worlds.local.attempts.desk import Desk
from gpuyard.worlds.local.attempts.giving_up import lay_aside
from gpuyard.worlds.local.attempts.lifecycle import Lifecycle
from gpuyard.worlds.local.ports import TaskKey
from gpuyard.worlds.local.state.records import Attempt, Entry, Task
from gpuyard.worlds.local.state.store import RESTORED


def recover(desk: Desk, life: Lifecycle, fleet: Snapshot) -> None:
    """Take over what runs of all that was read back, show the brain what there is."""
    desk.book.keep_within(fleet.policy, fleet.queues)
    job, template = desk.numbers.highest()
    desk.book.next_job = max(desk.book.next_job, job + 1)
    desk.book.next_template = max(desk.book.next_template, template + 1)
    entries = list(desk.book.active())
    with desk.change():
        for entry in desk.book.flawed:
            lay_aside(desk, entry)
        for step in (_resume, _bring_up, _show):
            for entry in entries:
                try:
                    step(desk, life, entry)
                except Exception as error:  # noqa: BLE001 -- one job that nobody can deal with keeps no yard down
                    entry.template.active -= entry.shown
                    entry.shown = False  # the brain has not heard of it yet, and never will
                    life.give_up(entry, error)


def _resume(desk: Desk, life: Lifecycle, entry: Entry) -> None:
    if entry.attempt is not None and entry.attempt.state != "promised":
        entry.shown = True
        entry.template.active += 1
        _take_over(desk, life, entry, entry.attempt)


def _show(desk: Desk, life: Lifecycle, entry: Entry) -> None:
    if entry.over:
        return
    if entry.attempt is None:
        # A clock that was set back while nobody looked makes no back-off longer.
        entry.not_before = min(entry.not_before, desk.now() + life.ending.rest_of(entry))
        life.gates.consider(entry)
    elif entry.attempt.state == "promised":
        # Nothing of it ran: it asks again, rather than insist on devices that others may have by now.
        entry.shown = True
        entry.template.active += 1
        life.stop(entry, "requeued")


def _take_over(desk: Desk, life: Lifecycle, entry: Entry, attempt: Attempt) -> None:
    life.ending.unfollow(entry)
    there = all(is_there(desk.nodes, task) for task in attempt.live())
    if there:
        desk.events.append(JobSeen(entry.job()))
    else:  # the brain knows no such places; it hears of the job when that is done with them
        entry.shown = False
        entry.template.active -= 1
    if not there or attempt.boot != desk.launcher.boot:
        _lose(desk, life, entry, attempt)
        return
    keys = {TaskKey(entry.id, attempt.number, task.serial): task for task in attempt.live()}
    for key in desk.launcher.adopt(list(keys)):
        del keys[key]
    for task in keys.values():
        life.hold(entry, attempt, task)
    if attempt.why:
        desk.then(lambda: life.tell_to_stop(entry, attempt, keys.values()))
    if attempt.state == "starting" and entry.phase is not Phase.STARTING:
        entry.phase = Phase.STARTING


def _bring_up(desk: Desk, life: Lifecycle, entry: Entry) -> None:
    """Who has no supervisor gets one, now that all that runs has its devices back. Whose devices somebody has still
    waited for them before the crash, too, and waits on; whoever was stopped had them, and ends like any other."""
    attempt = entry.attempt
    if attempt is None or attempt.state == "promised":
        return
    late = [task for task in attempt.live() if not life.has_begun(entry, task)]
    for wave in sorted({task.wave for task in late}):
        tasks = [task for task in late if task.wave == wave]
        if attempt.why or life.may_begin(entry, attempt, tasks):
            life.bring_up(entry, attempt, tasks)
    if attempt.why and late:
        desk.then(lambda: life.tell_to_stop(entry, attempt, late))


def is_there(nodes: Mapping[str, Node], task: Task) -> bool:
    """Whether the fleet still has what the task stands on."""
    node = nodes.get(task.placement.node)
    return node is not None and all(gpu < len(node.gpus) for gpu in task.placement.gpus)


def _lose(desk: Desk, life: Lifecycle, entry: Entry, attempt: Attempt) -> None:
    """Its tasks died with an earlier boot, or stand on a node that is no longer part of the fleet and die now."""
    reboot = attempt.boot != desk.launcher.boot
    told = "the machine was started anew while it ran" if reboot else "what it stood on is no longer part of the fleet"
    told = "the state was restored from a backup while it ran" if attempt.boot == RESTORED else told
    for task in attempt.live():
        life.hold(entry, attempt, task)
    desk.launcher.bury([TaskKey(entry.id, attempt.number, task.serial) for task in attempt.live()], told)
