"""`python -m bench [NAME…]` measures, `… profile NAME` shows where the time goes, `… show` the last results."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from bench import profiling, running, table


def main(words: list[str]) -> None:
    """Do what the words say; without any, measure everything."""
    match words:
        case ["measure", name]:
            print(json.dumps(asdict(running.measure(running.CASES[name]))))
        case ["profile", name]:
            profiling.profile(running.CASES[name])
        case ["show"]:
            table.show(running.kept())
        case _:
            table.show([_told(name) for name in chosen(words)])


def chosen(words: list[str]) -> list[str]:
    """The benchmarks named; `e` stands for `e-100`, `e-500` and `e-1000`."""
    known = list(running.CASES)
    for word in words:
        if not any(_means(word, name) for name in known):
            sys.exit(f"There is no benchmark {word}; there are {', '.join(known)}.")
    return [name for name in known if not words or any(_means(word, name) for word in words)]


def _means(word: str, name: str) -> bool:
    return name == word or (name.startswith(f"{word}-") and name.rsplit("-", 1)[1].isdigit())


def _told(name: str) -> running.Result:
    print(f"{name} ...", file=sys.stderr, flush=True)
    return running.in_its_own_process(name)


if __name__ == "__main__":
    main(sys.argv[1:])
