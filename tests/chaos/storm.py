"""A storm over one yard: jobs and faults drawn from a seed, then calm, then the verdict.

Used by `python -m tests.chaos` and by the test. The yard is asked by its API alone, as users would; what is believed
comes from `truth`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from gpuyard.client import Client, Unreachable
from gpuyard.model.errors import Broken, Conflict, GpuYardError, NotFound, Refused, Unwritten
from tests.chaos import faults, ground
from tests.chaos.load import GPUS, NODES, Load, fleet
from tests.chaos.terminals import Terminals
from tests.chaos.truth import Blow, Truth, Verdict, Wish

OVER = ("succeeded", "failed", "cancelled")
ACTIVE_MAX = 12
"""So many jobs at once: a storm is to find mistakes, not to heat the machine."""
SETTLE_S = 600.0
REST_S = (0.02, 0.25)
STILL_S = 0.5
"""So long a control plane that stands still is asked."""
ACTS = ("cancel", "hold", "hold", "requeue")


@dataclass(frozen=True)
class Forecast:
    """What kind of storm."""

    seed: int
    seconds: float
    cgroup: bool = True
    without: frozenset[str] = frozenset()
    """What to leave out: faults, shapes of jobs, kinds of tasks, acts, `drain`, `preemption`, `terminal`."""


@dataclass
class Owed:
    """Something that was asked and not answered yet: it is asked until it is."""

    ask: Callable[[Client], Any]
    then: Callable[[], None] = lambda: None
    refused: Callable[[int], None] = lambda _tries: None
    tries: int = 0


@dataclass
class Outcome:
    """What a storm did, and what is wrong."""

    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Storm:
    """One storm, from the first job to the verdict."""

    def __init__(self, forecast: Forecast, folder: Path) -> None:
        self.forecast = forecast
        self.folder = folder
        self.dice = Random(forecast.seed)
        self.truth = Truth(folder / "truth")
        self.disk = ground.Disk(folder / "disk")
        self.clock = ground.WallClock(folder / "clock")
        self.plane = ground.Plane(folder, forecast.cgroup)
        self.load = Load(self.dice, self.truth.folder, forecast.without)
        self.outcome = Outcome(forecast.seed)
        self.wishes: dict[str, Wish] = {}
        self.blows: list[Blow] = []
        self._owed: list[Owed] = []
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._drained: set[tuple[str, int | None]] = set()
        self._phases: dict[str, str] = {}
        self.terminals = Terminals(self)
        (folder / "fleet.yaml").write_text(fleet(f"{os.getpid()}-{forecast.seed}"))

    # --- the whole -------------------------------------------------------------------------------

    def run(self) -> Outcome:
        try:
            self._blow()
            self._settle()
            self._judge()
        finally:
            self._clean_up()
        return self.outcome

    def _blow(self) -> None:
        end = self.now() + self.forecast.seconds
        while self.now() < end:
            self._come_due()
            self._keep_up()
            self._step()
            self._note_truth()
            time.sleep(self.dice.uniform(*REST_S))

    def _step(self) -> None:
        roll = self.dice.random()
        if roll < 0.45:
            self._submit()
        elif roll < 0.62:
            self._act()
        elif roll < 0.68:
            self._drain()
        elif roll < 0.76:
            self._sit()
        else:
            self._strike()
        self._pay()

    def now(self) -> float:
        return time.monotonic()

    def later(self, seconds: float, undo: Callable[[], Any]) -> None:
        """Do this when the time has come, and before the calm at the latest."""
        self._due.append((self.now() + seconds, undo))

    def note(self, what: str, more: object = "") -> None:
        """Count what was done, and keep when."""
        self.outcome.counts[what] += 1
        with (self.folder / "notes").open("a") as file:
            file.write(f"{self.now():.3f} {what} {more}\n")

    def wrong(self, sentence: str) -> None:
        if sentence not in self.outcome.wrong:
            self.outcome.wrong.append(sentence)

    def _come_due(self, all_of_it: bool = False) -> None:
        ripe = [each for each in self._due if all_of_it or each[0] <= self.now()]
        self._due = [each for each in self._due if each not in ripe]
        for _, undo in ripe:
            undo()

    # --- the control plane -----------------------------------------------------------------------

    def _keep_up(self) -> None:
        """A control plane that is gone is started again; one that went by itself is a mistake."""
        if self.plane.lives():
            return
        if self.plane.process is not None and not self.plane.killed:
            self._tell_died()
        if not self.disk.is_well and self.dice.random() < 0.5:
            return  # it may find no room to begin; somebody tries now and then
        self.plane.start(on_good_ground=self.disk.is_well)
        self.note("start of the control plane")
        answers = self.plane.await_answer(ground.PATIENCE_S if self.disk.is_well else 5.0)
        if not answers and self.plane.lives() and self.disk.is_well and not self.plane.killed:
            self.wrong(f"DEAF: the control plane does not come up: {self.plane.last_words()}")

    def _tell_died(self) -> None:
        """It may refuse to begin on a bad disk, in a sentence; nothing else may end it."""
        words = self.plane.last_words()
        if self.plane.has_answered or self.plane.on_good_ground or "Traceback" in words:
            self.wrong(f"DIED: the control plane ended by itself: {words}")

    def _strike(self) -> None:
        names = {name: weight for name, (weight, _) in faults.FAULTS.items() if name not in self.forecast.without}
        if names:
            name = self.dice.choices(list(names), list(names.values()))[0]
            self.note(name)
            faults.FAULTS[name][1](self)

    # --- asking ----------------------------------------------------------------------------------

    def _pay(self) -> None:
        """Ask what is owed; what is not answered stays owed, and whoever asked next waits too."""
        if self.plane.stopped and self.dice.random() < 0.8:
            return
        with self.plane.client(STILL_S if self.plane.stopped else ground.ANSWER_S) as client:
            for owed in list(self._owed):
                if not self._asked(client, owed):
                    return
                self._owed.remove(owed)

    def _asked(self, client: Client, owed: Owed) -> bool:
        """Whether there was an answer, yes or no."""
        owed.tries += 1
        try:
            owed.ask(client)
        except (Unreachable, Unwritten):
            return False
        except NotFound as error:
            self.wrong(f"LOST: {error}")
            return True
        except Broken as error:
            self.wrong(f"BROKEN: {error}")
            return False
        except Refused as error:
            if owed.tries > 1 and not isinstance(error, Conflict):
                return False  # an earlier try may have been heard
            owed.refused(owed.tries)
            return True
        except (GpuYardError, OSError) as error:
            self.wrong(f"BROKEN: {type(error).__name__}: {error}")
            return True
        owed.then()
        return True

    def ask(self, ask: Callable[[Client], Any], then: Callable[[], None] = lambda: None, **more: Any) -> None:
        self._owed.append(Owed(ask, then, **more))

    def _submit(self) -> None:
        active = [name for name in self.wishes if self._phases.get(name) not in OVER]
        if len(active) + sum(1 for _ in self._owed) >= ACTIVE_MAX:
            return
        document, wishes = self.load.draw()

        def accepted() -> None:
            self.outcome.counts["jobs"] += len(wishes)
            self.wishes.update({wish.name: wish for wish in wishes})

        self.ask(lambda client: client.submit([document], key=document["name"]), accepted)

    def _act(self) -> None:
        """Cancel, hold, release or queue anew somebody's job."""
        names = [name for name in self.wishes if self._phases.get(name) not in OVER] or list(self.wishes)
        if not names:
            return
        wish = self.wishes[self.dice.choice(names[-ACTIVE_MAX:])]
        verbs = [verb for verb in ACTS if verb not in self.forecast.without]
        if not verbs or wish.cancelled is not None:
            return
        verb = "release" if wish.held is not None else self.dice.choice(verbs)
        self.note(verb, wish.name)
        getattr(self, f"_{verb}")(wish)

    def _cancel(self, wish: Wish) -> None:
        def done() -> None:
            wish.cancelled = self.now()

        def refused(tries: int) -> None:
            if tries > 1:  # it has ended already: perhaps because an earlier try was heard
                done()

        self.ask(lambda client: client.cancel(wish.name), done, refused=refused)

    def _hold(self, wish: Wish) -> None:
        def done() -> None:
            wish.held = self.now()
            self.later(self.dice.uniform(1.0, 25.0), lambda: self._release(wish))

        self.ask(lambda client: client.hold(wish.name, requeue=True), done)

    def _release(self, wish: Wish) -> None:
        if wish.held is None:
            return
        asked = self.now()

        def done() -> None:
            if wish.held is not None:
                wish.holds.append((wish.held, asked))
                wish.held = None

        self.ask(lambda client: client.release(wish.name), done, refused=lambda _: done())

    def _requeue(self, wish: Wish) -> None:
        if any(blow.at > self.now() - 1 for blow in self.blows[-3:]):
            return

        def ask(client: Client) -> None:
            wish.requeued += 1  # also if no answer comes
            client.requeue(wish.name)

        self.ask(ask)

    def _drain(self) -> None:
        node = f"n{self.dice.randrange(NODES)}"
        gpu = self.dice.choice([None, None, *range(GPUS)])
        force = self.dice.random() < 0.3
        if len(self._drained) > 1 or "drain" in self.forecast.without:
            return
        self.note("drain", f"{node} {gpu} {force}")
        self._drained.add((node, gpu))
        self.ask(lambda client: client.drain(node, gpu, force=force))
        self.later(self.dice.uniform(1.0, 8.0), lambda: self._undrain(node, gpu))

    def _undrain(self, node: str, gpu: int | None) -> None:
        self.ask(lambda client: client.undrain(node, gpu), lambda: self._drained.discard((node, gpu)))
        self._drained.discard((node, gpu))

    def _sit(self) -> None:
        """Somebody sits down at a terminal, types a lot and reads nothing."""
        names = [name for name, wish in self.wishes.items() if wish.mode in ("deaf", "chatter")]
        running = [name for name in names if self._phases.get(name) == "running"]
        if "terminal" in self.forecast.without or self.plane.stopped:
            return
        if running:
            self.terminals.attach(running)
        elif self.dice.random() < 0.4:
            self.terminals.sit_down(self.load.command("chatter", 2.0))

    # --- looking ---------------------------------------------------------------------------------

    def _note_truth(self, all_ended: bool = False) -> None:
        """What can be seen at once: the yard's own word on what is free, against the locks. Of jobs that ended it names
        the newest without being asked for all."""
        if self.plane.stopped or not self.plane.lives():
            return
        before = self.now()
        try:
            with self.plane.client() as client:
                self._phases |= {job["name"]: job["phase"] for job in client.jobs(all_ended, ("name", "phase"))}
                nodes = client.nodes()
        except Unreachable:
            return
        except GpuYardError as error:
            if self.disk.is_well or isinstance(error, Broken):
                self.wrong(f"BROKEN: {error}")
            return
        free = [gpu["uuid"] for node in nodes for gpu in node["devices"] if not gpu["jobs"] and not gpu["used"]]
        for each in self.truth.held_since_before(before, free):
            self.wrong(f"TOLD FREE: {each}")

    # --- the calm --------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Everything is undone and answered; then every job must come to its end."""
        self._come_due(all_of_it=True)
        self.disk.mend()
        self.plane.signal(signal.SIGCONT)
        time.sleep(0.2)
        self._keep_up()
        until = self.now() + SETTLE_S
        while self.now() < until:
            self._come_due(all_of_it=True)
            self._keep_up()
            self._pay()
            self._note_truth(all_ended=True)
            if not self._owed and not self._unsettled():
                return
            time.sleep(0.3)
        self._tell_stuck()

    def _unsettled(self) -> list[str]:
        for wish in self.wishes.values():
            if wish.held is not None:
                self._release(wish)
        return [name for name in self.wishes if self._phases.get(name) not in OVER]

    def _tell_stuck(self) -> None:
        for owed in self._owed:
            self.wrong(f"STUCK: no answer after {owed.tries} tries")
        with self.plane.client() as client:
            for name in self._unsettled():
                with contextlib.suppress(GpuYardError):
                    job, why = client.job(name), client.why(name)
                    self.wrong(f"STUCK: {name} ({self.wishes[name].mode}) is {job['phase']}: {why} {job}")

    def _judge(self) -> None:
        try:
            phases = self._all_phases()
        except Unreachable as error:
            self.wrong(f"DEAF: {error} {self.plane.last_words()}")
            return
        if not self.plane.close():
            self.wrong("STUCK: the control plane does not close")
        for each in (*self._left_behind(), *self._broken()):
            self.wrong(each)
        self.plane.start()
        if not self.plane.await_answer() or self._all_phases() != phases:
            self.wrong("LOST: the state does not open again as it was")
        self.plane.kill()
        with contextlib.closing(sqlite3.connect(self.plane.state / "yard.db")) as file:
            told = file.execute("PRAGMA integrity_check").fetchone()[0]
            stopped = set(file.execute("SELECT job, attempt, serial FROM tasks WHERE outcome = 'stopped' AND exit = 0"))
        if told != "ok":
            self.wrong(f"LOST: the database is damaged: {told}")
        lines = self.truth.lines()
        for each in Verdict(lines, self.wishes, self.blows, stopped).wrong(phases):
            self.wrong(each)
        for line in lines:
            self.outcome.counts[f"tasks: {line.kind}"] += 1

    def _all_phases(self) -> dict[str, str]:
        with self.plane.client(60.0) as client:
            return {job["name"]: job["phase"] for job in client.jobs(all_ended=True, fields=("name", "phase"))}

    def _left_behind(self) -> Iterable[str]:
        """Processes, locks and control groups that outlived their jobs."""
        for pid, key in ground.supervisors(self.plane.state):
            yield f"LEFT: the supervisor {pid} of {key}"
        for pid in ground.workers(self.truth.folder):
            yield f"LEFT: the task {pid} of {ground.key_of(pid)}"
        for name, said in self.truth.held_locks():
            yield f"LEFT: {name} is still locked by {said}"
        for pid, name in ground.holders(self.truth.folder / "locks").items():
            yield f"LEFT: process {pid} has {name} open: {ground.described(pid)}"
        for path in ground.control_groups(self.plane.state):
            yield f"LEFT: the control group {path}"

    def _broken(self) -> Iterable[str]:
        """Turns that failed and jobs that were set aside: the yard went on, but it had met a bug."""
        for path in sorted(self.plane.state.glob("reports/turn-*")):
            with contextlib.suppress(ValueError):
                yield f"BROKEN: a turn failed: {json.loads(path.read_text())['traceback']}"
        for path in sorted(self.plane.state.glob("set-aside/*")):
            yield f"BROKEN: set aside: {path.read_text(errors='replace')[:500]}"

    def _clean_up(self) -> None:
        """Whatever is wrong, nothing of this storm stays on the machine."""
        self.terminals.close()
        self.plane.kill()
        for pid, _ in ground.supervisors(self.plane.state):
            ground.strike(pid, signal.SIGKILL)
        for pid in {*ground.workers(self.truth.folder), *ground.holders(self.truth.folder / "locks")} - {os.getpid()}:
            ground.strike(pid, signal.SIGKILL)
        self._keep_evidence()
        self.disk.remove()

    def _keep_evidence(self) -> None:
        for path in [*self.plane.state.glob("yard.db*"), *self.plane.state.glob("reports/*")]:
            shutil.copy(path, self.folder)


def run(forecast: Forecast) -> Outcome:
    """A whole storm; its folder is kept if anything is wrong."""
    folder = Path(tempfile.mkdtemp(prefix="yard-chaos-"))
    outcome = Storm(forecast, folder).run()
    if outcome.wrong:
        outcome.wrong.append(f"The evidence is in {folder}.")
    else:
        shutil.rmtree(folder)
    return outcome
