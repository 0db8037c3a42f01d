"""What a cluster is told before it can be scheduled: accounts, rights, programs and policies, as YAML for `kubectl`.

Each file stands as it is for the namespace `gpuyard-system`; `documents` puts another, and the image, in their places.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import yaml

NAMESPACE = "gpuyard-system"
IMAGE = "gpuyard:latest"
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader if it was built: ten times as fast


def text(name: str, namespace: str = NAMESPACE, image: str = IMAGE) -> str:
    """One file of this folder."""
    kept = files(__name__).joinpath(name).read_text(encoding="utf-8")
    return kept.replace(NAMESPACE, namespace).replace(IMAGE, image)


def documents(name: str, namespace: str = NAMESPACE, image: str = IMAGE) -> list[dict[str, Any]]:
    """Its objects, in the order in which they are made."""
    return [document for document in yaml.load_all(text(name, namespace, image), Loader) if document]
