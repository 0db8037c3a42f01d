"""What cannot be read or dealt with is set aside under a name, and the rest of the yard goes on.

Used by whoever reads the state back: `recovery`, `closures`, the engine. The folder `set-aside` holds one file for each
such thing, with what it was and why it is there; whoever has looked at one deletes it, and `yard status` stops telling.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
from collections import Counter
from typing import Any

from gpuyard.model.outside.phrases import counted

FOLDER = "set-aside"
KINDS = {"job": "job", "closure": "closed place", "queue": "queue setting", "memory": "memory", "run": "stray entry"}
"""What is set aside, and how it is called."""


class Aside:
    """The folder of one yard; made when it is first needed."""

    def __init__(self, state: pathlib.Path) -> None:
        self.folder = state / FOLDER

    def put(self, kind: str, name: str, why: str, content: Any) -> None:
        """Keep what it was; the same thing a second time is the same file. A full disk keeps nobody from going on."""
        document = {"kind": kind, "name": name, "why": why, "content": content}
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            file = os.open(self.folder / f"{kind}-{_slug(name)}.json", flags, 0o600)
            with open(file, "w", encoding="ascii") as opened:
                json.dump(document, opened, indent=1, default=repr)

    def move(self, path: pathlib.Path) -> None:
        """Something that stands where only ours should: it is kept as it is, elsewhere."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o700, exist_ok=True)
            os.rename(path, self.folder / f"run-{_slug(path.name)}")

    def told(self) -> str:
        """How much there is, in a sentence; nothing if there is none."""
        try:
            kinds = Counter(name.partition("-")[0] for name in os.listdir(self.folder))
        except OSError:
            return ""
        parts = [counted(n, KINDS.get(kind, kind)) for kind, n in sorted(kinds.items())]
        return f"{', '.join(parts)} in {self.folder}; look at what is there, then delete it" if parts else ""


def _slug(name: str) -> str:
    """A file's name that any name becomes, and no two the same."""
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name[:40])
    return f"{plain}-{hashlib.sha256(ascii(name).encode()).hexdigest()[:8]}"
