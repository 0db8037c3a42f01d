"""The small files by which a supervisor and the control plane know of each other, and who a process is.

Each is a line with length and checksum of what follows, then keys and values in turn, each with its length before it:
no value can end its field or begin another, and half a file or a changed one is known as such. Keys may repeat. Light
on purpose: it is loaded with every supervisor.
"""

from __future__ import annotations

import os
from binascii import crc32

TYPE_CHECKING = False  # what `typing` would say; importing it costs as much as all the rest
if TYPE_CHECKING:
    from collections.abc import Iterable

Pairs = list[tuple[str, str]]

ENV = "env:"
"""Before the name of a variable, in an order."""
SPARE_BYTES = 4096


class Damaged(OSError):
    """A note that nobody wrote like this. An `OSError`: who can do without the file can do without this one."""


def read_pairs(path: str) -> Pairs:
    """What a file says; `Damaged` if it is not as it was written."""
    with open(path, "rb") as file:
        content = file.read()
    try:
        head, _, body = content.partition(b"\n")
        length, checksum = map(int, head.split())
        if len(body) != length or crc32(body) != checksum:
            raise ValueError
        words = list(map(os.fsdecode, _fields(body)))
        return list(zip(words[0::2], words[1::2], strict=True))
    except ValueError:
        raise Damaged(f"{path} is damaged: it is not what was written there") from None


def _fields(body: bytes) -> list[bytes]:
    fields, at = [], 0
    while at < len(body):
        colon = body.index(b":", at)
        end = colon + 1 + int(body[at:colon])
        if end > len(body):
            raise ValueError
        fields.append(body[colon + 1 : end])
        at = end
    return fields


def write_pairs(path: str, pairs: Iterable[tuple[str, str]]) -> None:
    """All of it or nothing: a reader never sees half a file."""
    words = [os.fsencode(word) for pair in pairs for word in pair]
    body = b"".join(b"%d:%b" % (len(word), word) for word in words)
    fresh = f"{path}.{os.getpid()}"
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(b"%d %d\n%b" % (len(body), crc32(body), body))
    os.replace(fresh, path)


def put_pairs(name: str, pairs: Pairs) -> None:
    """A note that one can do without."""
    try:
        write_pairs(name, pairs)
    except OSError:
        return


def keep_spare_room() -> None:
    """A file whose room the last word can have, should there be none left then."""
    put_pairs("spare", [("", "-" * SPARE_BYTES)])


def is_written(last_word: Pairs) -> bool:
    """Whether the last word is on disk: while that is full it waits, or what succeeded would be run again."""
    try:
        write_pairs("exit", last_word)
    except FileNotFoundError:
        return True  # the folder is gone, and with it whoever would read it
    except OSError:
        if os.path.exists("spare"):
            os.unlink("spare")
            return is_written(last_word)
        return False
    return True


def identity(pid: int) -> Pairs:
    """Who a process is: a pid alone is used again, its start time in this boot is not."""
    return [("pid", str(pid)), ("ticks", start_ticks(pid)), ("boot", boot_id())]


def claim() -> bool:
    """Whether the task is ours: the link is made whole or not at all, and only once."""
    fresh = f"claim.{os.getpid()}"
    write_pairs(fresh, identity(os.getpid()))
    try:
        os.link(fresh, "claim")
    except FileExistsError:
        return False
    finally:
        os.unlink(fresh)
    return True


def start_ticks(pid: int) -> str:
    """When a process began, in ticks since boot; empty if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""


def boot_id() -> str:
    """The kernel's name for the time since the machine came up."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


class Order:
    """What to run, and how."""

    def __init__(self, pairs: Pairs) -> None:
        self.values = dict(pairs)
        self.command = [value for key, value in pairs if key == "arg"]
        self.env = {key.removeprefix(ENV): value for key, value in pairs if key.startswith(ENV)}

    def text(self, key: str) -> str:
        """A value, or nothing."""
        return self.values.get(key, "")

    def number(self, key: str) -> float:
        """A number, or 0."""
        return float(self.values.get(key) or 0)
