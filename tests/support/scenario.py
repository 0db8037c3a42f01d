"""Scenarios: a moment and what its user gets, written as YAML and run as tests.

A file under tests/scenarios holds `scenarios:`, a list of

    - name: a sentence saying what the user gets      # unique; the test's id
      rule: 10                                        # or [10, 12]
      snapshot: {...}                                 # a snapshot document; apiVersion and kind are filled in
      cycles: 1                                       # optional; else the plan runs to its fixed point
      expect: {...}                                   # see tests/support/expectations.py; a wrong key is an error

`now` is 2026-01-01T00:00:00Z unless the snapshot says otherwise.
Shorthands, each a plain rewriting of the document:

- A node or job with `times: 3` stands for three: `{i}` in any of its strings becomes 0, 1, 2 (a name without `{i}`
  gets it at its end).
- A time may be told from now: `submitted: -10m`, `until: +1h`; in `memory.evictions` too: `{a: [-2h, -10m]}`.
- A job's `at` says where it runs: `at: n0:0-3` is one task on GPUs 0 to 3 of n0; `at: [n0:0+1, n1:2+3]` are two
  tasks with two GPUs each; `at: n0` is a task without GPUs. `tasks` and `gpus` are then counted, unless the job gives
  them (a job with fraction, gpu_memory, mig or groups does). An entry that is a map is a placement as it is.
- `busy: {n0: 0-5, n1: 2+3}` adds one job a node (`busy-n0`, ...) that holds those GPUs and cannot be taken or moved.
  Only in a snapshot without queues.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parent.parent / "scenarios"
OTHERS = {"kubernetes"}
"""Folders of scenarios of another kind, with a runner of their own."""
NOW = "2026-01-01T00:00:00Z"
KEYS = {"name", "rule", "snapshot", "cycles", "expect"}
TIMES = {"submitted", "started", "waiting_since", "stale_since", "until", "last"}
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
OWN_SIZE = {"gpus", "fraction", "gpu_memory", "mig", "groups"}

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The same loader, ten times as fast where PyYAML has been compiled."""

Document = dict[str, Any]


class ScenarioError(Exception):
    """The scenario itself is wrong; nothing is said about the engine."""


@dataclass(frozen=True)
class Scenario:
    """One moment, and what must come of it."""

    name: str
    rules: tuple[int, ...]
    document: Document
    expect: Document
    cycles: int | None
    file: str

    @property
    def now(self) -> float:
        """The moment, in seconds since the epoch."""
        return moment(self.document["now"]).timestamp()

    def text(self, *, turned: bool = False) -> str:
        """The snapshot file; `turned` writes every list whose order means nothing backwards."""
        return json.dumps(turn(self.document) if turned else self.document)


# --- reading -------------------------------------------------------------------------------------


def load_all(folder: Path = FOLDER) -> list[Scenario]:
    """Every scenario below the folder, in the order of files and of their lines; names are unique."""
    files = [path for path in sorted(folder.rglob("*.yaml")) if path.parent.name not in OTHERS]
    found = [s for path in files for s in load(path, folder)]
    seen: dict[str, str] = {}
    for scenario in found:
        if scenario.name in seen:
            raise ScenarioError(f'"{scenario.name}" stands in {seen[scenario.name]} and in {scenario.file}')
        seen[scenario.name] = scenario.file
    return found


def load(path: Path, folder: Path = FOLDER) -> Iterator[Scenario]:
    """The scenarios of one file."""
    content = yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER)
    if not isinstance(content, dict) or set(content) != {"scenarios"}:
        raise ScenarioError(f"{path.name} must hold `scenarios:` and nothing else")
    for entry in content["scenarios"]:
        yield read(entry, path.relative_to(folder).as_posix())


def read(entry: Document, file: str) -> Scenario:
    """One scenario from its entry, with the shorthands written out."""
    name = str(entry.get("name", "a scenario without a name"))
    if unknown := set(entry) - KEYS:
        raise ScenarioError(f'{file}: "{name}" has unknown keys {sorted(unknown)}')
    if missing := {"name", "rule", "snapshot", "expect"} - set(entry):
        raise ScenarioError(f'{file}: "{name}" lacks {sorted(missing)}')
    rules = entry["rule"] if isinstance(entry["rule"], list) else [entry["rule"]]
    return Scenario(
        name=name,
        rules=tuple(rules),
        document=expand(entry["snapshot"]),
        expect=entry["expect"] or {},
        cycles=entry.get("cycles"),
        file=file,
    )


# --- shorthands ----------------------------------------------------------------------------------


def expand(snapshot: Document) -> Document:
    """The snapshot document with apiVersion, kind, now, and every shorthand written out."""
    document: Document = {"apiVersion": "gpuyard.dev/v1", "kind": "Snapshot", "now": NOW, **snapshot}
    document["policy"] = cold(document.get("policy", {}))
    busy = document.pop("busy", {})
    if busy and "queues" in document:
        raise ScenarioError("`busy` needs a snapshot without queues")
    jobs = [job for entry in document.get("jobs", []) for job in repeated(entry)]
    jobs += [{"name": f"busy-{n}", "preemptible": False, "at": f"{n}:{gpus}"} for n, gpus in busy.items()]
    document["jobs"] = [placed(job) for job in jobs]
    document["nodes"] = [node for entry in document.get("nodes", []) for node in repeated(entry)]
    now = moment(document["now"])
    dated: Document = with_times(document, now)
    remembered = dated.get("memory", {}).get("evictions", {})
    for job, times in remembered.items():
        remembered[job] = [moment(told(time, now)).timestamp() for time in times]
    return dated


def repeated(entry: Document) -> list[Document]:
    """The entry, as often as its `times` says."""
    entry = dict(entry)
    if "times" not in entry:
        return [entry]
    times = entry.pop("times")
    if "{i}" not in entry["name"]:
        entry["name"] += "{i}"
    return [counted(entry, i) for i in range(times)]


def counted(value: Any, i: int) -> Any:
    """The value with `{i}` filled in, at any depth."""
    if isinstance(value, str):
        return value.replace("{i}", str(i))
    if isinstance(value, list):
        return [counted(item, i) for item in value]
    if isinstance(value, dict):
        return {key: counted(item, i) for key, item in value.items()}
    return value


def placed(job: Document) -> Document:
    """The job with `at` written as placements."""
    job = dict(job)
    if "at" not in job:
        return job
    places = job.pop("at")
    placements = [placement(place) for place in (places if isinstance(places, list) else [places])]
    if not OWN_SIZE & set(job) and placements[0].get("gpus"):
        job["gpus"] = len(placements[0]["gpus"])
    if "groups" not in job:
        job.setdefault("tasks", len(placements))
    return {**job, "placements": placements}


def placement(place: str | Document) -> Document:
    """`n0:0-3` as a placement."""
    if isinstance(place, dict):
        return place
    node, _, gpus = place.partition(":")
    return {"node": node, "gpus": indices(gpus)} if gpus else {"node": node}


def indices(text: str | int) -> list[int]:
    """`0-2+5` as [0, 1, 2, 5]."""
    found: list[int] = []
    for part in str(text).split("+"):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def with_times(value: Any, now: datetime) -> Any:
    """The value with every time that is told from now written as a date."""
    if isinstance(value, list):
        return [with_times(item, now) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: told(item, now) if key in TIMES and isinstance(item, str) else with_times(item, now)
        for key, item in value.items()
    }


def told(text: str, now: datetime) -> str:
    """`-10m` as the date ten minutes ago."""
    relative = re.fullmatch(r"([+-])(\d+)([smhd])", text)
    if not relative:
        return text
    seconds = int(relative[2]) * UNITS[relative[3]] * (-1 if relative[1] == "-" else 1)
    return (now + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: str) -> datetime:
    """A date of the snapshot."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def cold(policy: Document) -> Document:
    """Restarts cost what a scenario says and nothing else: no class warms up unless it is told how long."""
    kinds = ("training", "inference", "interactive", "batch")
    classes = {kind: {"warm_up": 0, **policy.get("classes", {}).get(kind, {})} for kind in kinds}
    return {**policy, "classes": classes}


def turn(document: Document) -> Document:
    """The document with nodes, jobs, queues, pools and budgets backwards."""
    free = {"nodes", "jobs", "queues", "pools", "budgets", "reservations"}
    return {key: value[::-1] if key in free else value for key, value in document.items()}
