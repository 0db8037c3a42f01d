"""The device nodes of GPUs (/dev/nvidia0 and so on): open to a user while that user has the GPU, else to root alone.

Used by `keeper` for a shared yard. Access control lists say who may open a node; what it was like before is written
down first, and put back when the yard lets go. /dev/nvidiactl and /dev/nvidia-uvm stay as they are: every CUDA program
needs them, and they reach no GPU whose own node is closed. MIG slices of one GPU share its node.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import stat
import struct
from collections.abc import Iterable, Mapping

ACCESS = "system.posix_acl_access"
USER_OBJ, USER, GROUP_OBJ, MASK, OTHER = 0x01, 0x02, 0x04, 0x10, 0x20
READ_WRITE = 6
UNDEFINED = 0xFFFFFFFF

REOPENS = (
    "GPUs may not stay apart between users: the NVIDIA driver manages its device files itself, so that nvidia-modprobe "
    "opens them to everybody whenever a program asks; set `options nvidia NVreg_ModifyDeviceFiles=0` and load it anew"
)


def minors(proc: pathlib.Path) -> dict[str, int]:
    """The minor number of each GPU's node by UUID, as the driver tells it under /proc/driver/nvidia."""
    found: dict[str, int] = {}
    for path in sorted(proc.glob("gpus/*/information")):
        said = dict(line.split(":", 1) for line in _text(path).splitlines() if ":" in line)
        minor = said.get("Device Minor", "").strip()
        if minor.isdigit() and said.get("GPU UUID", "").strip():
            found[said["GPU UUID"].strip()] = int(minor)
    return found


def reopens(proc: pathlib.Path) -> bool:
    """Whether the driver's own helper, which any user may run, would undo what is closed here."""
    said = dict(line.split(":", 1) for line in _text(proc / "params").splitlines() if ":" in line)
    return said.get("ModifyDeviceFiles", "").strip() != "0" and shutil.which("nvidia-modprobe") is not None


class DeviceNodes:
    """The nodes of one yard's GPUs. `notes` is the file where their former state is kept."""

    def __init__(self, paths: Mapping[str, pathlib.Path], notes: pathlib.Path) -> None:
        self._paths = paths
        self._notes = notes
        self._users: dict[str, frozenset[int]] = {}

    def begin(self, users: Mapping[str, Iterable[int]]) -> list[str]:
        """Close all but to `users`, who have the GPU already; sentences about what cannot be closed."""
        before = self._before()
        wrong = []
        for uuid, path in self._paths.items():
            try:
                if str(path) not in before:
                    before[str(path)] = _state(path)
                    self._keep(before)
                self._lay(uuid, frozenset(users.get(uuid, ())))
            except OSError as error:
                told = f"{path} cannot be kept for whoever has the GPU: {error.strerror or error}"
                wrong.append(f"{told}; users can reach each other's GPUs")
        return wrong

    def open(self, uuid: str, uid: int) -> None:
        """A user has the GPU now."""
        self._lay(uuid, self._users.get(uuid, frozenset()) | {uid})

    def shut(self, uuid: str, uid: int) -> None:
        """The user's last task on it is gone."""
        self._lay(uuid, self._users.get(uuid, frozenset()) - {uid})

    def check(self) -> list[str]:
        """Close again what somebody has opened meanwhile; which nodes that were."""
        found = []
        for uuid, path in self._paths.items():
            with contextlib.suppress(OSError):
                if uuid in self._users and _listed(path) != self._users[uuid]:
                    found.append(str(path))
                    self._lay(uuid, self._users[uuid])
        return found

    def end(self) -> None:
        """Put back what was there, but for GPUs that tasks still have."""
        before = self._before()
        for uuid, path in self._paths.items():
            if str(path) in before and not self._users.get(uuid):
                with contextlib.suppress(OSError):
                    _restore(path, before[str(path)])
                    del before[str(path)]
        self._keep(before)
        self._users = {}

    def _lay(self, uuid: str, users: frozenset[int]) -> None:
        path = self._paths.get(uuid)
        if path is None:
            return
        if users:
            _refuse_link(path)
            os.chown(path, 0, 0, follow_symlinks=False)
            os.setxattr(path, ACCESS, _list(users), follow_symlinks=False)  # at once: nobody who stays is shut out
        else:
            _own(path)
        self._users[uuid] = users

    def _before(self) -> dict[str, list[int | str]]:
        try:
            return dict(json.loads(self._notes.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return {}

    def _keep(self, before: Mapping[str, list[int | str]]) -> None:
        if not before:
            self._notes.unlink(missing_ok=True)
            return
        fresh = self._notes.with_suffix(".fresh")
        fresh.touch(mode=0o600)
        fresh.write_text(json.dumps(before), encoding="utf-8")
        fresh.replace(self._notes)


def _own(path: pathlib.Path) -> None:
    """Root's alone, whatever it was."""
    _refuse_link(path)
    with contextlib.suppress(OSError):
        os.removexattr(path, ACCESS, follow_symlinks=False)
    os.chown(path, 0, 0, follow_symlinks=False)
    path.chmod(0o600)


def _refuse_link(path: pathlib.Path) -> None:
    if stat.S_ISLNK(path.lstat().st_mode):
        raise OSError(0, "it is a link")


def _state(path: pathlib.Path) -> list[int | str]:
    found = path.lstat()
    return [stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid, _acl(path).hex()]


def _restore(path: pathlib.Path, state: list[int | str]) -> None:
    mode, uid, gid, acl = state
    _own(path)
    os.chown(path, int(uid), int(gid), follow_symlinks=False)
    path.chmod(int(mode))
    if acl:
        os.setxattr(path, ACCESS, bytes.fromhex(str(acl)), follow_symlinks=False)


def _acl(path: pathlib.Path) -> bytes:
    try:
        return os.getxattr(path, ACCESS, follow_symlinks=False)
    except OSError:
        return b""


def _list(users: Iterable[int]) -> bytes:
    """As the kernel has it: version 2, then (tag, permissions, id) of each entry in the order of tags and ids."""
    named = [(USER, READ_WRITE, uid) for uid in sorted(users)]
    rest = [(GROUP_OBJ, 0, UNDEFINED), (MASK, READ_WRITE, UNDEFINED), (OTHER, 0, UNDEFINED)]
    entries = [(USER_OBJ, READ_WRITE, UNDEFINED), *named, *rest]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def _listed(path: pathlib.Path) -> frozenset[int] | None:
    """Who may open a node besides root; None if that is not as we set it."""
    found, acl = path.lstat(), _acl(path)
    if not acl:
        return frozenset() if (found.st_uid, stat.S_IMODE(found.st_mode)) == (0, 0o600) else None
    entries = struct.iter_unpack("<HHI", acl[4:])
    users = frozenset(uid for tag, _, uid in entries if tag == USER)
    return users if acl == _list(users) and found.st_uid == 0 else None


def _text(path: pathlib.Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
