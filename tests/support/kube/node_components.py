"""What a real node runs beside its kubelet: containerd, runc and an image, of no version of Kubernetes.

containerd and ctr are one program (`node/node`); the shim of containers, runc and two small tools are their own. The
first build takes minutes and shows how far it is. `python -m tests.support.kube.node_components` builds it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import sys
import tarfile
from pathlib import Path

from tests.support.kube import building, components
from tests.support.kube.building import CannotBuild, Recipe

SOURCES = components.SOURCES.parent / "node"
LINKS = {"containerd": "node", "ctr": "node", "runc": "tools", "alone": "tools"}
PROGRAMS = {"node": "node", "containerd-shim-runc-v2": "shim", "tools": "tools", "pod": "pod"}
IMAGE = "registry.test/pod:1"
TAGS = "no_btrfs,no_zfs,no_devmapper"


def why_not() -> str:
    """Why no node can run here; "" if one can."""
    if os.geteuid() != 0:
        return "a node needs root: kubelets mount, and make control groups"
    missing = [name for name in ("unshare", "mount", "openssl") if not shutil.which(name)]
    if missing:
        return f"there is no {missing[0]} on this machine"
    if not RECIPE.present():
        return "containerd and runc are not built; `make kube` builds them, once, in minutes"
    return components.why_not()


def required() -> None:
    """Skip the tests that need a node where none can be."""
    building.skip_for(why_not())


def _compile(where: Path) -> None:
    if not shutil.which("gcc"):
        raise CannotBuild("there is no gcc on this machine; runc needs one")
    for name, package in PROGRAMS.items():
        building.compiled(["-tags", TAGS, "-ldflags", "-s -w", "-o", str(where / name), f"./{package}"], SOURCES)
    static = ["-tags", "netgo,osusergo", "-ldflags", "-s -w -extldflags -static", "-o", str(where / "runc.real")]
    building.compiled([*static, "github.com/opencontainers/runc"], SOURCES / "runc", cgo=True)
    building.linked(where, LINKS)
    (where / "image.tar").write_bytes(image((where / "pod").read_bytes()))


def image(program: bytes) -> bytes:
    """An image that holds one program, in the form of `docker save`."""
    layer = _tar({"pod": program, "tmp/": b""})
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/pod"], "Cmd": ["hold"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    return _tar(
        {
            "config.json": json.dumps(config).encode(),
            "layer.tar": layer,
            "manifest.json": json.dumps(manifest).encode(),
        }
    )


def _tar(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name.rstrip("/"))
            entry.mode, entry.size = 0o755, len(content)
            entry.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            tar.addfile(entry, io.BytesIO(content))
    return made.getvalue()


RECIPE = Recipe("node", SOURCES, (*PROGRAMS, "runc.real", *LINKS, "image.tar"), _compile)


if __name__ == "__main__":
    try:
        RECIPE.build()
    except CannotBuild as cannot:
        sys.exit(str(cannot))
