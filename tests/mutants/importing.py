"""The brain as somebody changed it: modules of it are compiled from another tree while they are imported."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

PACKAGE = "gpuyard.brain"
BRAIN = Path(__file__).resolve().parents[2] / "src" / "gpuyard" / "brain"

Change = Callable[[str, str], ast.Module | None]
"""From a file of the brain and its source to another tree, or to none where it stays as it is."""


def install(change: Change) -> None:
    """From now on the brain is imported so; nothing of it may have been imported before."""
    if there := [name for name in sys.modules if name.startswith(PACKAGE)]:
        raise RuntimeError(f"{there[0]} is imported already")
    sys.meta_path.insert(0, Finder(change))


class Finder(MetaPathFinder):
    """Finds the brain where it is, and has it loaded as changed."""

    def __init__(self, change: Change) -> None:
        self.change = change

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(PACKAGE):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = Loader(fullname, spec.origin, self.change)
        return spec


class Loader(SourceFileLoader):
    """Compiles the changed tree; what stays as it is comes from the cache as ever."""

    def __init__(self, fullname: str, path: str, change: Change) -> None:
        super().__init__(fullname, path)
        self.change = change

    def get_code(self, fullname: str) -> CodeType | None:
        path = Path(self.path)
        tree = self.change(path.relative_to(BRAIN).as_posix(), path.read_text(encoding="utf-8"))
        return super().get_code(fullname) if tree is None else compile(tree, self.path, "exec")
