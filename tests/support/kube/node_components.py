"""What a real node runs: kubelet, containerd, runc and an image, built from the Go module registry as `components` are.

kubelet, containerd and ctr are one program (`node/node`); the shim of containers, runc and two small tools are their
own. The first build takes minutes and shows how far it is. `python -m tests.support.kube.node_components` builds it.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import shutil
import sys
import tarfile
import time
from pathlib import Path

import pytest

from tests.support.kube import components
from tests.support.kube.components import CannotBuild, say

SOURCES = components.SOURCES.parent / "node"
LINKS = {"kubelet": "node", "containerd": "node", "ctr": "node", "runc": "tools", "alone": "tools"}
PROGRAMS = ("node", "containerd-shim-runc-v2", "tools", "pod", "runc.real")
IMAGE = "registry.test/pod:1"
TAGS = "no_btrfs,no_zfs,no_devmapper"


def folder() -> Path:
    """Where they are kept: another version or another recipe has another folder."""
    texts = [path.read_bytes() for path in sorted(SOURCES.rglob("*")) if path.is_file()]
    recipe = hashlib.sha256(b"".join([*texts, components.VERSION.encode()])).hexdigest()[:8]
    return components.cache() / f"node-{components.VERSION}-{recipe}"


def present() -> bool:
    """Whether nothing is left to build."""
    return all((folder() / name).exists() for name in (*PROGRAMS, *LINKS, "image.tar"))


def why_not() -> str:
    """Why no node can run here; "" if one can."""
    if os.geteuid() != 0:
        return "a node needs root: kubelets mount, and make control groups"
    missing = [name for name in ("unshare", "mount", "openssl") if not shutil.which(name)]
    if missing:
        return f"there is no {missing[0]} on this machine"
    if not present():
        return "kubelet and containerd are not built; `make kube` builds them, once, in minutes"
    return ""


def required() -> None:
    """Skip the tests that need a node where none can be; on a build server it must."""
    components.required()
    if why := why_not():
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
    if not shutil.which("gcc"):
        raise CannotBuild("there is no gcc on this machine; runc needs one")
    say(f"Building kubelet, containerd and runc into {where}: minutes, once.")
    for package, name in (("node", "node"), ("shim", "containerd-shim-runc-v2"), ("tools", "tools"), ("pod", "pod")):
        flags = components.VERSION_FLAGS if package == "node" else "-s -w"
        command = ["-tags", TAGS, "-ldflags", flags, "-o", str(where / name), f"./{package}"]
        components.compiled(command, SOURCES, {"CGO_ENABLED": "0"}, begun)
    static = ["-tags", "netgo,osusergo", "-ldflags", "-s -w -extldflags -static", "-o", str(where / "runc.real")]
    components.compiled([*static, "github.com/opencontainers/runc"], SOURCES / "runc", {"CGO_ENABLED": "1"}, begun)
    for name, program in LINKS.items():
        (where / name).unlink(missing_ok=True)
        (where / name).symlink_to(program)
    (where / "image.tar").write_bytes(image((where / "pod").read_bytes()))
    say(f"Built in {time.monotonic() - begun:.0f} s.")


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


if __name__ == "__main__":
    try:
        build()
    except CannotBuild as cannot:
        sys.exit(str(cannot))
