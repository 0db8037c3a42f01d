"""What this node's kubelet insists on, from its configuration file: the topology policy.

Used by `yard agent --gpu-node`. A kubelet does not tell an agent what it was started with; flags that override the file
and drop-in files are not seen.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from dataclasses import dataclass

from gpuyard.files.text import documents
from gpuyard.model.errors import GpuYardError
from gpuyard.model.outside.text import shown

CONFIG = pathlib.Path("/var/lib/kubelet/config.yaml")
SIZE_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class KubeletTopology:
    """Its words; "" where nobody tells."""

    policy: str = ""
    scope: str = ""


NOTHING_TOLD = KubeletTopology()


class KubeletConfig:
    """The file, read again when it is another; one that cannot be read is told of once, and insists on nothing."""

    def __init__(self, path: pathlib.Path, say: Callable[[str], None]) -> None:
        self._path = path
        self._say = say
        self._stamp: object = None
        self._found = NOTHING_TOLD
        self._trouble = ""

    def topology(self) -> KubeletTopology:
        """As the file has it now."""
        try:
            status = self._path.stat()
            stamp = status.st_ino, status.st_mtime_ns, status.st_size
            if stamp != self._stamp:
                self._found, self._stamp = self._read(status.st_size), stamp
            trouble = ""
        except FileNotFoundError:
            self._found, self._stamp, trouble = NOTHING_TOLD, None, ""
        except (OSError, UnicodeDecodeError, GpuYardError) as error:
            self._found, self._stamp, trouble = NOTHING_TOLD, None, shown(str(error), 200)
        if trouble and trouble != self._trouble:
            self._say(f"the kubelet's configuration is not read, and no topology policy known: {trouble}")
        self._trouble = trouble
        return self._found

    def _read(self, size: int) -> KubeletTopology:
        if size > SIZE_MAX:
            raise GpuYardError(f"{self._path} has {size} bytes, more than {SIZE_MAX}")
        data = documents.parse(self._path.read_text(encoding="utf-8"), str(self._path)).data
        told = data if isinstance(data, dict) else {}
        policy, scope = (told.get(f"topologyManager{key}") or "" for key in ("Policy", "Scope"))
        return KubeletTopology(shown(str(policy)), shown(str(scope)))
