"""`run.image`: a task inside a container, by podman or docker. Called by `orders` for the command, by `intake` to ask.

The engine's client is what the supervisor runs and watches: its output, its exit code and the signals it passes on are
the container's. The container has a name of its own, so that it can be ended where its client was killed.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence

from gpuyard.model.errors import Refused
from gpuyard.model.job import Run

ENGINES = ("podman", "docker")
OWN_TO_THE_IMAGE = frozenset(("PATH", "HOME", "SHELL", "USER", "LOGNAME", "TMPDIR"))
"""What the image knows better than the machine does."""


def engine() -> str:
    """The program that runs images here; podman, which needs no daemon and no root, before docker."""
    for name in ENGINES:
        if shutil.which(name):
            return name
    raise Refused(
        "run.image needs podman or docker on this machine, and there is neither; install one, or leave it out"
    )


def check(image: str) -> None:
    """Whether an image of that name can be run here."""
    if image.startswith("-"):
        raise Refused(f"run.image is the name of an image, such as docker.io/library/python:3.12, not {image}")
    engine()


def command(run: Run, name: str, devices: Sequence[str], env: Mapping[str, str], uid: int) -> tuple[str, ...]:
    """The words that run the task in its image.

    Devices are named by the Container Device Interface: environment variables could be forged by the image. Values of
    variables are taken from the client's own environment, so that no secret stands in a list of processes. Network and
    IPC are the machine's: the ranks of a gang meet there.
    """
    program = next((name for name in ENGINES if shutil.which(name)), ENGINES[0])
    words = [program, "run", "--rm", f"--name={name}", "--network=host", "--ipc=host"]
    words += [f"--device=nvidia.com/gpu={device}" for device in devices]
    words += [f"--env={each}" for each in sorted(env) if each not in OWN_TO_THE_IMAGE]
    if run.workdir:
        words += [f"--volume={run.workdir}:{run.workdir}", f"--workdir={run.workdir}"]
    if program == "docker" and uid >= 0:
        words.append(f"--user={uid}")  # docker's daemon is root; podman runs as whoever calls it
    if run.tty:
        words.append("-it")
    return (*words, run.image, *run.command)
