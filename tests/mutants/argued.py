"""Mutants that change nothing anybody could see, each with the reason; an entry whose line is gone is an error."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.mutants.changing import Mutant

LIST = Path(__file__).resolve().parent / "argued.yaml"


def why(mutant: Mutant) -> str | None:
    """Why nobody can notice this one, if that has been argued."""
    for entry in entries():
        if entry["file"] == mutant.file and entry["line"] == mutant.text:
            changes = entry["changes"]
            if changes == "any" or f"{mutant.before} -> {mutant.after}" in changes:
                return str(entry["why"])
    return None


@cache
def entries() -> list[dict[str, Any]]:
    """The list as it is written."""
    return list(yaml.safe_load(LIST.read_text(encoding="utf-8"))["argued"] or ())
