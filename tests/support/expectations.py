"""What a scenario may expect, and how it is checked: each difference is one sentence.

expect:
  started: [a, b]                      # or {a: {places}}; these jobs got a Start (growth too)
  started_only: [a, b]                 # these and no others
  not_started: [c]
  running: {a: {places}}               # the end state; also a list
  not_running: [c]
  waiting: {c: {...}}                  # or a list
  waiting_only: [c]
  evicted: {v: {for: a, code: Reclaimed}}   # whole gangs; also a list
  moved: {v: {for: a, to: [n1]}}            # also a list
  shrunk: {v: {by: 2, for: a}}              # some members of an elastic job go; also a list
  disturbed_only: [v]                  # nobody else is evicted, moved or shrunk; [] means nobody at all
  disturbed_count: 2                   # so many jobs are evicted, moved or shrunk
  reserved: {c: {places}}              # also a list
  not_reserved: [c]
  queues: {q: {quota: 8, limit: 16, used: 4, fair_share: 6.5}}
  fragmentation: {ratio: 1, stranded_gpus: 4, free: 32, largest_gang: {node: 4},
                      shapes: {8 in node: {now: 0, packed: 1}}}
  bill: {v: {gpus: 2, lost_gpu_s: 600, moved: true}}   # exactly these are disturbed, at this cost
  deadlocks: [{jobs: [a, b], break: b, message_has: holds}]     # [] means none

places, all optional:
  nodes: [n0, n1]        exactly these nodes          within: [n0, n1]    only such nodes
  not_on: [n2]           none of these                tasks_on: {n0: 2}   so many tasks there
  count: 4               so many tasks                layout: [4, 2]      tasks per node, most first
  gpus: 8                so many GPUs named in all    devices: 2          so many different ones
  gpus_on: {n0: [0, 1]}  exactly these GPUs there     gpus_within: {n0: [0, 1, 2]}  only such GPUs there
  same: rack             in one domain of it          apart: node         each task in its own
  across: {rack: 2}      in so many domains           domain: {rack: r0}  all in that one
  model: H100            all on that model            shares_with: x      a device in common with that job
  groups: {worker: {places}}                          after: [v]          (started) waits for these
  code: Fits             (started) the reason's code

waiting, all optional:
  code: Fragmented (or a list: any of them), outcome: never, where: rack, message_has: text (or a list),
  needed: 8, free: 32, largest_fit: 4 (GPUs; cores for NotEnoughCpu; bytes or 64Gi for NotEnoughMemory),
  suggests: [size, {kind: quota, has: "4"}], suggests_not: [quota], suggests_nothing: true,
      in_the_way: [x],                 # or exactly {x: {must: move, gpus: 2, lost: 600, preemptible: false}}
  ladder: {fragmentation: 8, model: 2}   nodes per rung; rungs left out are not looked at
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from gpuyard.model.actions import Evict, Move, Reserve, Start
from gpuyard.model.answers.outlook import Outlook, ShapeFit
from gpuyard.model.job import Placement
from gpuyard.model.queue import model_matches
from gpuyard.model.reasons import Code, Explanation, Rung
from gpuyard.model.resources import UNLIMITED, WHOLE
from gpuyard.model.snapshot import Snapshot
from tests.support.scenario import Document, ScenarioError
from tests.support.tasks import Task, of_job

KINDS = {"size", "gang", "model", "level", "move", "budget", "quota", "preemptible"}
SIZES = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}

Spec = dict[str, Any]
Problems = Iterator[str]


@dataclass(frozen=True)
class Result:
    """A snapshot and what came of it."""

    snapshot: Snapshot
    outlook: Outlook

    def tasks(self, job: str, placements: Iterable[Placement]) -> list[Task]:
        """The job's tasks in these places, those that are going left out."""
        known = next((j for j in self.snapshot.jobs if j.name == job), None)
        if known is None:
            raise ScenarioError(f"the scenario has no job {job}")
        return [task for task in of_job(self.snapshot, known, placements) if not task.placement.terminating]

    def running(self, job: str) -> list[Task]:
        """The job's tasks in the end state."""
        return self.tasks(job, [p for line in self.outlook.running if line.job == job for p in line.placements])


def differences(expect: Document, result: Result) -> list[str]:
    """Everything that is not as the scenario says."""
    found: list[str] = []
    for name, wanted in expect.items():
        check = CHECKS.get(name)
        if check is None:
            raise ScenarioError(f"`expect` has no key {name}; it has {sorted(CHECKS)}")
        found += check(wanted, result)
    return found


def named(wanted: Any) -> dict[str, Spec]:
    """A list of names or a map of specifications, as the latter."""
    if isinstance(wanted, dict):
        return {name: spec or {} for name, spec in wanted.items()}
    return {name: {} for name in wanted}


def strict(spec: Spec, allowed: Iterable[str], what: str) -> None:
    """A key that is not known is an error of the scenario."""
    if unknown := set(spec) - set(allowed):
        raise ScenarioError(f"{what} has unknown keys {sorted(unknown)}; it has {sorted(allowed)}")


def known_jobs(names: Iterable[str], result: Result) -> set[str]:
    """The names, each of which the snapshot must have."""
    found, there = set(names), {job.name for job in result.snapshot.jobs}
    if strangers := found - there:
        raise ScenarioError(f"the scenario expects something of {sorted(strangers)}, which it does not have")
    return found


# --- who starts, runs, waits ---------------------------------------------------------------------


def starts(result: Result) -> dict[str, Start]:
    """The Start of each job that has one."""
    return {action.job: action for action in result.outlook.actions if isinstance(action, Start)}


def check_started(wanted: Any, result: Result) -> Problems:
    """These jobs got a Start, in these places."""
    known_jobs(named(wanted), result)
    actions = starts(result)
    for job, spec in named(wanted).items():
        spec = dict(spec)
        after, code = spec.pop("after", None), spec.pop("code", None)
        if job not in actions:
            yield f"{job} should have been started"
            continue
        action = actions[job]
        yield from places(f"{job}, started", spec, result.tasks(job, action.placements), result)
        if after is not None and set(after) != set(action.after):
            yield f"{job} should start after {after}, not after {list(action.after)}"
        if code is not None and action.reason.code is not Code(code):
            yield f"{job} should start because {code}, not {action.reason.code.value}"


def check_started_only(wanted: list[str], result: Result) -> Problems:
    """These jobs got a Start and no others."""
    if known_jobs(wanted, result) != set(starts(result)):
        yield f"exactly {sorted(wanted)} should have been started, not {sorted(starts(result))}"


def check_not_started(wanted: list[str], result: Result) -> Problems:
    """These jobs got no Start."""
    yield from (f"{job} should not have been started" for job in known_jobs(wanted, result) & set(starts(result)))


def check_running(wanted: Any, result: Result) -> Problems:
    """These jobs run in the end, in these places."""
    known_jobs(named(wanted), result)
    for job, spec in named(wanted).items():
        tasks = result.running(job)
        if not tasks:
            yield f"{job} should run in the end"
        else:
            yield from places(f"{job}, running", spec, tasks, result)


def check_not_running(wanted: list[str], result: Result) -> Problems:
    """These jobs hold nothing in the end."""
    for job in sorted(known_jobs(wanted, result)):
        if result.running(job):
            yield f"{job} should not run in the end"


def check_waiting(wanted: Any, result: Result) -> Problems:
    """These jobs wait, for these reasons."""
    known_jobs(named(wanted), result)
    lines = {line.job: line for line in result.outlook.waiting}
    for job, spec in named(wanted).items():
        if job not in lines:
            yield f"{job} should wait"
        else:
            yield from explained(job, spec, lines[job])


def check_waiting_only(wanted: list[str], result: Result) -> Problems:
    """These jobs wait and no others."""
    lines = sorted(line.job for line in result.outlook.waiting)
    if known_jobs(wanted, result) != set(lines):
        yield f"exactly {sorted(wanted)} should wait, not {lines}"


# --- where ---------------------------------------------------------------------------------------


def places(what: str, spec: Spec, tasks: list[Task], result: Result) -> Problems:
    """The tasks against a specification of places."""
    strict(spec, PLACES, what)
    known = {node.name for node in result.snapshot.nodes}
    for key in ("nodes", "within", "not_on", "tasks_on", "gpus_on", "gpus_within"):
        if strangers := set(spec.get(key, ())) - known:
            raise ScenarioError(f"{what}: `{key}` names {sorted(strangers)}, which are no nodes")
    for key, wanted in spec.items():
        found = PLACES[key](tasks, wanted, result)
        if found is not None:
            yield f"{what}: `{key}` should be {wanted}, is {found}; tasks: {', '.join(map(str, tasks))}"


def differs(wanted: Any, found: Any) -> Any:
    """What was found, or None when it is what was wanted."""
    return None if wanted == found else found


def place_nodes(tasks: list[Task], wanted: list[str], result: Result) -> Any:
    return differs(sorted(wanted), sorted({task.node.name for task in tasks}))


def place_within(tasks: list[Task], wanted: list[str], result: Result) -> Any:
    return sorted({task.node.name for task in tasks} - set(wanted)) or None


def place_not_on(tasks: list[Task], wanted: list[str], result: Result) -> Any:
    return sorted({task.node.name for task in tasks} & set(wanted)) or None


def place_tasks_on(tasks: list[Task], wanted: dict[str, int], result: Result) -> Any:
    counts = Counter(task.node.name for task in tasks)
    return differs(wanted, {node: counts[node] for node in wanted})


def place_count(tasks: list[Task], wanted: int, result: Result) -> Any:
    return differs(wanted, len(tasks))


def place_layout(tasks: list[Task], wanted: list[int], result: Result) -> Any:
    counts = Counter(task.node.name for task in tasks)
    return differs(sorted(wanted, reverse=True), sorted(counts.values(), reverse=True))


def place_gpus(tasks: list[Task], wanted: int, result: Result) -> Any:
    return differs(wanted, sum(len(task.placement.gpus) for task in tasks))


def place_devices(tasks: list[Task], wanted: int, result: Result) -> Any:
    return differs(wanted, len({device for task in tasks for device in task.devices}))


def gpus_there(tasks: list[Task], nodes: Iterable[str]) -> dict[str, list[int]]:
    """The different GPUs held on each of the nodes."""
    return {name: sorted({gpu for task in tasks for node, gpu in task.devices if node == name}) for name in nodes}


def place_gpus_on(tasks: list[Task], wanted: dict[str, list[int]], result: Result) -> Any:
    return differs({node: sorted(gpus) for node, gpus in wanted.items()}, gpus_there(tasks, wanted))


def place_gpus_within(tasks: list[Task], wanted: dict[str, list[int]], result: Result) -> Any:
    found = gpus_there(tasks, wanted)
    return None if all(set(found[node]) <= set(gpus) for node, gpus in wanted.items()) else found


def domains(tasks: list[Task], level: str) -> set[tuple[str, ...]]:
    """The domains of a level that the tasks lie in."""
    return {domain for task in tasks for domain in task.domains(level)}


def place_same(tasks: list[Task], wanted: str, result: Result) -> Any:
    found = domains(tasks, wanted)
    return None if len(found) == 1 else sorted(found)


def place_apart(tasks: list[Task], wanted: str, result: Result) -> Any:
    found = domains(tasks, wanted)
    return None if len(found) == len(tasks) else sorted(found)


def place_across(tasks: list[Task], wanted: dict[str, int], result: Result) -> Any:
    return differs(wanted, {level: len(domains(tasks, level)) for level in wanted})


def place_domain(tasks: list[Task], wanted: dict[str, str], result: Result) -> Any:
    found = {level: sorted(domains(tasks, level)) for level in wanted}
    return differs({level: [(name,)] for level, name in wanted.items()}, found)


def place_model(tasks: list[Task], wanted: str, result: Result) -> Any:
    found = {task.node.model for task in tasks}
    return None if all(model_matches(wanted, model) for model in found) else sorted(found)


def place_shares_with(tasks: list[Task], wanted: str, result: Result) -> Any:
    theirs = {device for task in result.running(wanted) for device in task.devices}
    ours = {device for task in tasks for device in task.devices}
    return None if ours & theirs else sorted(ours)


def place_groups(tasks: list[Task], wanted: dict[str, Spec], result: Result) -> Any:
    found: list[str] = []
    for group, spec in wanted.items():
        found += places(f"group {group}", spec or {}, [t for t in tasks if t.group.name == group], result)
    return found or None


PLACES: dict[str, Callable[[list[Task], Any, Result], Any]] = {
    "nodes": place_nodes,
    "within": place_within,
    "not_on": place_not_on,
    "tasks_on": place_tasks_on,
    "count": place_count,
    "layout": place_layout,
    "gpus": place_gpus,
    "devices": place_devices,
    "gpus_on": place_gpus_on,
    "gpus_within": place_gpus_within,
    "same": place_same,
    "apart": place_apart,
    "across": place_across,
    "domain": place_domain,
    "model": place_model,
    "shares_with": place_shares_with,
    "groups": place_groups,
}


# --- why not -------------------------------------------------------------------------------------

EXPLAINED = {
    "code", "outcome", "where", "message_has", "needed", "free", "largest_fit", "suggests", "suggests_not",
    "suggests_nothing", "in_the_way", "ladder",
}  # fmt: skip


def explained(job: str, spec: Spec, line: Explanation) -> Problems:
    """One explanation against its specification."""
    strict(spec, EXPLAINED, f"{job}, waiting")
    reason = line.reason
    codes = [Code(code) for code in listed(spec.get("code", reason.code.value))]
    if reason.code not in codes:
        yield f"{job} should wait with {' or '.join(c.value for c in codes)}, not {reason.code.value}"
    for key, found in (("outcome", reason.outcome.value), ("where", reason.where)):
        if key in spec and spec[key] != found:
            yield f"{job}: `{key}` should be {spec[key]}, is {found or 'empty'}"
    for key in ("needed", "free", "largest_fit"):
        amount = getattr(reason, key)
        if key in spec and (amount is None or abs(amount - quantity(spec[key], reason.code)) > 2):
            yield f"{job}: `{key}` should be {spec[key]}, is {amount}"
    for text in listed(spec.get("message_has", [])):
        if text.lower() not in str(reason).lower():
            yield f'{job}: the message should have "{text}", is "{reason}"'
    yield from suggested(job, spec, line)
    yield from on_the_ladder(job, spec.get("ladder", {}), line)
    yield from blocked(job, spec.get("in_the_way", ()), line)


def blocked(job: str, wanted: Any, line: Explanation) -> Problems:
    """Who is said to stand in the way; a map names all of them."""
    found = {obstacle.job: obstacle for obstacle in line.in_the_way}
    if absent := set(wanted) - set(found):
        yield f"{job}: {sorted(absent)} should be said to stand in the way, not {sorted(found)}"
    elif isinstance(wanted, dict) and (more := set(found) - set(wanted)):
        yield f"{job}: {sorted(more)} should not be said to stand in the way"
    else:
        for name, spec in named(wanted).items():
            yield from amounts(f"{name}, in the way of {job}", spec, found[name])


def amounts(what: str, spec: Spec, found: object) -> Problems:
    """Each named part of a value; GPUs are counted whole."""
    for key, expected in spec.items():
        amount = getattr(found, key, None)
        told = gpus(amount) if key == "gpus" and amount is not None else amount
        if told is None or isinstance(expected, bool) != isinstance(told, bool) or not near(expected, told):
            yield f"{what}: `{key}` should be {expected}, is {told}"


def suggested(job: str, spec: Spec, line: Explanation) -> Problems:
    """The suggestions an explanation must or must not have."""
    told = "; ".join(f"{s.kind}: {s.change} {s.effect}" for s in line.suggestions) or "nothing"
    if spec.get("suggests_nothing") and line.suggestions:
        yield f"{job}: nothing should be suggested, not {told}"
    if bad := {s.kind for s in line.suggestions} & set(spec.get("suggests_not", ())):
        yield f"{job}: {sorted(bad)} should not be suggested, but it is: {told}"
    for wanted in spec.get("suggests", []):
        wanted = {"kind": wanted} if isinstance(wanted, str) else wanted
        strict(wanted, {"kind", "has"}, f"{job}, suggests")
        if wanted["kind"] not in KINDS:
            raise ScenarioError(f"there is no suggestion of kind {wanted['kind']}; there are {sorted(KINDS)}")
        words = [str(word).lower() for word in listed(wanted.get("has", []))]
        if not any(s.kind == wanted["kind"] and said(s.change + " " + s.effect, words) for s in line.suggestions):
            yield f"{job}: {wanted} should be suggested, not {told}"


def said(text: str, words: list[str]) -> bool:
    """Whether all the words are in the text."""
    return all(word in text.lower() for word in words)


def on_the_ladder(job: str, wanted: dict[str, int], line: Explanation) -> Problems:
    """The nodes counted on each rung that the scenario names."""
    titles = {rung.title for rung in Rung}
    if strangers := set(wanted) - titles:
        raise ScenarioError(f"the ladder has no rungs {sorted(strangers)}; it has {sorted(titles)}")
    found = {step.rung.title: step.nodes for step in line.ladder}
    for rung, nodes in wanted.items():
        if found.get(rung, 0) != nodes:
            yield f"{job}: {nodes} nodes should fail first at {rung}; the ladder is {found}"


def listed(value: Any) -> list[Any]:
    """One thing or several, as a list."""
    return value if isinstance(value, list) else [value]


def quantity(value: float | str, code: Code) -> float:
    """An amount of the scenario in the reason's own unit."""
    if isinstance(value, str):
        return float(value[:-2]) * SIZES[value[-2:]]
    if code is Code.NOT_ENOUGH_MEMORY:
        return value
    return value * (1000 if code is Code.NOT_ENOUGH_CPU else WHOLE)


# --- who gives way -------------------------------------------------------------------------------


def check_evicted(wanted: Any, result: Result) -> Problems:
    """These jobs are evicted whole."""
    whole = {a.job: a for a in result.outlook.actions if isinstance(a, Evict) and not a.placements}
    known_jobs(named(wanted), result)
    for job, spec in named(wanted).items():
        strict(spec, {"for", "code"}, f"{job}, evicted")
        if job not in whole:
            yield f"{job} should have been evicted"
            continue
        yield from because(job, spec, whole[job])


def check_shrunk(wanted: Any, result: Result) -> Problems:
    """These jobs lose some members."""
    parts = {a.job: a for a in result.outlook.actions if isinstance(a, Evict) and a.placements}
    known_jobs(named(wanted), result)
    for job, spec in named(wanted).items():
        strict(spec, {"by", "for", "code"}, f"{job}, shrunk")
        if job not in parts:
            yield f"{job} should have been shrunk"
            continue
        if "by" in spec and len(parts[job].placements) != spec["by"]:
            yield f"{job} should have lost {spec['by']} members, not {len(parts[job].placements)}"
        yield from because(job, spec, parts[job])


def check_moved(wanted: Any, result: Result) -> Problems:
    """These jobs are moved."""
    moves = {a.job: a for a in result.outlook.actions if isinstance(a, Move)}
    known_jobs(named(wanted), result)
    for job, spec in named(wanted).items():
        strict(spec, {"to", "for", "code"}, f"{job}, moved")
        if job not in moves:
            yield f"{job} should have been moved"
            continue
        nodes = sorted({place.node for place in moves[job].target})
        if "to" in spec and nodes != sorted(spec["to"]):
            yield f"{job} should have been moved to {spec['to']}, not {nodes}"
        yield from because(job, spec, moves[job])


def because(job: str, spec: Spec, action: Evict | Move) -> Problems:
    """For whom and why a job is disturbed."""
    if "for" in spec and action.beneficiary != spec["for"]:
        yield f"{job} should have been disturbed for {spec['for']}, not for {action.beneficiary or 'nobody'}"
    if "code" in spec and action.reason.code not in [Code(code) for code in listed(spec["code"])]:
        yield f"{job} should have been disturbed because {spec['code']}, not {action.reason.code.value}"


def check_disturbed_only(wanted: list[str], result: Result) -> Problems:
    """Nobody else is evicted, moved or shrunk."""
    found = {a.job for a in result.outlook.actions if isinstance(a, Evict | Move)}
    if found - known_jobs(wanted, result):
        yield f"nobody but {sorted(wanted)} should have been disturbed, but {sorted(found - set(wanted))} were"


def check_disturbed_count(wanted: int, result: Result) -> Problems:
    """So many jobs are disturbed, whoever they are."""
    found = sorted({a.job for a in result.outlook.actions if isinstance(a, Evict | Move)})
    if len(found) != wanted:
        yield f"{wanted} jobs should have been disturbed, not {len(found)}: {found}"


def check_reserved(wanted: Any, result: Result) -> Problems:
    """These jobs get a reservation, in these places."""
    known_jobs(named(wanted), result)
    kept = {a.job: a for a in result.outlook.actions if isinstance(a, Reserve)}
    for job, spec in named(wanted).items():
        if job not in kept:
            yield f"{job} should have a reservation"
        else:
            yield from places(f"{job}, reserved", spec, result.tasks(job, kept[job].placements), result)


def check_not_reserved(wanted: list[str], result: Result) -> Problems:
    """These jobs get no reservation."""
    kept = {a.job for a in result.outlook.actions if isinstance(a, Reserve)}
    yield from (f"{job} should not have a reservation" for job in sorted(known_jobs(wanted, result) & kept))


def check_deadlocks(wanted: list[Spec], result: Result) -> Problems:
    """Exactly these cycles are named."""
    found = {frozenset(d.jobs): d for d in result.outlook.deadlocks}
    if {frozenset(spec["jobs"]) for spec in wanted} != set(found):
        yield f"the deadlocks should be {[s['jobs'] for s in wanted]}, not {sorted(map(sorted, found))}"
        return
    for spec in wanted:
        strict(spec, {"jobs", "break", "message_has", "way_out_has"}, "a deadlock")
        deadlock = found[frozenset(spec["jobs"])]
        if spec.get("break", deadlock.victim) != deadlock.victim:
            yield f"{spec['break']} should break the deadlock, not {deadlock.victim}"
        for part, said in (("message", deadlock.message), ("way_out", deadlock.way_out)):
            for text in listed(spec.get(f"{part}_has", [])):
                if text.lower() not in said.lower():
                    yield f'the deadlock\'s {part} should have "{text}", is "{said}"'


# --- what is said --------------------------------------------------------------------------------


def gpus(amount: float) -> float | str:
    """Nano-GPU as GPUs."""
    return "unlimited" if amount >= UNLIMITED else amount / WHOLE


def near(wanted: float | str, found: float | str) -> bool:
    """Equal, shares of a device being rounded."""
    if isinstance(wanted, str) or isinstance(found, str):
        return wanted == found
    return abs(wanted - found) < 1e-3


def check_queues(wanted: dict[str, Spec], result: Result) -> Problems:
    """What these queues hold and are due."""
    lines = {line.name: line for line in result.outlook.queues}
    for name, spec in wanted.items():
        strict(spec, {"quota", "limit", "used", "fair_share"}, f"queue {name}")
        if name not in lines:
            yield f"queue {name} should be listed"
            continue
        for key, amount in spec.items():
            found = gpus(getattr(lines[name], key))
            if not near(amount, found):
                yield f"queue {name}: `{key}` should be {amount}, is {found}"


def check_bill(wanted: dict[str, Spec], result: Result) -> Problems:
    """What it costs that these are disturbed."""
    found = {toll.job: toll for toll in result.outlook.bill.tolls}
    if set(found) != known_jobs(wanted, result):
        yield f"the bill should name {sorted(wanted)}, names {sorted(found)}"
        return
    for job, spec in wanted.items():
        yield from amounts(f"the bill of {job}", spec, found[job])


def check_fragmentation(wanted: Spec, result: Result) -> Problems:
    """The numbers of rule 25."""
    strict(wanted, {"ratio", "stranded_gpus", "free", "largest_gang", "shapes"}, "fragmentation")
    found = result.outlook.fragmentation
    numbers = {"ratio": found.ratio, "stranded_gpus": gpus(found.stranded), "free": gpus(found.free)}
    for key in numbers.keys() & wanted.keys():
        if not near(wanted[key], numbers[key]):
            yield f"fragmentation: `{key}` should be {wanted[key]}, is {numbers[key]}"
    gangs = dict(found.largest_gang)
    for level, size in wanted.get("largest_gang", {}).items():
        if gangs.get(level) != size:
            yield f"the largest gang in a {level} should be {size}, is {gangs.get(level)}"
    for name, spec in wanted.get("shapes", {}).items():
        yield from shape(name, spec, found.shapes)


def shape(name: str, spec: Spec, shapes: tuple[ShapeFit, ...]) -> Problems:
    """`8 in node` against what is said of it."""
    size, _, level = name.partition(" in ")
    fit = next((s for s in shapes if s.gpus == int(size) and s.level == level), None)
    strict(spec, {"now", "packed"}, f"shape {name}")
    if fit is None:
        yield f"nothing is said of {name}"
        return
    for key, count in spec.items():
        if getattr(fit, key) != count:
            yield f"{name}: {count} should fit {key}, not {getattr(fit, key)}"


CHECKS: dict[str, Callable[[Any, Result], Problems]] = {
    "started": check_started,
    "started_only": check_started_only,
    "not_started": check_not_started,
    "running": check_running,
    "not_running": check_not_running,
    "waiting": check_waiting,
    "waiting_only": check_waiting_only,
    "evicted": check_evicted,
    "moved": check_moved,
    "shrunk": check_shrunk,
    "disturbed_only": check_disturbed_only,
    "disturbed_count": check_disturbed_count,
    "reserved": check_reserved,
    "not_reserved": check_not_reserved,
    "queues": check_queues,
    "fragmentation": check_fragmentation,
    "bill": check_bill,
    "deadlocks": check_deadlocks,
}
