"""What NVIDIA's Xid codes mean for a GPU: whose fault each is, and what it leaves behind.

Looked up by the agent. After NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors), where a code asks for a reset,
a restart of the machine or a mechanic; codes that a program brings upon itself condemn no GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class XidClass(Enum):
    """What a code says of the GPU."""

    PROGRAM = "program"
    """A program did wrong; the GPU is as good as before."""
    NOTICE = "notice"
    """The driver tells of something it has dealt with."""
    WEAR = "wear"
    """The GPU should be reset, or looked at, when it is empty."""
    BROKEN = "broken"
    """Nothing new should go on it."""


@dataclass(frozen=True, slots=True)
class Xid:
    """One code."""

    kind: XidClass
    meaning: str


def _all(kind: XidClass, meaning: str, *codes: int) -> dict[int, Xid]:
    return dict.fromkeys(codes, Xid(kind, meaning))


XIDS: dict[int, Xid] = {
    **_all(
        XidClass.PROGRAM, "a program's own mistake in the engine", 8, 11, 13, 25, 32, 39, 40, 41, 60, 69, 70, 71, 72
    ),
    **_all(XidClass.PROGRAM, "a program touched memory that is not its own", 31),
    **_all(XidClass.PROGRAM, "a video, image or copy engine was misused", 68, 80, 82, 83, 84, 85, 86, 88, 89),
    **_all(XidClass.NOTICE, "a program was stopped after another error", 43, 45),
    **_all(XidClass.NOTICE, "the driver met firmware it did not expect", 37, 38, 44, 66, 67),
    **_all(XidClass.NOTICE, "corrected errors are many", 92),
    **_all(XidClass.NOTICE, "wear of the card's own flash", 93),
    **_all(XidClass.NOTICE, "told for information", 121, 137, 141, 154, 157, 160, 161, 162, 163, 164, 165),
    **_all(XidClass.WEAR, "a memory row was replaced; a reset completes it", 63),
    **_all(XidClass.WEAR, "a contained memory error; the program died of it", 94),
    **_all(XidClass.WEAR, "a context could not be switched in time", 109),
    **_all(XidClass.WEAR, "the card's controller cannot reach its flash", 122, 123, 124, 125),
    **_all(XidClass.BROKEN, "the GPU or its power controller timed out or halted", 46, 62, 158),
    **_all(XidClass.BROKEN, "an uncorrectable memory error", 48, 171, 172),
    **_all(XidClass.BROKEN, "the auxiliary power is not connected", 54),
    **_all(XidClass.BROKEN, "a memory row could not be replaced: no spare is left", 64),
    **_all(XidClass.BROKEN, "NVLink failed", 74, 144, 145, 146, 147, 148, 149, 150),
    **_all(XidClass.BROKEN, "the GPU fell off the bus", 79),
    **_all(XidClass.BROKEN, "an uncontained memory error", 95, 140),
    **_all(XidClass.BROKEN, "a security fault", 110),
    **_all(XidClass.BROKEN, "the GPU's system processor does not answer", 119, 120),
    **_all(XidClass.BROKEN, "a link could not be trained, or the GPU not be started", 136, 143, 155, 156),
    **_all(XidClass.BROKEN, "the machine has to be restarted", 151, 167),
    **_all(XidClass.BROKEN, "the GPU has less memory than it had", 168),
}

UNHEARD_OF = Xid(XidClass.WEAR, "a code that is not in the table")


def xid(code: int) -> Xid:
    """What a code means."""
    return XIDS.get(code, UNHEARD_OF)
