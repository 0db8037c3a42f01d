"""The terminal of an interactive task, and the socket where people attach to it. Used by `supervisor` alone.

Output is sent as plain bytes to everybody attached. They send frames: one byte kind (0 input, 1 window size as two
big-endian u16: rows, columns), a big-endian u32 length, the content.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import termios
from collections.abc import Sequence

RECALL_BYTES = 8192
"""So much of what was shown before, somebody who attaches sees at once."""
FRAME_MAX = 1 << 20


class Terminal:
    """A pseudo-terminal and those who look at it."""

    def __init__(self, path: str, uid: int = -1) -> None:
        self.master, self.slave = os.openpty()
        self.path = path
        self.shown = b""
        self.clients: dict[int, tuple[socket.socket, bytearray]] = {}
        self.door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        if os.path.exists(path):
            os.unlink(path)
        self.door.bind(path)
        os.chmod(path, 0o600)
        if uid >= 0:
            os.chown(path, uid, -1)  # its submitter attaches, and nobody else
        self.door.listen(4)
        self.door.setblocking(False)

    def ends(self) -> tuple[int, int]:
        """Ours, and the task's."""
        return self.master, self.slave

    def take(self, slave: int) -> None:
        """The calling process makes it its controlling terminal, in a session of its own."""
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    def descriptors(self) -> list[int]:
        """What to watch besides the output."""
        return [self.door.fileno(), *self.clients]

    def serve(self, readable: Sequence[int], master: int) -> None:
        """Let people in, and take what they type."""
        for descriptor in readable:
            if descriptor == self.door.fileno():
                self._let_in()
            elif descriptor in self.clients:
                self._take(descriptor, master)

    def _let_in(self) -> None:
        try:
            client, _ = self.door.accept()
            client.setblocking(False)
            self.clients[client.fileno()] = (client, bytearray())
            client.send(self.shown)
        except OSError:
            return

    def _take(self, descriptor: int, master: int) -> None:
        client, held = self.clients[descriptor]
        try:
            content = client.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            content = b""
        held += content
        if not content or not self._frames(held, master):
            del self.clients[descriptor]
            client.close()

    def _frames(self, held: bytearray, master: int) -> bool:
        """Act on every whole frame; False for somebody who speaks something else."""
        while len(held) >= 5:
            kind, length = struct.unpack_from(">BI", held)
            if length > FRAME_MAX or kind > 1:
                return False
            if len(held) < 5 + length:
                return True
            content = bytes(held[5 : 5 + length])
            del held[: 5 + length]
            if kind == 0 and master >= 0:
                os.write(master, content)
            elif kind == 1 and length == 4 and master >= 0:
                rows, columns = struct.unpack(">HH", content)
                fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        return True

    def show(self, content: bytes) -> None:
        """Send output to everybody; who cannot keep up loses some."""
        self.shown = (self.shown + content)[-RECALL_BYTES:]
        for client, _ in list(self.clients.values()):
            try:
                client.send(content)
            except OSError:
                continue
