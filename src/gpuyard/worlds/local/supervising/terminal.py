"""The terminal of an interactive task, and the socket where people attach to it. Used by `supervisor` alone.

Output is sent as plain bytes to everybody attached. They send frames: one byte kind (0 input, 1 window size as two
big-endian u16: rows, columns, 2 what comes is from a pipe and no keyboard, 3 that pipe has ended), a big-endian u32
length, the content. What comes from a pipe is neither echoed nor edited. Nothing here blocks:
neither a task that does not read nor a viewer that does not listen holds the supervisor up, and what waits for either
is bounded.
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
FRAME_MAX = 1 << 16
TYPED_MAX = 1 << 16
"""So much typing waits for a task that does not read; then those who type wait."""
BEHIND_MAX = 1 << 18
"""So far a viewer may fall behind; then it loses what it has not seen."""
VIEWERS_MAX = 16
INPUT, SIZE, PIPED, ENDED = range(4)
END_OF_FILE = b"\x04"


class Attached:
    """Somebody attached: what they sent that is no whole frame yet, and what they have still to be shown."""

    def __init__(self, door: socket.socket) -> None:
        self.door = door
        self.heard = bytearray()
        self.unseen = bytearray()

    def show(self, content: bytes) -> None:
        """Bounded: who cannot keep up loses the oldest."""
        self.unseen += content
        del self.unseen[:-BEHIND_MAX]
        self.send()

    def send(self) -> None:
        """As much as they take now."""
        try:
            if self.unseen:
                del self.unseen[: self.door.send(self.unseen)]
        except BlockingIOError:
            return
        except OSError:
            self.unseen.clear()  # gone; reading will find out


class Terminal:
    """A pseudo-terminal and those who look at it."""

    def __init__(self, path: str, uid: int = -1) -> None:
        self.master, self.slave = os.openpty()
        os.set_blocking(self.master, False)
        self.path = path
        self.shown = b""
        self.typed = bytearray()
        self.ending = False
        """Whether a pipe has ended and the task is still to be told, after what came through it."""
        self.viewers: dict[int, Attached] = {}
        self.door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        if os.path.exists(path):
            os.unlink(path)
        self.door.bind(path)
        os.chmod(path, 0o600)
        if uid >= 0:
            os.chown(path, uid, -1)  # its submitter attaches, and nobody else
        self.door.listen(4)
        self.door.setblocking(False)

    def let_go(self) -> None:
        """The task is gone. Until then its end is held open here: a program that closes its own before it leaves, as
        `cat` does, would be hung up on, and one that opens it again would find nobody."""
        if self.slave >= 0:
            os.close(self.slave)
        self.slave = -1

    def close(self) -> None:
        """Nobody finds it any more."""
        self.let_go()
        self.door.close()
        try:
            os.unlink(self.path)
        except OSError:
            return

    def ends(self) -> tuple[int, int]:
        """Ours, and the task's."""
        return self.master, self.slave

    def take(self, slave: int) -> None:
        """The calling process makes it its controlling terminal, in a session of its own."""
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    def readable(self) -> list[int]:
        """What to read besides the output: nobody who types while the task has still to read what was typed."""
        door = [self.door.fileno()] if len(self.viewers) < VIEWERS_MAX else []
        return door + ([] if len(self.typed) >= TYPED_MAX else list(self.viewers))

    def writable(self, master: int) -> list[int]:
        """Where something waits to be written."""
        behind = [descriptor for descriptor, viewer in self.viewers.items() if viewer.unseen]
        return behind + ([master] if self.typed and master >= 0 else [])

    def serve(self, readable: Sequence[int], writable: Sequence[int], master: int) -> None:
        """Let people in, take what they type, pass on what waits."""
        for descriptor in writable:
            if descriptor in self.viewers:
                self.viewers[descriptor].send()
        for descriptor in readable:
            if descriptor == self.door.fileno():
                self._let_in()
            elif descriptor in self.viewers:
                self._take(descriptor, master)
        self._pass_on(master)

    def _let_in(self) -> None:
        try:
            door, _ = self.door.accept()
        except OSError:
            return
        door.setblocking(False)
        self.viewers[door.fileno()] = viewer = Attached(door)
        viewer.show(self.shown)

    def _take(self, descriptor: int, master: int) -> None:
        viewer = self.viewers[descriptor]
        try:
            content = viewer.door.recv(FRAME_MAX)
        except BlockingIOError:
            return
        except OSError:
            content = b""
        viewer.heard += content
        if not content or not self._frames(viewer.heard, master):
            del self.viewers[descriptor]
            viewer.door.close()

    def _frames(self, heard: bytearray, master: int) -> bool:
        """Act on every whole frame; False for somebody who speaks something else."""
        while len(heard) >= 5:
            kind, length = struct.unpack_from(">BI", heard)
            if length > FRAME_MAX or kind > ENDED:
                return False
            if len(heard) < 5 + length:
                return True
            content = bytes(heard[5 : 5 + length])
            del heard[: 5 + length]
            self._act(kind, content, master)
        return True

    def _act(self, kind: int, content: bytes, master: int) -> None:
        if kind == INPUT:
            self.typed += content
        elif kind == ENDED:
            self.ending = True
        elif master >= 0 and kind == PIPED:
            mode = termios.tcgetattr(master)
            mode[0], mode[1] = 0, mode[1] & ~termios.OPOST
            mode[3] = (mode[3] | termios.ICANON) & ~(termios.ECHO | termios.ISIG | termios.IEXTEN)
            termios.tcsetattr(master, termios.TCSANOW, mode)
        elif master >= 0 and len(content) == 4:
            rows, columns = struct.unpack(">HH", content)
            fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _pass_on(self, master: int) -> None:
        """To the task what it takes now; what is typed for one that is gone goes nowhere."""
        if master < 0:
            self.typed.clear()
        try:
            while self.typed:
                del self.typed[: os.write(master, self.typed)]
            if self.ending and master >= 0:
                self._end(master)
        except BlockingIOError:
            return
        except OSError:
            self.typed.clear()

    def _end(self, master: int) -> None:
        """The mark that ends a file where a line begins; behind half a line it hands that on, and is said again."""
        os.write(master, END_OF_FILE)
        self.ending = False

    def show(self, content: bytes) -> None:
        """Send output to everybody."""
        self.shown = (self.shown + content)[-RECALL_BYTES:]
        for viewer in self.viewers.values():
            viewer.show(content)
