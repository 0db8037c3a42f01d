"""The components of a real control plane, built from the Go module registry into a cache folder outside of the tree.

One program holds kube-apiserver, kube-controller-manager, kube-scheduler and etcd and is each of them by the name it
is called by (`control_plane/main.go`): what they share is compiled once and linked once. The first build takes minutes
and shows how far it is; after that nothing happens. `python -m tests.support.kube.components` builds it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

VERSION = "1.36.3"
NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
SOURCES = Path(__file__).resolve().parent / "control_plane"
GO_ALSO_AT = "/usr/local/go/bin"
MAJOR, MINOR, _ = VERSION.split(".")
VERSION_FLAGS = " ".join(
    ["-s -w"]
    + [
        f"-X k8s.io/component-base/version.{name}={value}"
        for name, value in (("gitVersion", f"v{VERSION}"), ("gitMajor", MAJOR), ("gitMinor", MINOR))
    ]
)
PACKAGES = 1900
"""How many packages a build from nothing compiles, about: for telling how far it is."""


class CannotBuild(Exception):
    """This machine cannot have the components, and why."""


def cache() -> Path:
    """What was built, outside of the tree."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpuyard-test"


def folder() -> Path:
    """Where they are kept: another version or another recipe has another folder."""
    recipe = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(SOURCES.iterdir()))).hexdigest()[:8]
    return cache() / f"kube-{VERSION}-{recipe}"


def present() -> bool:
    """Whether nothing is left to build."""
    return all((folder() / name).exists() for name in NAMES)


def path(name: str) -> str:
    """The program of that name; it has been built."""
    return str(folder() / name)


def required() -> None:
    """Skip the tests that need them where they are not; on a build server they must be."""
    if present():
        return
    why = "the components are not built; `make kube` builds them, once, in minutes"
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


def build() -> None:
    """Have all of them; `CannotBuild` says why not. Two who build at once build once."""
    where = folder()
    where.mkdir(parents=True, exist_ok=True)
    with (where / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not present():
            _compile(where)


def _compile(where: Path) -> None:
    begun = time.monotonic()
    say(f"Building the components of Kubernetes {VERSION} into {where}: minutes, once.")
    compiled(["-ldflags", VERSION_FLAGS, "-o", str(where / "kube.new"), "."], SOURCES, {"CGO_ENABLED": "0"}, begun)
    for name in NAMES:
        link = where / name
        link.unlink(missing_ok=True)
        link.symlink_to("kube")
    (where / "kube.new").replace(where / "kube")
    say(f"Built in {time.monotonic() - begun:.0f} s.")


def compiled(words: list[str], sources: Path, more: dict[str, str], begun: float) -> None:
    """`go build` with these words there; it tells how far it is."""
    go = shutil.which("go", path=f"{os.environ.get('PATH', '')}:{GO_ALSO_AT}")
    if go is None:
        raise CannotBuild("there is no go on this machine; install Go 1.26 or newer")
    command = ["nice", go, "build", "-v", "-mod=readonly", "-trimpath", *words]
    environment = {**os.environ, "GOFLAGS": "-buildvcs=false", "GOTOOLCHAIN": "local", **more}
    _follow(command, sources, environment, begun)


def _follow(command: list[str], sources: Path, environment: dict[str, str], begun: float) -> None:
    """Run the compiler and count its packages aloud."""
    running = subprocess.Popen(command, cwd=sources, env=environment, stderr=subprocess.PIPE, text=True)
    last: list[str] = []
    told, count = begun, 0
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


if __name__ == "__main__":
    try:
        build()
    except CannotBuild as cannot:
        sys.exit(str(cannot))
