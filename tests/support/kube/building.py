"""Programs built from the Go module registry into a cache folder outside of the tree, once for each recipe."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

GO_ALSO_AT = "/usr/local/go/bin"
PACKAGES = 1900
"""How many packages a build from nothing compiles, about: for telling how far it is."""


class CannotBuild(Exception):
    """This machine cannot have the programs, and why."""


@dataclass(frozen=True)
class Recipe:
    """What is built together and lies in one folder; another name or another text of the sources has another folder."""

    name: str
    sources: Path
    files: tuple[str, ...]
    compile: Callable[[Path], None]

    def folder(self) -> Path:
        """Where they are kept."""
        texts = [path.read_bytes() for path in sorted(self.sources.rglob("*")) if path.is_file()]
        return cache() / f"{self.name}-{hashlib.sha256(b''.join(texts)).hexdigest()[:8]}"

    def present(self) -> bool:
        """Whether nothing is left to build."""
        return all((self.folder() / name).exists() for name in self.files)

    def build(self) -> None:
        """Have all of them; `CannotBuild` says why not. Two who build at once build once."""
        where = self.folder()
        where.mkdir(parents=True, exist_ok=True)
        with (where / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self.present():
                begun = time.monotonic()
                say(f"Building {self.name} into {where}: minutes, once.")
                self.compile(where)
                say(f"Built in {time.monotonic() - begun:.0f} s.")


def cache() -> Path:
    """What was built, outside of the tree."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpuyard-test"


def skip_for(why: str) -> None:
    """The test cannot be run here, for this reason if there is one; on a build server it must be."""
    if why and os.environ.get("CI") == "true":
        pytest.fail(why)
    if why:
        pytest.skip(why)


def linked(where: Path, links: dict[str, str]) -> None:
    """Programs that are one and know by their name which of them to be."""
    for name, program in links.items():
        (where / name).unlink(missing_ok=True)
        (where / name).symlink_to(program)


def compiled(words: list[str], sources: Path, cgo: bool = False) -> None:
    """`go build` with these words there; it tells how far it is."""
    command = [_go(), "build", "-v", "-mod=readonly", "-trimpath", *words]
    _follow(command, sources, {"CGO_ENABLED": str(int(cgo))})


def tidied(sources: Path) -> None:
    """`go mod tidy` there: what the module's few words mean in full, as the registry has it today."""
    _follow([_go(), "mod", "tidy"], sources, {})


def _go() -> str:
    go = shutil.which("go", path=f"{os.environ.get('PATH', '')}:{GO_ALSO_AT}")
    if go is None:
        raise CannotBuild("there is no go on this machine; install Go 1.26 or newer")
    return go


def _follow(command: list[str], sources: Path, more: dict[str, str]) -> None:
    """Run the compiler and count its packages aloud."""
    environment = {**os.environ, "GOFLAGS": "-buildvcs=false", "GOTOOLCHAIN": "local", **more}
    running = subprocess.Popen(["nice", *command], cwd=sources, env=environment, stderr=subprocess.PIPE, text=True)
    last: list[str] = []
    begun = told = time.monotonic()
    count = 0
    assert running.stderr is not None
    for line in running.stderr:
        last = [*last, line.rstrip()][-20:]
        count += not line.startswith("go: ")
        if time.monotonic() - told > 15:
            told = time.monotonic()
            say(f"  {count} of at most {PACKAGES} packages, {told - begun:.0f} s")
    if running.wait() != 0:
        raise CannotBuild("\n".join(["go could not build them:", *last]))


def say(*words: Any) -> None:
    """Progress; `make` shows it, pytest keeps it for whoever asks."""
    print(*words, file=sys.stderr, flush=True)
