"""The components of a real cluster, of the version that $KUBE names: a control plane, and the kubelet of its nodes.

One program holds kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and etcd and is each of them by the
name it is called by (`control_plane/main.go`): what they share is compiled once and linked once. The first build of a
version takes minutes and shows how far it is; after that nothing happens. `python -m tests.support.kube.components`
builds it.

The module's files are of one version, byte for byte; those of any other are derived from them, as far as the registry
has it.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.kube import building
from tests.support.kube.building import CannotBuild, Recipe

WRITTEN = "1.36.3"
"""The version that the module's files name."""
NEWEST = {"1.33": "1.33.13", "1.34": "1.34.4", "1.35": "1.35.4", "1.36": WRITTEN}
"""Of a version in short, what is meant."""
NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
SOURCES = Path(__file__).resolve().parent / "control_plane"


def chosen(word: str) -> str:
    """The version in full: of `1.34`, of `1.34.3`, of nothing."""
    version = NEWEST.get(word, word) or WRITTEN
    if not re.fullmatch(r"1\.\d+\.\d+", version):
        known = ", ".join(NEWEST)
        raise CannotBuild(f"KUBE={word} is no version of Kubernetes; say one of {known}, or one in full as {WRITTEN}")
    return version


def derived(text: str, version: str) -> str:
    """The module file of another version: what the few words at its top mean in full is for `go mod tidy`."""
    kept = [line for line in text.splitlines() if not line.endswith("// indirect")]
    staged = re.compile(r"(k8s\.io/\S+) v0\.36\.\d+$")
    lines = [staged.sub(rf"\1 v0{version[1:]}", line) for line in kept]
    return "\n".join(lines).replace(f"v{WRITTEN}", f"v{version}") + "\n"


def _sources(where: Path) -> Path:
    """The module to be built; of another version a copy."""
    if WRITTEN == VERSION:
        return SOURCES
    copy = where / "source"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(SOURCES, copy)
    (copy / "go.sum").unlink()
    (copy / "go.mod").write_text(derived((SOURCES / "go.mod").read_text(), VERSION))
    building.tidied(copy)
    return copy


def _compile(where: Path) -> None:
    major, minor, _ = VERSION.split(".")
    told = {"gitVersion": f"v{VERSION}", "gitMajor": major, "gitMinor": minor}
    flags = " ".join(["-s -w", *(f"-X k8s.io/component-base/version.{name}={told[name]}" for name in told)])
    building.compiled(["-ldflags", flags, "-o", str(where / "kube.new"), "."], _sources(where))
    building.linked(where, dict.fromkeys(NAMES, "kube"))
    (where / "kube.new").replace(where / "kube")


try:
    VERSION = chosen(os.environ.get("KUBE", ""))
except CannotBuild as unknown:
    sys.exit(str(unknown))
MINOR = int(VERSION.split(".")[1])
HAS_DEFAULTS = MINOR >= 36
"""Whether its API server adds defaults by policies (MutatingAdmissionPolicy) without being told to."""
NEEDS_DEFAULTS = pytest.mark.skipif(
    not HAS_DEFAULTS, reason=f"needs Kubernetes 1.36: {VERSION} adds no defaults by policies"
)
RECIPE = Recipe(f"kube-{VERSION}", SOURCES, NAMES, _compile)


def path(name: str) -> str:
    """The program of that name; it has been built."""
    return str(RECIPE.folder() / name)


def why_not() -> str:
    """Why no control plane can run here; "" if one can."""
    which = "" if VERSION == WRITTEN else f" KUBE={VERSION}"
    return "" if RECIPE.present() else f"the components are not built; `make kube{which}` builds them, once, in minutes"


def required() -> None:
    """Skip the tests that need them where they are not."""
    building.skip_for(why_not())


if __name__ == "__main__":
    try:
        RECIPE.build()
    except CannotBuild as cannot:
        sys.exit(str(cannot))
