"""A kubelet with containerd and runc, as root, in namespaces of its own: a node without a cluster around it.

Everything it makes lies in one folder, one control group and one address, and is gone after `stop` or when the process
that started it is: see `node_init`. Knows nothing of pytest, so that it can be carried to another machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.kube.kernel_settings import KernelSettings
from tests.support.kube.ports import free_ports

INIT = Path(__file__).resolve().parent / "node_init.py"
CGROUPS = Path("/sys/fs/cgroup")
CGROUP_PREFIX = "gpuyard-node-"
STARTS_S = 180.0
SIOCSIFADDR, SIOCSIFNETMASK, SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8916, 0x891C, 0x8913, 0x8914, 1

CONTAINERD = """version = 3
[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = '{image}'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = true
  cdi_spec_dirs = ['{root}/cdi']
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['{programs}']
    conf_dir = '{root}/net.d'
    use_internal_loopback = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = '{programs}/runc'
      SystemdCgroup = false
"""
NETWORK = {"cniVersion": "1.0.0", "name": "alone", "plugins": [{"type": "alone"}]}


class MachineRoom:
    """One node's processes. `programs` is the folder in which they lie, with the image."""

    def __init__(self, root: Path, programs: Path, image: str, name: str = "n0") -> None:
        self.root, self.programs, self.image, self.name = root, programs, image, name
        self.address = ""
        self._kernel = KernelSettings()
        self._init: subprocess.Popen[str] | None = None

    # --- up and down -----------------------------------------------------------------------------

    def open(self) -> None:
        """The room, empty."""
        for folder in ("cdi", "net.d", "dev", "flexvolume", "ns"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        (self.root / "net.d" / "10-alone.conflist").write_text(json.dumps(NETWORK))
        self._kernel.come()
        self.address, self._alias = add_address()
        self.cgroup = make_cgroup(f"{CGROUP_PREFIX}{os.getpid()}-{self._alias.rpartition(':')[2]}")
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        with (self.root / "init.log").open("ab") as log:
            self._init = subprocess.Popen(
                [*command, sys.executable, str(INIT), str(self.root)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        assert self._init.stdout is not None
        if self._init.stdout.readline() != "ready\n":
            raise RuntimeError(f"no namespaces for a node: {(self.root / 'init.log').read_text()}")

    def stop(self) -> None:
        """Nothing of it is left but its folder."""
        if self._init is not None:
            assert self._init.stdin is not None
            assert self._init.stdout is not None
            self._init.stdin.close()
            try:
                self._init.wait(STARTS_S)
            except subprocess.TimeoutExpired:
                self._init.kill()
                self._init.wait(STARTS_S)
            self._init.stdout.close()
        if self.address:
            remove_address(self._alias)
            remove_cgroup(self.cgroup)
            self._kernel.leave()
            self.address = ""

    def start_containerd(self) -> None:
        """Up, and it has the image."""
        text = CONTAINERD.format(image=self.image, root=self.root, programs=self.programs)
        (self.root / "containerd.toml").write_text(text)
        self.start("containerd", "--config", str(self.root / "containerd.toml"), "--log-level", "warn")
        self.wait((self.root / "ns/run/containerd/containerd.sock").exists, "containerd listens", "containerd")
        self.start("ctr", "-n", "k8s.io", "images", "import", str(self.programs / "image.tar"))
        self.wait(lambda: self.ended("ctr") is not None, "the image is imported", "ctr")
        if self.ended("ctr") != 0:
            raise RuntimeError(f"the image is not imported: {self.log('ctr').read_text()[-2000:]}")

    def start_kubelet(self, program: Path, config: dict[str, Any], *flags: str) -> None:
        """That one, with these settings beside those that every node here has."""
        config = settings(self) | config
        (self.root / "kubelet.json").write_text(json.dumps(config))
        self.start(
            program, f"--config={self.root / 'kubelet.json'}", f"--hostname-override={self.name}",
            f"--node-ip={self.address}", f"--cert-dir={self.root / 'kubelet-tls'}", *flags,
        )  # fmt: skip

    # --- processes -------------------------------------------------------------------------------

    def start(self, program: str | Path, *words: str) -> None:
        """One of the programs, or one that lies elsewhere, inside."""
        name = Path(program).name
        env = {"PATH": f"{self.programs}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/"}
        command = [str(self.programs / program), *words]
        self._say({"do": "start", "name": name, "command": command, "log": str(self.log(name)), "env": env})

    def end(self, name: str, how: int = signal.SIGKILL) -> None:
        """It has ended."""
        if self._say({"do": "end", "name": name, "signal": int(how)}) is None:
            raise RuntimeError(f"{name} does not end")

    def ended(self, name: str) -> int | None:
        """Its exit code, if it has one."""
        code: int | None = self._say({"do": "look", "name": name})
        return code

    def log(self, name: str) -> Path:
        """What it wrote."""
        return self.root / f"{name}.log"

    def kubelet_folder(self) -> Path:
        """/var/lib/kubelet of the node, from outside."""
        return self.root / "ns/var/lib/kubelet"

    def wait(self, holds: Callable[[], Any], what: str, name: str) -> None:
        """Until it holds; what the program said if it does not."""
        until = time.monotonic() + STARTS_S
        while not holds():
            if time.monotonic() > until:
                raise RuntimeError(f"it is not so that {what}: {self.log(name).read_text(errors='replace')[-3000:]}")
            time.sleep(0.05)

    def _say(self, wish: dict[str, Any]) -> Any:
        assert self._init is not None
        assert self._init.stdin is not None
        assert self._init.stdout is not None
        self._init.stdin.write(json.dumps(wish) + "\n")
        self._init.stdin.flush()
        return json.loads(self._init.stdout.readline())


def settings(room: MachineRoom) -> dict[str, Any]:
    """What a kubelet must be told to live beside others on a machine that is not its own."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": room.address,
        "port": free_ports(1, room.address)[0],
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": free_ports(1)[0],
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{room.cgroup}",
        "failCgroupV1": False,
        "enforceNodeAllocatable": [],
        "makeIPTablesUtilChains": False,
        "failSwapOn": False,
        "resolvConf": "",
        "nodeStatusUpdateFrequency": "2s",
        "nodeLeaseDurationSeconds": 10,
        "volumePluginDir": str(room.root / "flexvolume"),
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
    }


# --- an address: kubelets take no loopback address for their node's ------------------------------


def add_address() -> tuple[str, str]:
    """One of 10.88.0.0/16 beside the loopback's own, and the name under which it is removed."""
    for _ in range(100):
        number = 1 + secrets.randbelow((1 << 16) - 1)
        address, alias = f"10.88.{number >> 8}.{number & 255}", f"lo:{number:x}"
        if not _is_ours(address):
            _ioctl(SIOCSIFADDR, alias, _inet(address))
            _ioctl(SIOCSIFNETMASK, alias, _inet("255.255.255.255"))
            return address, alias
    raise RuntimeError("no address is free")


def remove_address(alias: str) -> None:
    with contextlib.suppress(OSError):
        flags = struct.unpack("16sh14s", _ioctl(SIOCGIFFLAGS, alias, b"\0" * 16))[1]
        _ioctl(SIOCSIFFLAGS, alias, struct.pack("h14s", flags & ~IFF_UP, b""))


def _is_ours(address: str) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
        return True


def _inet(address: str) -> bytes:
    return struct.pack("HH4s8s", socket.AF_INET, 0, socket.inet_aton(address), b"")


def _ioctl(number: int, name: str, rest: bytes) -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        return fcntl.ioctl(door, number, struct.pack("16s16s", name.encode(), rest))


# --- a control group, in every hierarchy there is ------------------------------------------------


def hierarchies() -> list[Path]:
    """One where control groups are of the second version, else one for each controller."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [path for path in sorted(CGROUPS.iterdir()) if (path / "cgroup.procs").exists() and not path.is_symlink()]


def make_cgroup(name: str) -> str:
    """An empty one that may have children; those whose makers are gone are removed."""
    for top in hierarchies():
        for old in top.glob(f"{CGROUP_PREFIX}*"):
            if not Path(f"/proc/{old.name.removeprefix(CGROUP_PREFIX).partition('-')[0]}").exists():
                _remove(old)
        made = top / name
        made.mkdir(exist_ok=True)
        for part in ("cpuset.cpus", "cpuset.mems"):  # a first-version group begins without any
            if (made / part).exists() and top != CGROUPS:
                (made / part).write_text((top / part).read_text())
        if top == CGROUPS:
            _hand_down(top)
            _hand_down(made)
    return name


def _hand_down(group: Path) -> None:
    for controller in (group / "cgroup.controllers").read_text().split():
        with contextlib.suppress(OSError):
            (group / "cgroup.subtree_control").write_text(f"+{controller}")


def remove_cgroup(name: str) -> None:
    for top in hierarchies():
        until = time.monotonic() + 10
        while not _remove(top / name) and time.monotonic() < until:
            time.sleep(0.05)


def _remove(group: Path) -> bool:
    """With all below it; what still holds a process stays."""
    if not group.exists():
        return True
    for folder, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    return not group.exists()
