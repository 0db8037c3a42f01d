"""A yard made by hand, for tests of what stands in front of one: it remembers jobs and runs nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from gpuyard import files
from gpuyard.model.errors import Conflict, Never, NotFound
from gpuyard.runtime.service import Caller, Document

NOW = 1_767_225_600.0
GPUS = 16
PATIENCE_S = 120.0


class FakeYard:
    """Jobs of up to 8 GPUs a task start at once, larger ones never could; `finish` ends one."""

    def __init__(self) -> None:
        self.happened: list[Document] = []
        self.known: dict[str, Document] = {}
        self.output: dict[str, bytes] = {}
        self.keys: dict[str, list[Document]] = {}
        self.callers: list[Caller] = []
        self.queue_documents: dict[str, Document] = {"default": {"name": "default", "quota": "unlimited", "used": 0}}
        self.alert_documents: list[Document] = []
        self.gpu_metrics: list[Document] = []
        self.sensed: dict[int, Document] = {}
        self.started = False
        self.closed_with: bool | None = None
        self.checks: dict[str, str] = {"store": "ok", "loop": "ok"}
        self.left_out = ""
        self._news = threading.Condition()

    # --- the yard --------------------------------------------------------------------------------

    def start(self) -> None:
        self.started = True

    def close(self, jobs: bool = False) -> None:
        self.closed_with = jobs

    def status(self) -> Document:
        running = sum(job["phase"] == "running" for job in self.known.values())
        waiting = sum(job["phase"] in ("waiting", "held") for job in self.known.values())
        return {
            "pid": 4711, "version": "0.1.0", "since": NOW, "state": "/state", "virtual": True, "nodes": 2, "gpus": GPUS,
            "gpus_held": running, "gpus_free": 7, "gpus_sick": 1, "waiting": waiting, "running": running,
            "healthy": True, "checks": self.checks, "last_cycle": NOW,
            "left_out": self.left_out,
        }  # fmt: skip

    def measures(self) -> Document:
        return {
            "cycles": {"count": 3, "seconds": 0.25},
            "accounts": {"productive": 12.5, "free": 99.0},
            "waits": {"default": {"count": 2, "seconds": 1.5}},
            "evictions": {"Reclaimed": 1},
            "ended": {"succeeded": 2},
            "gpu_metrics": self.gpu_metrics,
        }

    def backup(self, caller: Caller, path: str) -> Document:
        return {"path": path, "bytes": 4096}

    # --- jobs ------------------------------------------------------------------------------------

    def submit(
        self, caller: Caller, jobs: Sequence[Document], key: str = "", queue_anyway: bool = False
    ) -> list[Document]:
        self.callers.append(caller)
        if key in self.keys:
            return self.keys[key]
        forecasts = self.preview(caller, jobs)
        for forecast in forecasts:
            if forecast["verdict"] == "never" and not queue_anyway:
                raise Never(forecast["message"])
        answers = [self._accept(caller, job, forecast) for job, forecast in zip(jobs, forecasts, strict=True)]
        if key:
            self.keys[key] = answers
        return answers

    def _accept(self, caller: Caller, job: Document, forecast: Document) -> Document:
        name = job["name"]
        if name in self.known:
            raise Conflict(f"There is a job '{name}' already.")
        starts = forecast["verdict"] == "starts"
        gpus = job.get("gpus", 0) * job.get("tasks", 1)
        self.known[name] = {
            "queue": "default", "class": "training", "user": caller.user, "tasks": 1, "gpus": 0, **job,
            "phase": "running" if starts else "waiting", "asked_gpus": gpus, "held_gpus": gpus if starts else 0,
            "submitted": "2026-01-01T00:00:00Z", "attempts": 1,
            "placements": [{"node": "n0", "gpus": [0]}] if starts else [],
        } | ({} if starts else {"reason": {"code": "NoRoom", "message": forecast["message"]}})  # fmt: skip
        self.output[name] = b""
        self.tell("submitted", name)
        return {"name": name, "phase": self.known[name]["phase"], "forecast": forecast}

    def preview(self, caller: Caller, jobs: Sequence[Document]) -> list[Document]:
        return [self._forecast(files.read_submission(job, NOW).job.name, job) for job in jobs]

    def _forecast(self, name: str, job: Document) -> Document:
        asked = job.get("gpus", 0)
        if asked > GPUS:
            return {"verdict": "never", "message": f"{name} asks for {asked} GPUs a task; the largest node has 8."}
        if asked > 8:
            return {"verdict": "waits", "message": f"{name} waits: {asked} GPUs are not free.", "price_per_hour": 60.0}
        told = {"sizing": {"message": "5 GPUs leave 3 GPUs of a node of 8"}} if asked == 5 else {}
        return {"verdict": "starts", "message": "starts now on n0.", "price_per_hour": 5.0} | told

    def jobs(self, caller: Caller, all_ended: bool = False, fields: Sequence[str] = ()) -> list[Document]:
        wanted = {field.partition(".")[0] for field in fields}
        return [{k: v for k, v in job.items() if not wanted or k in wanted} for job in self.known.values()]

    def job(self, caller: Caller, name: str) -> Document:
        if name not in self.known:
            raise NotFound(f"There is no job '{name}'.")
        return self.known[name]

    def why(self, caller: Caller, name: str) -> Document:
        job = self.job(caller, name)
        reason = {"suggestions": [{"change": "Ask for 8 GPUs", "kind": "job"}], **job.get("reason", {})}
        ladder = [{"rung": "quota", "holds": True, "nodes": 0}, {"rung": "shape", "holds": False, "nodes": 2}]
        if job["phase"] == "running":
            return {"job": name, "phase": "running", "placements": job["placements"]}
        return {"job": name, "phase": job["phase"], "reason": reason, "ladder": ladder}

    def act(self, caller: Caller, name: str, verb: str) -> Document:
        job = self.job(caller, name)
        if "exit_code" in job:
            raise Conflict(f"{name} has ended; it cannot be told to {verb}.")
        job["phase"] = {
            "cancel": "cancelled",
            "hold": "held",
            "requeuehold": "held",
            "release": "waiting",
            "requeue": "waiting",
        }[verb]
        self.tell(job["phase"], name)
        return job

    def logs(self, caller: Caller, name: str, task: int, offset: int) -> tuple[bytes, int, bool]:
        job = self.job(caller, name)
        output = self.output[name][offset:]
        return output, offset + len(output), job["phase"] in ("running", "waiting", "held")

    def attach(self, caller: Caller, name: str, task: int) -> str:
        if not self.job(caller, name).get("run", {}).get("tty"):
            raise Conflict(f"{name} has no terminal.")
        return "/tmp/terminal.sock"

    def finish(self, name: str, code: int = 0, output: bytes = b"") -> None:
        """The job ends, once it is there: who submits it may be slower than who says so."""
        until = time.monotonic() + PATIENCE_S
        while name not in self.output and time.monotonic() < until:
            time.sleep(0.01)
        self.output[name] += output
        self.known[name] |= {"phase": "failed" if code else "succeeded", "exit_code": code, "held_gpus": 0}
        self.tell("ended", name)

    # --- the fleet -------------------------------------------------------------------------------

    def nodes(self, caller: Caller) -> list[Document]:
        devices: list[Document] = [
            {"index": n, "uuid": f"GPU-{n}", "health": "sick" if n == 7 else "healthy", "island": 0,
             "jobs": ["a"] if n == 0 else [], "used": 1.0 if n == 0 else 0.0}
            for n in range(8)
        ]  # fmt: skip
        for device in devices:
            device |= self.sensed.get(device["index"], {})
        return [
            {"name": name, "pool": "h100", "model": "H100-SXM5-80GB", "gpus": 8, "domains": {"rack": "r0"}, "free": 6,
             "used": 1, "jobs": ["a"], "phase": "ready", "devices": devices}
            for name in ("n0", "n1")
        ]  # fmt: skip

    def drain(self, caller: Caller, place: Document, dry_run: bool = False) -> Document:
        name = place["node"] if place["gpu"] is None else f"{place['node']}:{place['gpu']}"
        return {
            "place": name, "applied": not dry_run, "stops": [],
            "stays": [{"job": "b", "message": "is not preemptible"}],
            "moves": [{"job": "a", "gpus": 1, "lost_gpu_seconds": 60.0, "to": ["n1"]}], "lost_gpu_seconds": 60.0,
            "message": f"{name}: 1 moves, 1 stays",
        }  # fmt: skip

    def undrain(self, caller: Caller, place: Document) -> Document:
        return {"place": place["node"], "message": f"{place['node']} is open again"}

    def alerts(self, caller: Caller) -> list[Document]:
        return list(self.alert_documents)

    def queues(self) -> list[Document]:
        return list(self.queue_documents.values())

    def overview(self, caller: Caller) -> Document:
        history = [[int(NOW) - 60, 4, 1, 2], [int(NOW), 6, 2, 1]]
        fragmentation: Document = {"free_gpus": 9, "stranded_gpus": 1, "largest_gang": {}}
        return {"history": history, "prospects": {}, "fragmentation": fragmentation}

    def delete_queue(self, caller: Caller, name: str, dry_run: bool) -> Document:
        if name not in self.queue_documents:
            raise NotFound(f"there is no queue {name}")
        if not dry_run:
            del self.queue_documents[name]
        return {"message": "nobody loses a GPU", "applied": not dry_run}

    def set_queue(self, caller: Caller, document: Document, dry_run: bool) -> Document:
        before = self.queue_documents.get(document["name"], {"name": document["name"]})
        if not dry_run:
            self.queue_documents[document["name"]] = before | document
        return {"queue": before | document, "message": f"{document['name']}: nobody loses a GPU."}

    def snapshot(self, caller: Caller) -> Document:
        return {
            "apiVersion": "gpuyard.dev/v1",
            "kind": "Snapshot",
            "nodes": [{"name": "n0", "gpus": 8, "model": "H100"}],
        }

    def report(self, caller: Caller, by: str, since: float) -> list[Mapping[str, Any]]:
        return [{"name": "u1", "gpu_seconds": 7200.0, "money": 12.5}]

    # --- events ----------------------------------------------------------------------------------

    def tell(self, kind: str, job: str) -> None:
        """Something happens."""
        with self._news:
            self.happened.append(
                {"id": len(self.happened) + 1, "at": NOW, "kind": kind, "job": job, "message": f"{job} {kind}"}
            )
            self._news.notify_all()

    def events(self, caller: Caller, after: int, limit: int) -> list[Document]:
        begin = max(0, len(self.happened) + 1 + after) if after < 0 else after
        return self.happened[begin : begin + limit]

    def wait_events(self, after: int, timeout: float) -> bool:
        with self._news:
            return self._news.wait_for(lambda: len(self.happened) > after, timeout)
