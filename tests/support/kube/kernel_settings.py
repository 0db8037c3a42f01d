"""What kubelets set for the whole machine, as it was before the first node of any test came.

Nodes of several test processes share one kernel: each would take for the machine's own what another's kubelet has set,
and would put that back in the end. So a file keeps what was there before the first; whoever has a node holds a shared
lock on it, and who leaves last puts everything back. A lock ends with its process, and then the next one who leaves
last does it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

KERNEL = Path("/proc/sys")
NAMES = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops")
FILE = Path("/run/gpuyard-test-kernel.json")
"""Of the machine and not of a user or a folder: so is what it keeps."""


class KernelSettings:
    """One node's word that it is there."""

    def __init__(self, file: Path = FILE, kernel: Path = KERNEL) -> None:
        self._path, self._kernel = file, kernel
        self._file = -1

    def come(self) -> None:
        """Before a kubelet is started."""
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        with self._one_at_a_time():
            fcntl.flock(self._file, fcntl.LOCK_SH)
            if not os.fstat(self._file).st_size:
                before = {name: (self._kernel / name).read_text() for name in NAMES}
                os.pwrite(self._file, json.dumps(before).encode(), 0)

    def leave(self) -> None:
        """After it has ended."""
        with self._one_at_a_time(), contextlib.suppress(BlockingIOError):
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name, value in json.loads(self._path.read_text()).items():
                with contextlib.suppress(OSError):
                    (self._kernel / name).write_text(value)
            os.truncate(self._file, 0)
        os.close(self._file)

    @contextlib.contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        with self._path.with_suffix(".lock").open("w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            yield
