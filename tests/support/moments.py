"""A moment written in a few lines of YAML, as tests of single rooms of the brain need it."""

from __future__ import annotations

import json
from typing import Any

import yaml

from gpuyard.files import parse_snapshot
from gpuyard.model.snapshot import Snapshot
from tests.support.scenario import expand


def moment(text: str, **more: Any) -> Snapshot:
    """The snapshot; shorthands are those of scenarios, `more` are further keys of the whole."""
    return parse_snapshot(json.dumps(expand(yaml.safe_load(text) | more)), "test", 0.0)
