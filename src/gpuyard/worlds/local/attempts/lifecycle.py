"""The life of an attempt: begun, told to go, watched, stopped. What becomes of its job then is told by `ending`.

Used by `world`, under the desk's lock. A gang starts whole or not at all; one rank lost ends or shrinks it by its rule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from gpuyard.model.events import JobSeen, TasksAssigned, TasksEnded, TasksRunning, TasksStopping
from gpuyard.model.job import Phase, Placement
from gpuyard.model.node import Node
from gpuyard.worlds.local.attempts import giving_up, progressing
from gpuyard.worlds.local.attempts.desk import Desk
from gpuyard.worlds.local.attempts.ending import BACKOFF_S, JobEnding, is_sound
from gpuyard.worlds.local.attempts.gates import Gates
from gpuyard.worlds.local.launching import holdings, orders
from gpuyard.worlds.local.launching.burials import withheld
from gpuyard.worlds.local.ports import Report, TaskKey
from gpuyard.worlds.local.state import ledger
from gpuyard.worlds.local.state.records import NOT_TO_FOLLOW, Attempt, Entry, Task, first_rank, gpus_of, survives

GENTLE = frozenset(("preempted", "moved", "requeued", "held", "timeout", "drained"))
"""Stops that give a job time to save its work; one that is cancelled or has lost a rank needs none."""

PORTS_KEPT = 256


class Lifecycle:
    """What happens to attempts."""

    def __init__(self, desk: Desk, gates: Gates, backoff: float = BACKOFF_S, term_grace: float = 10.0) -> None:
        self.desk = desk
        self.gates = gates
        self.ending = JobEnding(desk, gates, backoff)
        self.term_grace = term_grace
        self._ports: deque[int] = deque(maxlen=PORTS_KEPT)

    # --- beginning -------------------------------------------------------------------------------

    def begin(self, entry: Entry, places: Sequence[Placement]) -> Attempt:
        """A new attempt at these places; it waits, promised, for devices that are not free yet."""
        attempt = self._new_attempt(entry, places)
        entry.attempt = attempt
        entry.phase, entry.reason = Phase.STARTING, None
        self._tell_assigned(entry, attempt, attempt.tasks.values())
        self.desk.keep_attempt(entry, attempt, *attempt.tasks.values())
        self.desk.keep(entry)
        self.desk.say("starting", entry, attempt=attempt.number, placements=_told_places(places))
        self.launch(entry)
        return attempt

    def _new_attempt(self, entry: Entry, places: Sequence[Placement]) -> Attempt:
        entry.attempts += 1
        attempt = Attempt(entry.attempts, self.desk.now(), self.desk.launcher.boot)
        attempt.port = self._free_port()
        self._add_tasks(entry, attempt, places)
        return attempt

    def _free_port(self) -> int:
        """One that no gang has got lately: it may not be in use yet."""
        port = self.desk.launcher.free_port()
        while port in self._ports:
            port = self.desk.launcher.free_port()
        self._ports.append(port)
        return port

    def _add_tasks(self, entry: Entry, attempt: Attempt, places: Sequence[Placement]) -> list[Task]:
        job = entry.description()
        wave = max(attempt.tasks, default=-1) + 1
        made = [
            Task(wave + offset, wave, first_rank(job, place.group) + place.task, place)
            for offset, place in enumerate(places)
        ]
        attempt.tasks.update({task.serial: task for task in made})
        return made

    def follow(self, entry: Entry, places: Sequence[Placement], told: str = "") -> None:
        """Move: what runs is stopped, and the next attempt is promised its places now."""
        assert entry.attempt is not None
        entry.following = self._new_attempt(entry, places)
        self.desk.keep_attempt(entry, entry.following, *entry.following.tasks.values())
        self.stop(entry, "moved", told)

    def grow(self, entry: Entry, places: Sequence[Placement]) -> None:
        """More tasks for an elastic gang that runs."""
        attempt = entry.attempt
        assert attempt is not None
        ended = {task.number for task in attempt.tasks.values() if task.outcome in ("succeeded", "failed")}
        places = [place for place in places if (place.group, place.task) not in ended | entry.succeeded | entry.spent]
        if not places:  # they ended while the brain thought of starting them
            self.desk.events.append(JobSeen(entry.job()))
            return
        tasks = self._add_tasks(entry, attempt, places)
        self._tell_assigned(entry, attempt, tasks)
        self.desk.keep_attempt(entry, attempt, *tasks)
        self.desk.say("growing", entry, placements=_told_places(places))
        self.launch(entry)

    def _tell_assigned(self, entry: Entry, attempt: Attempt, tasks: Iterable[Task]) -> None:
        places = tuple(entry.told_place(attempt, task) for task in tasks)
        self.desk.events.append(TasksAssigned(entry.key, places, attempt.created))

    def launch(self, entry: Entry) -> None:
        """Bring up the tasks that have no supervisor yet, if their devices are free; else they wait their turn."""
        attempt = entry.attempt
        if attempt is None or attempt.why:
            return
        new = self.unbegun(entry, attempt)
        if not new or not self.may_begin(entry, attempt, new) or self.gates.crowd.hindrance(entry, len(new)):
            return
        if attempt.state == "promised":
            attempt.state = "starting"
            self.desk.keep_attempt(entry, attempt)
        self.bring_up(entry, attempt, new)

    def bring_up(self, entry: Entry, attempt: Attempt, tasks: Sequence[Task]) -> None:
        """These have their devices from now on, and get supervisors."""
        for task in tasks:
            self.hold(entry, attempt, task)
        self.desk.then(lambda: self.prepare(entry, attempt, tasks))

    def could_launch(self, entry: Entry) -> bool:
        """Whether what it was promised is free by now."""
        attempt = entry.attempt
        return attempt is not None and self.may_begin(entry, attempt, self.unbegun(entry, attempt))

    def may_begin(self, entry: Entry, attempt: Attempt, tasks: Sequence[Task]) -> bool:
        """Whether nobody is on their devices any more, nor at work under one of their numbers."""
        numbers = {task.number for task in tasks}
        twins = (other for other in attempt.live() if other.number in numbers and self.has_begun(entry, other))
        return not any(twins) and self._are_free(entry, tasks)

    def unbegun(self, entry: Entry, attempt: Attempt) -> list[Task]:
        """Tasks that wait for their devices."""
        return [t for t in attempt.tasks.values() if t.state == "starting" and not self.has_begun(entry, t)]

    def _are_free(self, entry: Entry, tasks: Iterable[Task]) -> bool:
        job, wanted = entry.description(), []
        room: dict[holdings.Device, int] = {}
        for task in tasks:
            node = self.desk.nodes[task.placement.node]
            wanted += holdings.shares(job, task.placement, node)
            room |= holdings.slices(node)
        return self.desk.holdings.free(wanted, room)

    def has_begun(self, entry: Entry, task: Task) -> bool:
        """Whether it was given its devices."""
        assert entry.attempt is not None
        return self.desk.holdings.begun(TaskKey(entry.id, entry.attempt.number, task.serial))

    def hold(self, entry: Entry, attempt: Attempt, task: Task) -> None:
        """The task's devices are taken."""
        node = self.desk.nodes.get(task.placement.node)
        if node is not None:
            key = TaskKey(entry.id, attempt.number, task.serial)
            wanted = holdings.shares(entry.description(), task.placement, node)
            self.desk.holdings.take(key, wanted, entry.owner.identity)
            uuids = [gpu.uuid for gpu in node.gpus if gpu.index in task.placement.gpus and gpu.uuid]
            self.desk.keeper.take(key.name, entry.owner.uid, uuids)
            if task.placement.mig:
                self._hold_slices(entry, attempt, task, node)

    def _hold_slices(self, entry: Entry, attempt: Attempt, task: Task, node: Node) -> None:
        """The very slices are chosen once and written down: after a crash they are still the task's."""
        if not task.slices:
            task.slices = self.desk.holdings.choose_slices(task.placement, node)
            self.desk.keep_attempt(entry, attempt, task)
        key = TaskKey(entry.id, attempt.number, task.serial)
        self.desk.holdings.take_slices(key, task.placement, task.slices)

    def prepare(self, entry: Entry, attempt: Attempt, tasks: Iterable[Task]) -> None:
        """Bring up supervisors; the rows are on disk."""
        nodes = self.desk.nodes
        try:
            made = [orders.order(entry, attempt, t, nodes[t.placement.node], self.desk.around) for t in tasks]
            self.desk.launcher.prepare(made)
        except Exception as error:  # noqa: BLE001 -- one job that cannot be told to a supervisor stops no loop
            self.give_up(entry, error)

    def give_up(self, entry: Entry, error: Exception) -> None:
        """A job that cannot be dealt with ends and is set aside."""
        with self.desk.change():
            self.ending.over(entry, Phase.FAILED, giving_up.strip(self.desk, entry, error), None)

    # --- hearing ---------------------------------------------------------------------------------

    def hear(self, report: Report) -> None:
        """What a supervisor has told."""
        entry = self.desk.book.entries.get(report.key.job)
        attempt = entry.attempt if entry is not None else None
        if entry is None or attempt is None or attempt.number != report.key.attempt:
            self._hear_stray(report)
            return
        task = attempt.tasks[report.key.serial]
        if task.state == "ended":
            return
        match report.kind:
            case "ready":
                self._ready(entry, attempt, task)
            case "running":
                self._running(entry, attempt, task, report)
            case "progress":
                progressing.hear(self.desk, entry, attempt, task, report.progress)
            case "ended":
                progressing.hear(self.desk, entry, attempt, task, report.progress)
                self._ended(entry, attempt, task, report)
            case "doubted":
                self.desk.say("withheld", entry, attempt=attempt.number, message=withheld(task.placement, report.told))
            case "hindered":
                self.desk.say("container-left", entry, attempt=attempt.number, message=report.told)

    def _hear_stray(self, report: Report) -> None:
        """A task that no job knows of any more, as after a backup was restored: nobody plans anew because it ended."""
        if report.kind == "ended":
            self.desk.holdings.leave(report.key)
            self.desk.then(lambda: self.desk.launcher.forget(report.key.job, report.key.attempt))
            for entry in list(self.desk.book.active()):
                if entry.attempt is not None and entry.attempt.state == "promised":
                    self.launch(entry)

    def _ready(self, entry: Entry, attempt: Attempt, task: Task) -> None:
        if task.state == "starting":
            task.state = "ready"
        wave = [other for other in attempt.tasks.values() if other.wave == task.wave and other.state != "ended"]
        if not attempt.why and all(other.state != "starting" for other in wave):
            keys = [TaskKey(entry.id, attempt.number, other.serial) for other in wave]
            self.desk.then(lambda: self.desk.launcher.go(keys))

    def _running(self, entry: Entry, attempt: Attempt, task: Task, report: Report) -> None:
        if task.state in ("starting", "ready"):
            task.state = "running"
        task.pid = report.pid
        if attempt.state == "starting" and all(other.state == "running" for other in attempt.live()):
            attempt.state, attempt.started = "running", report.at
            entry.phase, entry.started = Phase.RUNNING, entry.started or report.at
            self.desk.keep_attempt(entry, attempt, *attempt.live())
            self.desk.keep(entry)
            self._tell_running(entry, attempt, attempt.live(), report.at)
            self.desk.say("started", entry, attempt=attempt.number)
        elif attempt.state == "running":
            self._tell_running(entry, attempt, [task], report.at)

    def _tell_running(self, entry: Entry, attempt: Attempt, tasks: Iterable[Task], at: float) -> None:
        if entry.shown:
            places = tuple(entry.told_place(attempt, task) for task in tasks)
            self.desk.events.append(TasksRunning(entry.key, places, at))

    def _ended(self, entry: Entry, attempt: Attempt, task: Task, report: Report) -> None:
        never_ran = task.state in ("starting", "ready")
        self.close(entry, attempt, task, report)
        if attempt.live() and not attempt.why and task.outcome not in ("succeeded", "stopped"):
            beside = [other for other in attempt.live() if other.wave == task.wave and other.state != "stopping"]
            if not survives(entry, attempt) or (never_ran and len(beside) == len(attempt.live())):
                self.stop(entry, "timeout" if task.outcome == "timeout" else "member")
            elif never_ran and beside:
                self.shrink(entry, beside)  # what was to join the gang does not come, all of it or nothing
        if entry.attempt is attempt and not attempt.live():
            self.finish(entry, attempt)

    def close(self, entry: Entry, attempt: Attempt, task: Task, report: Report) -> None:
        """A task is gone: its devices are free, and the brain is told."""
        task.state, task.outcome, task.exit = "ended", report.outcome, report.exit
        task.ended, task.told = report.at, report.told
        key = TaskKey(entry.id, attempt.number, task.serial)
        self.desk.holdings.leave(key)
        self.desk.keeper.leave(key.name)
        self.gates.room_again()
        node = self.desk.nodes.get(task.placement.node)
        self._tell_ended(entry, attempt, task)
        self.desk.keep_attempt(entry, attempt, task)
        self._drop_twins(entry, attempt, task)
        price = ledger.gpu_hour(self.desk.pools.get(node.pool)) if node is not None else 0.0
        lost, gpus = ledger.lost_since(entry, attempt, task), gpus_of(entry, task, node)
        ledger.book(self.desk.batch, entry, ledger.Use(attempt.created, report.at, gpus, price, lost))

    def _drop_twins(self, entry: Entry, attempt: Attempt, task: Task) -> None:
        """Who was to come in its place, because it was told to stop, does not: it came to its end all the same."""
        twins = [other for other in attempt.live() if other.number == task.number]
        if twins and task.outcome in ("succeeded", "failed"):
            self._tell_to_stop(entry, attempt, twins)

    def _tell_ended(self, entry: Entry, attempt: Attempt, task: Task) -> None:
        if not entry.shown:
            return
        elastic = any(group.min < group.tasks for group in entry.template.job.task_groups())
        if entry.following is not None or elastic:  # of an elastic gang it matters which number has run
            self.desk.events.append(JobSeen(entry.job()))
            return
        counts = {"succeeded": int(task.outcome == "succeeded"), "failed": int(task.outcome == "failed")}
        self.desk.events.append(TasksEnded(entry.key, (entry.told_place(attempt, task),), **counts))

    # --- stopping --------------------------------------------------------------------------------

    def stop(self, entry: Entry, why: str, told: str = "") -> None:
        """End the attempt; what its tasks hold is theirs until they are gone. `told` is for whom, and what is lost."""
        attempt = entry.attempt
        assert attempt is not None
        attempt.why, attempt.stopped, attempt.told = why, self.desk.now(), told or attempt.told
        if attempt.state == "promised":
            self._drop_promise(entry, attempt)
            return
        attempt.state = "stopping"
        entry.phase = Phase.STOPPING
        self._tell_to_stop(entry, attempt, attempt.live())
        self.desk.keep(entry)
        kind = {"preempted": "evicted", "moved": "moved"}.get(why, "stopping")
        self.desk.say(kind, entry, attempt=attempt.number, message=f"attempt {attempt.number} is {attempt.story}")
        if entry.following is not None or why in NOT_TO_FOLLOW:
            self.desk.events.append(JobSeen(entry.job()))
        if not attempt.live():
            self.finish(entry, attempt)

    def shrink(self, entry: Entry, tasks: Sequence[Task], told: str = "") -> None:
        """End some tasks of an elastic gang; the rest runs on."""
        attempt = entry.attempt
        assert attempt is not None
        attempt.told = told or attempt.told
        self._tell_to_stop(entry, attempt, tasks)
        self.desk.say("shrinking", entry, tasks=len(tasks), message=told)
        if not attempt.live():
            self.finish(entry, attempt)

    def _tell_to_stop(self, entry: Entry, attempt: Attempt, tasks: Sequence[Task]) -> None:
        begun = [task for task in tasks if self.has_begun(entry, task)]
        for task in begun:
            task.state = "stopping"
        if begun:
            self.desk.events.append(TasksStopping(entry.key, tuple(entry.told_place(attempt, task) for task in begun)))
            self.desk.then(lambda: self.tell_to_stop(entry, attempt, begun))
        for task in tasks:
            if task.state != "stopping":  # it was still to get its devices: there is nobody to tell
                task.state, task.outcome, task.ended = "ended", "stopped", self.desk.now()
                self._tell_ended(entry, attempt, task)
        self.desk.keep_attempt(entry, attempt, *tasks)

    def tell_to_stop(self, entry: Entry, attempt: Attempt, tasks: Iterable[Task]) -> None:
        """Pass the word on to supervisors; saying it twice does no harm."""
        why = attempt.why or "preempted"
        order = orders.stop_order(entry.description(), why, why in GENTLE, self.term_grace)
        for task in tasks:
            self.desk.launcher.stop(TaskKey(entry.id, attempt.number, task.serial), order)

    def warn(self, entry: Entry, told: str) -> None:
        """Tell all tasks of a job that runs something; it goes on."""
        attempt = entry.attempt
        assert attempt is not None
        keys = [TaskKey(entry.id, attempt.number, task.serial) for task in attempt.live() if task.state == "running"]
        warning = orders.warning(entry.description(), told)
        self.desk.say("warned", entry, attempt=attempt.number, message=told)
        self.desk.then(lambda: self.desk.launcher.warn(keys, warning))

    def _drop_promise(self, entry: Entry, attempt: Attempt) -> None:
        """Nothing of it ever ran."""
        for task in attempt.live():
            task.state, task.outcome, task.ended = "ended", "stopped", self.desk.now()
        self.desk.keep_attempt(entry, attempt, *attempt.tasks.values())
        self.finish(entry, attempt)

    # --- the end ---------------------------------------------------------------------------------

    def finish(self, entry: Entry, attempt: Attempt) -> None:
        """All tasks are gone: the job is over, waits again, or goes on where it was moved to."""
        if self.ending.finish(entry, attempt):
            self._go_on_elsewhere(entry)

    def drop_unsound_promises(self) -> None:
        """What was promised places that are gone or sick by now asks again."""
        for entry in list(self.desk.book.active()):
            attempt = entry.attempt
            if attempt is not None and attempt.state == "promised" and not is_sound(self.desk, attempt):
                self.stop(entry, "requeued")

    def _go_on_elsewhere(self, entry: Entry) -> None:
        attempt, entry.following = entry.following, None
        assert attempt is not None
        entry.attempt, entry.phase = attempt, Phase.STARTING
        for task in attempt.live():
            if task.number in entry.succeeded:  # while it was on its way
                task.state, task.outcome, task.ended = "ended", "stopped", self.desk.now()
                self.desk.keep_attempt(entry, attempt, task)
        self.desk.events.append(JobSeen(entry.job()))
        self.desk.keep(entry)
        self.launch(entry)


def _told_places(places: Iterable[Placement]) -> list[dict[str, object]]:
    return [{"task": place.task, "node": place.node, "gpus": list(place.gpus)} for place in places]
