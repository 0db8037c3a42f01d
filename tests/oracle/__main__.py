"""`python -m tests.oracle FIRST COUNT [FOLDER]`: judge so many seeds, count verdicts by kind, write small cases.

`python -m tests.oracle FILE...` judges snapshot files.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import yaml

from tests.oracle import engine, moments
from tests.oracle.judge import judge
from tests.oracle.shapes import Document
from tests.oracle.shrinking import shrunk

EACH = 3
"""Cases written per kind."""


class Plain(yaml.SafeLoader):
    """YAML as the oracle reads it: dates stay text."""


Plain.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in pairs if not tag.endswith("timestamp")]
    for letter, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def main(arguments: list[str]) -> None:
    """Seeds or files."""
    if not arguments[0].isdigit():
        for path in arguments:
            document = yaml.load(Path(path).read_text(), Plain)
            for verdict in judge(document, engine.plan):
                print(f"{path}: {verdict.kind}: {verdict.sentence}")
        return
    first, count = int(arguments[0]), int(arguments[1])
    found: dict[str, list[int]] = defaultdict(list)
    for seed in range(first, first + count):
        for verdict in judge(moments.draw(seed), engine.plan):
            found[verdict.kind].append(seed)
            print(f"{seed} {verdict.kind}: {verdict.sentence}", flush=True)
    for kind, seeds in sorted(found.items()):
        print(f"{len(seeds):6d}  {kind}  {seeds[:8]}")
    if len(arguments) > 2:
        for kind, seeds in sorted(found.items()):
            for n, seed in enumerate(seeds[:EACH]):
                write(Path(arguments[2]) / f"{kind}-{n}.yaml", shrunk(moments.draw(seed), kind, engine.plan), kind)


def write(path: Path, document: Document, kind: str) -> None:
    """One case, with its verdict as a comment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    said = next(v.sentence for v in judge(document, engine.plan) if v.kind == kind)
    text = yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=160)
    path.write_text(f"# {kind}: {said}\n{text}")


if __name__ == "__main__":
    main(sys.argv[1:])
