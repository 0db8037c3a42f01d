"""From a job and its places to what each supervisor is told: command, environment, GPUs, ranks, limits.

Called by `lifecycle` when an attempt begins. Of the server's own environment only what is listed here reaches a task.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import stat
from collections.abc import Mapping
from dataclasses import dataclass

from gpuyard.model.job import Job
from gpuyard.model.node import Node
from gpuyard.model.outside.phrases import duration
from gpuyard.model.ownership import Owner
from gpuyard.worlds.local.launching import containers
from gpuyard.worlds.local.ports import StopOrder, TaskKey, TaskOrder, TaskWarning
from gpuyard.worlds.local.state.records import Attempt, Entry, Task

KEPT = ("PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
"""What a task inherits from the server: where programs are and how text is written, never how libraries load."""

PIPE = "GPUYARD_PROGRESS"
"""The variable that tells a task where to tell how far it is."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ADDRESS = "127.0.0.1"
TERM_GRACE_S = 10.0
LAST_RESORT_S = 15.0
"""So much later than the brain would a supervisor end a task at its time limit."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What orders depend on besides the job: the machine's environment and the mark that tells yards apart."""

    mark: str
    base: Mapping[str, str]
    engine: str = ""
    """The program that runs images, by its whole path; empty where there is none."""
    pipes: str = ""
    """The folder of the pipes by which tasks tell how far they are."""


def surroundings(folder: str, environ: Mapping[str, str], shared: bool = False) -> Surroundings:
    """Of a state folder and the server's environment; where many share it, only what is nobody's in particular."""
    base = {name: environ[name] for name in KEPT if name in environ and not (shared and name == "TMPDIR")}
    base = {"PATH": PATH} | base
    if shared:
        base["PATH"] = ":".join(filter(everybodys, base["PATH"].split(":"))) or PATH
    mark = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    return Surroundings(mark, base, containers.find(base["PATH"]), f"{folder}/progress")


def everybodys(folder: str) -> bool:
    """Whether programs of a folder may be run for anybody: all can get there, and only root puts something there."""
    if folder in PATH.split(":") or not folder.startswith("/"):
        return folder.startswith("/")
    path = pathlib.Path(folder).resolve()
    try:
        return _is_roots(path.stat()) and all(_is_roots(each.stat(), among_others=True) for each in path.parents)
    except OSError:
        return False


def _is_roots(found: os.stat_result, among_others: bool = False) -> bool:
    """A folder that root alone changes; above it also a sticky one, in which root's own stays root's."""
    kept = not found.st_mode & 0o022 or (among_others and bool(found.st_mode & stat.S_ISVTX))
    return found.st_uid == 0 and kept and bool(found.st_mode & stat.S_IXOTH)


def order(entry: Entry, attempt: Attempt, task: Task, node: Node, around: Surroundings) -> TaskOrder:
    """What one supervisor is told."""
    job = entry.description()
    assert job.run is not None
    key = TaskKey(entry.id, attempt.number, task.serial)
    env = environment(entry, attempt, task, node, around)
    checkpoint = job.checkpoint
    asked = next(group.request for group in job.task_groups() if group.name == task.placement.group)
    return TaskOrder(
        key=key,
        wave=task.wave,
        rank=task.rank,
        command=_command(entry, task, node, env, around.engine),
        env=tuple(sorted(env.items())),
        workdir=job.run.workdir,
        gang=len(attempt.tasks) > 1,
        uid=entry.owner.uid,
        gid=entry.owner.gid,
        user=entry.owner.user,
        time_limit=last_resort(job),
        warn_signal=checkpoint.signal if checkpoint else "",
        warn_grace=checkpoint.grace if checkpoint else 0.0,
        memory=asked.memory,
        cpu=asked.cpu,
        tty=job.run.tty,
        container=container_name(env) if job.run.image else "",
        home=_person(entry.owner).get("HOME", "/"),
        progress=PIPE in env,
    )


def last_resort(job: Job) -> float:
    """When a supervisor ends its task by itself: limits are the brain's business, and hold while nobody decides."""
    if job.time_limit is None:
        return 0.0
    return job.time_limit + LAST_RESORT_S


def environment(entry: Entry, attempt: Attempt, task: Task, node: Node, around: Surroundings) -> dict[str, str]:
    """A clean one: the base, what the job asked for, and what says where it is."""
    job = entry.description()
    assert job.run is not None
    env = {**around.base, **_person(entry.owner), **dict(job.run.env)}
    env["CUDA_VISIBLE_DEVICES"] = ",".join(devices_of(node, task))
    env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    env |= _ranks(job, attempt, task)
    env |= {
        "GPUYARD_JOB": entry.name, "GPUYARD_TASK": str(task.placement.task), "GPUYARD_GROUP": task.placement.group,
        "GPUYARD_ATTEMPT": str(attempt.number), "GPUYARD_NODE": task.placement.node, "GPUYARD_QUEUE": job.queue,
        "GPUYARD_GPUS": ",".join(map(str, task.placement.gpus)),
        "GPUYARD_MARK": f"{around.mark}-{entry.id}-{attempt.number}-{task.serial}",
    }  # fmt: skip
    env.pop(PIPE, None)  # no job names a path that a container is given
    if around.pipes and (not job.run.image or containers.can_mount(around.pipes)):
        env[PIPE] = f"{around.pipes}/{TaskKey(entry.id, attempt.number, task.serial).file}"
    if entry.member is not None:
        env |= {"GPUYARD_ARRAY": entry.template.name, "GPUYARD_ARRAY_INDEX": str(entry.member)}
    return env


def _person(owner: Owner) -> dict[str, str]:
    """Who the task is, as far as programs ask."""
    import pwd

    try:
        found = pwd.getpwuid(owner.uid if owner.uid >= 0 else os.getuid())
    except KeyError:
        return {"USER": owner.user, "LOGNAME": owner.user}
    return {"USER": found.pw_name, "LOGNAME": found.pw_name, "HOME": found.pw_dir, "SHELL": found.pw_shell}


def _ranks(job: Job, attempt: Attempt, task: Task) -> dict[str, str]:
    """One task is one rank; each sees its own GPUs only, so its local rank is 0. PET_* is what torchrun reads."""
    most = sum(group.tasks for group in job.task_groups())
    least = sum(group.min for group in job.task_groups())
    nodes = str(most) if least == most else f"{least}:{most}"
    port = str(attempt.port)
    return {
        "MASTER_ADDR": ADDRESS, "MASTER_PORT": port, "RANK": str(task.rank), "WORLD_SIZE": str(len(attempt.live())),
        "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "PET_NNODES": nodes, "PET_NODE_RANK": str(task.rank),
        "PET_MASTER_ADDR": ADDRESS, "PET_MASTER_PORT": port,
    }  # fmt: skip


def devices_of(node: Node, task: Task) -> list[str]:
    """The UUIDs of a task's GPUs; of a cut GPU those of its slices, for CUDA opens no other."""
    place = task.placement
    if place.mig:
        return [slice_uuid(node, gpu, number) for gpu, number in zip(place.gpus, task.slices, strict=True)]
    return [uuid_of(node, index) for index in place.gpus]


def uuid_of(node: Node, index: int) -> str:
    """The device's UUID; a virtual GPU has one made up from its place, the same every time."""
    return node.gpus[index].uuid or f"GPU-{_made_up(f'{node.name}/{index}')}"


def slice_uuid(node: Node, index: int, number: int) -> str:
    """The MIG device's UUID; a virtual one has one made up."""
    known = node.gpus[index].slice_uuids
    return known[number] if known else f"MIG-{_made_up(f'{node.name}/{index}/{number}')}"


def _made_up(place: str) -> str:
    text = hashlib.sha256(place.encode()).hexdigest()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"


def stop_order(job: Job, why: str, gently: bool, term_grace: float = TERM_GRACE_S) -> StopOrder:
    """Gently: with the checkpoint signal and its grace, where the job knows one. A job that names no checkpoint gets
    none: SIGUSR1 ends a program that does not expect it. One whose time is up reads so in its own output."""
    saving = job.checkpoint if gently else None
    told = ""
    if why == "timeout":
        grace = f"{duration(saving.grace)} to save its work, told by {saving.signal}" if saving else "it ends now"
        told = f"its time limit of {duration(job.time_limit or 0.0)} is over: {grace}"
    if saving is None:
        return StopOrder(why, term_grace=term_grace, told=told)
    return StopOrder(why, saving.signal, saving.grace, term_grace, told)


def warning(job: Job, told: str) -> TaskWarning:
    """For a job that goes on: in its output, and by the checkpoint signal if it names one."""
    by = f"; told by {job.checkpoint.signal}: save your work" if job.checkpoint is not None else ""
    return TaskWarning(told + by, job.checkpoint.signal if job.checkpoint is not None else "")


def _command(entry: Entry, task: Task, node: Node, env: Mapping[str, str], engine: str) -> tuple[str, ...]:
    """What to execute: the job's own words, or those that run them in its image."""
    run = entry.description().run
    assert run is not None
    if not run.image:
        return run.command
    real = tuple(uuid for uuid in devices_of(node, task) if any(gpu.uuid for gpu in node.gpus))
    box = containers.Box(engine, container_name(env), real, entry.owner.uid, env.get(PIPE, ""))
    return containers.command(run, box, env)


def container_name(env: Mapping[str, str]) -> str:
    """One for each task of each attempt, on this machine."""
    return f"gpuyard-{env['GPUYARD_MARK']}"
