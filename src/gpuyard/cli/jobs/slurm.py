"""Slurm batch scripts: `#SBATCH` lines as a job's document. Called by `submit`.

What has a counterpart is translated; what has none is warned about, by name, and never silently dropped. Like sbatch
this reads directives only up to the first line of the script proper.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuyard.cli.jobs import environment, slurm_shell
from gpuyard.model.errors import Refused
from gpuyard.model.outside import phrases

Document = dict[str, Any]

DIRECTIVE = re.compile(r"^#SBATCH\s+(.*)$")
SHORT = {
    "J": "job-name", "p": "partition", "t": "time", "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "G": "gpus",
    "a": "array", "d": "dependency", "D": "chdir", "o": "output", "e": "error", "A": "account", "q": "qos",
    "w": "nodelist", "x": "exclude", "C": "constraint",
}  # fmt: skip
FLAGS = {"exclusive", "requeue", "no-requeue", "hold", "overcommit", "H"}
SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
INTERPRETERS = ("python",)
MIB_UNITS = {"": "Mi", "K": "Ki", "M": "Mi", "G": "Gi", "T": "Ti"}


@dataclass
class Script:
    """What the directives ask for, and what of it cannot be had here."""

    document: Document = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    nodes: int = 0
    ntasks: int = 0
    tasks_per_node: int = 0
    gpus_total: int = 0
    gpus_per_node: int = 0
    gpus_per_task: int = 0
    output: str = ""
    error: str = ""
    export: str = ""


def is_script(text: str) -> bool:
    """Whether a file is a script with Slurm's directives, and not a job file."""
    return text.startswith("#!") or any(DIRECTIVE.match(line) for line in text.splitlines())


def read(text: str, path: Path) -> Script:
    """The job that a batch script describes; each task of it runs the script."""
    script = Script({"name": _plain(path.stem)})
    for number, line in enumerate(text.splitlines(), 1):
        if found := DIRECTIVE.match(line):
            for name, value in _options(found[1], f"{path}:{number}"):
                _take(script, name, value, f"{path}:{number}")
        elif line.strip() and not line.startswith("#"):
            break
    _settle(script)
    script.document["run"] = {
        "command": _command(script, text, path),
        "env": _environment(script.export),
        "workdir": script.document.pop("workdir", str(Path.cwd())),
    }
    return script


def _options(words: str, where: str) -> list[tuple[str, str]]:
    """The options of one line: --name=value, --name value, -n value."""
    try:
        left = shlex.split(words, comments=True)
    except ValueError as error:
        raise Refused(f"{where}: this #SBATCH line cannot be read: {error}.") from None
    found = []
    while left:
        word = left.pop(0)
        if not word.startswith("-"):
            raise Refused(f"{where}: '{word}' is no option of sbatch; options begin with a dash.")
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("--") and len(name) > 1 and not equals:
            name, value = name[0], name[1:]
        if not value and name not in FLAGS and left and not left[0].startswith("-"):
            value = left.pop(0)
        found.append((SHORT.get(name, name), value))
    return found


def _take(script: Script, name: str, value: str, where: str) -> None:
    taker = TAKERS.get(name)
    if taker is None:
        script.warnings.append(f"{where}: --{name} has no counterpart here and is left out.")
        return
    try:
        taker(script, value)
    except Unlike as unlike:
        raise Refused(f"{where}: --{name}{f'={value}' if value else ''}: {unlike}.") from None
    except ValueError:
        raise Refused(f"{where}: --{name} cannot be '{value}'.") from None


class Unlike(Exception):
    """What a word means to Slurm does not exist here; says what does."""


def time_limit(text: str) -> str:
    """Slurm's times: minutes, MM:SS, H:MM:SS, D-H, D-H:MM, D-H:MM:SS."""
    days, dash, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash:
        hours, minutes, seconds = (*parts, 0, 0, 0)[:3]
    else:
        hours, minutes, seconds = {1: (0, parts[0], 0), 2: (0, *parts), 3: tuple(parts)}.get(len(parts), (0, 0, -1))
    total = int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds
    if total <= 0 or len(parts) > 3:
        raise ValueError(text)
    return f"{total}s"


def _gres(script: Script, value: str) -> None:
    kind, _, rest = value.partition(":")
    if kind != "gpu":
        raise ValueError(value)
    script.gpus_per_node = _gpus(script, rest.partition("(")[0] or "1")


def _gpus(script: Script, value: str) -> int:
    """`2` or `h100:2`."""
    model, _, count = value.rpartition(":")
    if model:
        script.document["models"] = [model.upper() if model.isalnum() else model]
    return int(count)


def _memory(script: Script, value: str) -> None:
    found = re.fullmatch(r"(\d+)([KMGT]?)", value.upper())
    if found is None:
        raise ValueError(value)
    script.document["memory"] = f"{found[1]}{MIB_UNITS[found[2]]}"


def _dependency(script: Script, value: str) -> None:
    for part in value.split(","):
        kind, *jobs = part.split(":")
        if kind not in ("afterok", "afterany") or not jobs:
            raise ValueError(value)
        script.document.setdefault("after", []).extend(f"{job}:{'ok' if kind == 'afterok' else 'any'}" for job in jobs)


def _constraint(script: Script, value: str) -> None:
    """Features of nodes, which here are models of GPUs where they are any."""
    from gpuyard.files.data.gpu_models import GPU_MODELS

    models = [word.strip("()[] ").upper() for word in re.split(r"[|&,]", value)]
    if not models or "&" in value or not set(models) <= set(GPU_MODELS):
        raise Unlike(
            "nodes have labels here, not features; name models, such as --constraint=a100|h100, "
            "or submit a job file with node_selector"
        )
    script.document["models"] = models


def _exclusive(script: Script, _: str) -> None:
    raise Unlike("GPUs are given out, not nodes; ask for all of a node's with --gpus-per-node=8, and nobody joins it")


def _files(key: str) -> Callable[[Script, str], None]:
    def take(script: Script, value: str) -> None:
        setattr(script, key, slurm_shell.file_word(value))

    return take


def _export(script: Script, value: str) -> None:
    script.export = value


def _environment(export: str) -> dict[str, str]:
    """As sbatch has it with --export; without one, what `yard run` passes on."""
    words = [word for word in export.split(",") if word]
    whole = next((word.lower() for word in words if word in ("ALL", "NONE", "NIL")), "none" if words else "")
    named = [word for word in words if word not in ("ALL", "NONE", "NIL")]
    return environment.chosen(named, export="all" if whole == "all" else "none" if whole else "")


def _set(key: str, convert: Callable[[str], Any] = str) -> Callable[[Script, str], None]:
    def take(script: Script, value: str) -> None:
        if not value:
            raise ValueError(key)
        script.document[key] = convert(value)

    return take


def _count(key: str) -> Callable[[Script, str], None]:
    def take(script: Script, value: str) -> None:
        setattr(script, key, int(value.partition("-")[0]))

    return take


def _gpu_count(key: str) -> Callable[[Script, str], None]:
    def take(script: Script, value: str) -> None:
        setattr(script, key, _gpus(script, value))

    return take


TAKERS: dict[str, Callable[[Script, str], None]] = {
    "job-name": _set("name"),
    "partition": _set("queue"),
    "time": _set("time_limit", time_limit),
    "array": _set("array"),
    "chdir": _set("workdir"),
    "cpus-per-task": _set("cpu", int),
    "nodes": _count("nodes"),
    "ntasks": _count("ntasks"),
    "ntasks-per-node": _count("tasks_per_node"),
    "gpus": _gpu_count("gpus_total"),
    "gpus-per-node": _gpu_count("gpus_per_node"),
    "gpus-per-task": _gpu_count("gpus_per_task"),
    "gres": _gres,
    "mem": _memory,
    "dependency": _dependency,
    "hold": lambda script, _: script.document.update(held=True),
    "output": _files("output"),
    "error": _files("error"),
    "export": _export,
    "constraint": _constraint,
    "exclusive": _exclusive,
}


def _settle(script: Script) -> None:
    """Tasks and GPUs of each, from what was said of nodes, tasks and totals."""
    tasks = script.ntasks or max(1, script.nodes) * max(1, script.tasks_per_node)
    per_task = script.gpus_per_task
    if script.gpus_per_node:
        per_task = script.gpus_per_node // max(1, script.tasks_per_node or -(-tasks // max(1, script.nodes or 1)))
    elif script.gpus_total:
        per_task = script.gpus_total // tasks
    wanted = script.gpus_per_node * max(1, script.nodes) or script.gpus_total
    if wanted and not per_task:
        tasks, per_task = max(1, script.nodes), max(1, wanted // max(1, script.nodes))
        instead = f"{phrases.counted(tasks, 'task')} of {phrases.counted(per_task, 'GPU')} {phrases.are(tasks)}"
        script.warnings.append(f"more tasks than GPUs: {instead} started instead.")
    if tasks > 1:
        script.document["tasks"] = tasks
        script.warnings.append(
            f"the script is started {phrases.counted(tasks, 'time')}, once for each task, and so is each srun in it."
        )
    if per_task:
        script.document["gpus"] = per_task
    _keep_together(script, tasks)


def _keep_together(script: Script, tasks: int) -> None:
    """Tasks of one node stay on one node, where nodes were counted and have several each."""
    each, rest = divmod(tasks, max(1, script.nodes))
    if not script.nodes or each < 2:
        return
    whole = {"topology": {"required": "node"}}
    if script.nodes == 1:
        script.document |= whole
        return
    shape = {key: script.document.pop(key) for key in ("gpus", "cpu", "memory") if key in script.document}
    script.document.pop("tasks")
    script.document["groups"] = [
        {"name": f"node-{n}", "tasks": each + (n < rest), **shape, **whole} for n in range(script.nodes)
    ]


def _command(script: Script, text: str, path: Path) -> list[str]:
    """The script as it is now: a later change of the file does not change the job."""
    first = text.splitlines()[0] if text.startswith("#!") else "#!/bin/bash"
    interpreter = shlex.split(first.removeprefix("#!").strip()) or ["/bin/bash"]
    program = Path(interpreter[-1]).name.rstrip("0123456789.")
    greeting = ["/bin/sh", "-c", slurm_shell.prelude(script.output, script.error), "sbatch"]
    if program in SHELLS:
        return [*greeting, *interpreter, "-c", slurm_shell.with_srun(text, program), str(path)]
    if program in INTERPRETERS:
        return [*greeting, *interpreter, "-c", text, str(path)]
    return [*greeting, *interpreter, str(path.absolute())]


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "job"
