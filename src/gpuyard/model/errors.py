"""The errors of GPUYard, split by who is at fault.

GpuYardError
├── Refused        the user asked for something that is wrong; says what, why and what next
│   └── NotFound   a name that nobody knows
└── Broken         a bug in GPUYard: an invariant of ours does not hold
"""

from __future__ import annotations


class GpuYardError(Exception):
    """Everything we raise on purpose."""


class Refused(GpuYardError):
    """The input cannot be accepted; the message is one clear sentence for its author."""


class NotFound(Refused):
    """A name that nobody knows; the message carries the nearest one."""


class Broken(GpuYardError):
    """An invariant of ours does not hold: please report it with the snapshot."""
