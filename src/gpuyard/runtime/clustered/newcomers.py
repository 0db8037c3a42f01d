"""How many tokens that nobody has seen yet are asked about: each costs the API server a review, and whoever sends the
next random one sends it at once.

Used by `tenants`. A bearer who was known once is none of these, so a flood of newcomers keeps out other newcomers of
its own address and nobody else.
"""

from __future__ import annotations

import ipaddress
import threading
from collections import OrderedDict

from gpuyard.model.errors import Busy
from gpuyard.model.outside.ports import Clock

BURST, A_SECOND = 20.0, 2.0
"""Of one address."""
BURST_OF_ALL, A_SECOND_OF_ALL = 200.0, 50.0
ADDRESSES = 10_000
"""So many are remembered; who is forgotten begins anew."""


class Newcomers:
    """Lets in at most so many a second; from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What each address may still ask, and when that was so."""
        self._of_all = (BURST_OF_ALL, clock.monotonic())

    def admit(self, source: str) -> None:
        """One more of that address; `Busy` where there were too many."""
        now = self._clock.monotonic()
        key = network_of(source)
        with self._lock:
            mine = _filled(self._left.pop(key, (BURST, now)), now, BURST, A_SECOND)
            of_all = _filled(self._of_all, now, BURST_OF_ALL, A_SECOND_OF_ALL)
            welcome = mine >= 1.0 and of_all >= 1.0
            self._left[key] = (mine - welcome, now)
            self._of_all = (of_all - welcome, now)
            if len(self._left) > ADDRESSES:
                self._left.popitem(last=False)
        if not welcome:
            raise Busy("too many tokens that the cluster may not know were shown lately; ask again in a few seconds")


def network_of(source: str) -> str:
    """Who may as well have any address of the same 64 bits counts as one."""
    try:
        address = ipaddress.ip_address(source.partition("%")[0])
    except ValueError:
        return source
    if address.version == 6 and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
    return str(getattr(address, "ipv4_mapped", None) or address)


def _filled(bucket: tuple[float, float], now: float, most: float, a_second: float) -> float:
    left, at = bucket
    return min(most, left + (now - at) * a_second)
