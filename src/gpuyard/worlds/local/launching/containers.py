"""`run.image`: a task inside a container, by podman or docker. Called by `orders` for the command, by `intake` to ask.

The engine's client is what the supervisor runs and watches: its output, its exit code and the signals it passes on are
the container's. The container has a name of its own, so that it can be ended where its client was killed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass

from gpuyard.model.errors import Refused
from gpuyard.model.job import Run

ENGINES = ("podman", "docker")
OWN_TO_THE_IMAGE = frozenset(("PATH", "HOME", "SHELL", "USER", "LOGNAME", "TMPDIR"))
"""What the image knows better than the machine does."""


@dataclass(frozen=True, slots=True)
class Box:
    """A container to be: by which program, under which name, with which devices, for whom (-1: as the yard)."""

    engine: str
    name: str
    devices: tuple[str, ...] = ()
    uid: int = -1
    pipe: str = ""
    """Where the task tells how far it is; the same path inside."""


def find(path: str) -> str:
    """The program that runs images here, or nothing; podman, which needs no daemon and no root, before docker.

    Asked once when a yard begins, with the yard's own PATH: no job has a say in what is run for it.
    """
    found = (shutil.which(name, path=path) for name in ENGINES)
    return next((os.path.abspath(each) for each in found if each), "")


def can_mount(path: str) -> bool:
    """Whether a path can be given to a container by the words of its engine."""
    return ":" not in path


def check(run: Run, engine: str) -> None:
    """Whether it can be run here in its image."""
    if run.image.startswith("-"):
        raise Refused(f"run.image is the name of an image, such as docker.io/library/python:3.12, not {run.image}")
    if not can_mount(run.workdir):
        raise Refused(f"run.workdir cannot be given to an image: {run.workdir} holds a colon; choose another folder")
    if not engine:
        raise Refused(
            "run.image needs podman or docker on this machine, and there is neither; "
            "install one and start the yard again, or leave it out"
        )


def command(run: Run, box: Box, env: Mapping[str, str]) -> tuple[str, ...]:
    """The words that run the task in its image.

    Devices are named by the Container Device Interface: environment variables could be forged by the image. Values of
    variables are taken from the client's own environment, so that no secret stands in a list of processes. Network and
    IPC are the machine's: the ranks of a gang meet there.
    """
    words = [box.engine, "run", "--rm", f"--name={box.name}", "--network=host", "--ipc=host"]
    words += [f"--device=nvidia.com/gpu={device}" for device in box.devices]
    words += [f"--env={each}" for each in sorted(env) if each not in OWN_TO_THE_IMAGE]
    if box.pipe:
        words.append(f"--volume={box.pipe}:{box.pipe}")
    if run.workdir:
        words += [f"--volume={run.workdir}:{run.workdir}", f"--workdir={run.workdir}"]
    if os.path.basename(box.engine) == "docker" and box.uid >= 0:
        words.append(f"--user={box.uid}")  # docker's daemon is root; podman runs as whoever calls it
    if run.tty:
        words.append("-it")
    return (*words, run.image, *run.command)
