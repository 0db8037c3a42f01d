"""The engine as the command line has it: a snapshot document goes in, the document of `yard plan -o json` comes out."""

from __future__ import annotations

import json

from gpuyard.brain import foresee
from gpuyard.cli.rendering.documents import plan_document
from gpuyard.files import parse_snapshot
from tests.oracle.shapes import Document


def plan(document: Document) -> Document:
    """What `yard plan` prints."""
    return plan_document(foresee.outlook(parse_snapshot(json.dumps(document), "moment", 0.0)), {})
