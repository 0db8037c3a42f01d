"""How this machine's GPUs are, and how busy those of each job: the agent's looks, brought together with who holds what.

Used by `control_plane`. A thread of its own looks, because NVML may take its time; what it finds goes into listings,
metrics, the ledger (each minute) and, as far as it says that a GPU is unwell, to the brain. Times of which nothing is
known are held, but count as neither productive nor idle.
"""

from __future__ import annotations

import platform
import threading
from collections.abc import Mapping
from typing import Any

from gpuyard.agent import verdicts
from gpuyard.agent.daemon import DcgmExporter
from gpuyard.agent.exporting import families
from gpuyard.agent.exporting.families import Export, GpuHolder
from gpuyard.agent.job_use import NOTHING, JobUse, JobUses
from gpuyard.agent.nvml.facts import told
from gpuyard.agent.verdicts import GpuHealth
from gpuyard.agent.watching import GpuView, MachineView, Watch
from gpuyard.model.node import Health, Place
from gpuyard.model.resources import WHOLE
from gpuyard.runtime.service import Document
from gpuyard.worlds.local.state import ledger
from gpuyard.worlds.local.state.records import Entry
from gpuyard.worlds.local.world import LocalWorld

EVERY_S = 10.0
BOOK_EVERY_S = 60.0
HEALTH = {"healthy": Health.HEALTHY, "suspect": Health.SUSPECT, "sick": Health.SICK, "unknown": Health.SUSPECT}
"""Of what is not known it is not said that it is well: it is used last."""


class Measuring:
    """The last look, and what each job's GPUs have done since the yard is up."""

    def __init__(self, world: LocalWorld, watch: Watch, every_s: float = EVERY_S) -> None:
        self._world, self._desk = world, world.desk
        self._watch = watch
        self._every_s = every_s
        nodes = world.desk.nodes.values()
        self._places = {gpu.uuid: Place(node.name, gpu.index) for node in nodes for gpu in node.gpus if gpu.uuid}
        self._uses = JobUses()
        self._other = DcgmExporter()
        self._unbooked: dict[int, tuple[Entry, JobUse]] = {}
        self._booked_at = world.desk.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="measuring", daemon=True)

    def start(self) -> None:
        """Look now, and again and again."""
        self._thread.start()

    def stop(self) -> None:
        """Leave off. A look that hangs is not waited for: its child is killed."""
        self._over.set()
        self._watch.close()
        if self._thread.is_alive():
            self._thread.join(10.0)
        self.book()

    def look(self) -> MachineView:
        """Once."""
        view = self._watch.look()
        if self._over.is_set():
            return view  # nobody was asked any more, which says nothing of any GPU
        with self._desk.lock:
            held = self._desk.holdings.by_device()
            entries = dict(self._desk.book.entries)
        shares = {
            uuid: {str(job): grains / WHOLE for job, grains in held.get((place.node, place.gpu or 0), {}).items()}
            for uuid, place in self._places.items()
        }
        fresh = self._uses.count(view.at, view.by_uuid(), shares)
        for job, use in fresh.items():
            if (entry := entries.get(int(job))) is not None:
                self._unbooked[entry.id] = (entry, self._unbooked.get(entry.id, (entry, NOTHING))[1] + use)
        self._tell_health(view)
        return view

    # --- what people are told --------------------------------------------------------------------

    def devices(self) -> Mapping[tuple[str, int], Document]:
        """Of each GPU what is known now."""
        view, now = self._watch.view, self._desk.now()
        known = view.by_uuid()
        return {
            (place.node, place.gpu or 0): _device(known.get(uuid), self._health(view, uuid, now))
            for uuid, place in self._places.items()
        }

    def metrics(self) -> list[Document]:
        """Every family under DCGM's names and the agent's own, as plain documents."""
        with self._desk.lock:
            held = self._desk.holdings.by_device()
            entries = self._desk.book.entries
            keys = {job: entries[job].key for jobs in held.values() for job in jobs if job in entries}
        on = {uuid: sorted(held.get((place.node, place.gpu or 0), ())) for uuid, place in self._places.items()}
        holders = {uuid: [GpuHolder(job=keys[job]) for job in jobs if job in keys] for uuid, jobs in on.items()}
        uses = {keys[int(job)]: use for job, use in self._uses.uses.items() if int(job) in keys}
        export = Export(self._watch.view, self._desk.now(), platform.node(), holders=holders, jobs=uses)
        silent = self._other.runs(self._desk.monotonic())
        found = (one for one in families.families(export) if not (silent and one.name.startswith(families.PREFIX)))
        return [{"name": one.name, "words": one.words, "kind": one.kind, "series": list(one.series)} for one in found]

    # --- the brain, and the ledger ---------------------------------------------------------------

    def _tell_health(self, view: MachineView) -> None:
        now = self._desk.now()
        for uuid, place in self._places.items():
            judged = self._health(view, uuid, now)
            health, index = HEALTH[judged.verdict], place.gpu or 0
            if self._desk.nodes[place.node].gpus[index].health is not health:
                self._world.breakage.set_health(place.node, index, health, why=judged.evidence)

    def _health(self, view: MachineView, uuid: str, now: float) -> GpuHealth:
        known = view.by_uuid().get(uuid)
        if known is not None:
            return verdicts.health(known, now)
        if not view.looks:
            return GpuHealth("healthy")  # as it was discovered, a moment ago
        return GpuHealth("unknown", str(view.trouble)) if view.trouble else GpuHealth("sick", "NVML does not list it")

    def book(self) -> None:
        """Write down what was measured; while the disk refuses it is kept for later."""
        if self._desk.trouble or not self._unbooked:
            return
        unbooked, self._unbooked = self._unbooked, {}
        with self._desk.change() as batch:
            for entry, use in unbooked.values():
                ledger.measure(batch, entry, self._desk.now(), (use.measured, use.busy))

    def _work(self) -> None:
        while True:
            self.look()
            if self._desk.monotonic() - self._booked_at >= BOOK_EVERY_S:
                self._booked_at = self._desk.monotonic()
                self.book()
            if self._over.wait(self._every_s):
                return


def _device(view: GpuView | None, judged: GpuHealth) -> Document:
    """What was not told is left out."""
    readings = view.readings if view is not None else None
    found: dict[str, Any] = {"measured": view.state if view is not None else "unknown", "evidence": judged.evidence}
    if view is not None and readings is not None:
        power, used = told(readings.power_mw), told(readings.utilization)
        found |= {
            "utilization": None if used is None else used / 100,
            "memory_used": told(readings.memory_used),
            "memory": told(view.facts.memory),
            "temperature": told(readings.temperature_c),
            "power": None if power is None else power / 1000,
        }
    return {key: value for key, value in found.items() if value not in (None, "")}
