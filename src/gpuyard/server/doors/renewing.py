"""A certificate that is replaced while the door is open: whoever comes afterwards is shown the new one.

Used by `listening`. What cannot be read yet, because only half of it is written, is tried again; until then the old
one is shown, and connections that are open notice nothing.
"""

from __future__ import annotations

import asyncio
import os
import ssl

LOOK_S = 5.0


class Renewal:
    """Looks at two files, and loads them anew where they are others than they were."""

    def __init__(self, context: ssl.SSLContext, certificate: str, key: str) -> None:
        self._context = context
        self._files = (certificate, key or certificate)
        self._known = self._state()

    def look(self) -> bool:
        """Whether the certificate was renewed just now."""
        state = self._state()
        if state is None or state == self._known:
            return False
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*self._files)  # both, and of each other
            self._context.load_cert_chain(*self._files)
        except (OSError, ValueError):
            return False
        self._known = state
        return True

    async def go_on(self) -> None:
        """For as long as the door is open."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def _state(self) -> tuple[tuple[int, int, int], ...] | None:
        """Which files they are, and how; None if one of them is away. A mounted Secret changes by its links."""
        try:
            found = [os.stat(path) for path in self._files]
        except OSError:
            return None
        return tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in found)
