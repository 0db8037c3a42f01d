"""What is kept for a bug report: a file each in a folder that only its owner reads; the newest few."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

KEPT = 5


class ReportFolder:
    """Implements `worlds.base.Reports`. The folder is made with the first report."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def report(self, name: str, document: Any) -> str:
        """A file of its own; where it lies."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / f"{name.replace(':', '')}.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps(document, indent=1), encoding="utf-8")
        for old in sorted(self._folder.iterdir())[:-KEPT]:
            old.unlink()
        return str(path)
