"""What a cluster is told before it can be scheduled: accounts and rights, as YAML that `kubectl apply` takes."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import yaml


def text(name: str) -> str:
    """One file of this folder."""
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def documents(name: str) -> list[dict[str, Any]]:
    """Its objects, in the order in which they are made."""
    return [document for document in yaml.safe_load_all(text(name)) if document]
