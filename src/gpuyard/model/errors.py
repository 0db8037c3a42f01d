"""The errors of GPUYard, split by who is at fault.

GpuYardError
├── Refused        the user asked for something that is wrong; says what, why and what next
│   ├── NotFound   a name that nobody knows
│   ├── Never      a job that could not run on this fleet even if it were empty
│   ├── Denied     somebody else's, or an administrator's, to do
│   ├── Conflict   right in itself, but not now: the thing asked about is in another state
│   ├── TooMuch    more than one call may ask for
│   └── Busy       more calls than one caller may have open
├── Unknown        a world speaks of something that nobody has heard of; reported, never fatal
└── Broken         a bug in GPUYard: an invariant of ours does not hold
"""

from __future__ import annotations


class GpuYardError(Exception):
    """Everything we raise on purpose."""


class Refused(GpuYardError):
    """The input cannot be accepted; the message is one clear sentence for its author."""


class NotFound(Refused):
    """A name that nobody knows; the message carries the nearest one."""


class Never(Refused):
    """A job that could not run on this fleet even if it were empty; the message says what it lacks."""


class Denied(Refused):
    """The caller is known, and may not do this; the message says who may."""


class Conflict(Refused):
    """Right in itself, but not in the state things are in: an ended job cannot be held."""


class TooMuch(Refused):
    """More than one call may ask for; the message says how much may be, and how to go on with less."""


class Busy(Refused):
    """The caller has as many questions open as may be; the message says so, and that a little later it works."""


class Unwritten(GpuYardError):
    """What was asked was heard and cannot be written down yet: a crash would forget it, so nobody is told that it is
    done. The message says why, and that asking again tells when it is."""


class Unknown(GpuYardError):
    """An event names a job, node or queue that the picture does not have; it is left out and reported."""


class Broken(GpuYardError):
    """An invariant of ours does not hold: please report it with the snapshot."""
