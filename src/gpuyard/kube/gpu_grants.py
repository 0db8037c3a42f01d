"""The GPUs that a pod's Binding named, held against those that its kubelet gave: the same words wherever it is seen.

Used by the agent, which asks the kubelet (podresources), and by the scheduler, which reads the pod's status. Names come
from annotations that anybody with rights over pods may have written, so they are shown and not repeated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator

from gpuyard.kube.objects import GRANTED_GPUS, PodObject
from gpuyard.model.outside.text import shown

OTHER_GPUS = "OtherGpus"
"""The reason of the event that tells of it."""
NAME_MAX = 64
NAMES_MAX = 16


def granted_gpus(pod: PodObject) -> tuple[str, ...]:
    """Those that its Binding named, in order; none where nobody minds which it gets."""
    return tuple(name for each in pod.metadata.annotation(GRANTED_GPUS).split(",") if (name := each.strip()))


def other_gpus(granted: Collection[str], given: Collection[str]) -> str:
    """What is told of a pod that holds others than it was granted; "" if it does not, or if either is not known."""
    if not granted or not given or set(granted) == set(given):
        return ""
    return f"bound to {', '.join(_shown(granted))}; the kubelet gave {', '.join(_shown(given))}"


def _shown(names: Collection[str]) -> Iterator[str]:
    yield from (shown(name, NAME_MAX) for name in list(names)[:NAMES_MAX])
    if len(names) > NAMES_MAX:
        yield f"{len(names) - NAMES_MAX} more"


def event_name(pod: str, uid: str, note: str) -> str:
    """The name of the event that tells this of that pod: whoever comes second finds it told."""
    return f"{pod[:200]}.{hashlib.sha256(f'{uid} {note}'.encode(errors='replace')).hexdigest()[:16]}"
