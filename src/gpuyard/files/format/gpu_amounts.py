"""The three values of our own making: a queue's allowance, a fraction of a GPU, and a request for MIG slices.

Called through the tables of `entries`.
"""

from __future__ import annotations

import difflib
import fractions
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gpuyard.files.format.kinds import Bytes, Cpu, Definitions, Kind, Scalar, Schema, Text, Whole
from gpuyard.files.problems import Path, Problems, shown
from gpuyard.files.units import Wrong
from gpuyard.model.queue import Allowance
from gpuyard.model.resources import MILLI, UNLIMITED, WHOLE

GPUS_MAX = 400_000
"""More than any fleet, and less than `UNLIMITED` in grains."""


@lru_cache(maxsize=4096)
def grains_of(gpus: float) -> int:
    """GPUs as grains, exactly as the number was written: floats are too coarse for large amounts."""
    return gpus * WHOLE if isinstance(gpus, int) else round(fractions.Fraction(repr(gpus)) * WHOLE)


@dataclass(frozen=True)
class Gpus(Scalar):
    """An amount of GPUs, whole or not, as grains."""

    def check(self, value: Any) -> int:
        if value == "unlimited":
            return UNLIMITED
        if type(value) not in (int, float) or not 0 <= value <= GPUS_MAX:
            raise Wrong(f"must be a number of GPUs from 0, or unlimited, not {shown(value)}")
        return grains_of(value)

    def schema(self, definitions: Definitions) -> Schema:
        definitions["Gpus"] = {
            "description": "A number of GPUs, or unlimited.",
            "anyOf": [{"type": "number", "minimum": 0, "maximum": GPUS_MAX}, {"const": "unlimited"}],
        }
        return {"$ref": "#/$defs/Gpus"}


GPUS, CPU, BYTES = Gpus(), Cpu(unlimited=True), Bytes(unlimited=True)


@dataclass(frozen=True)
class AllowanceOf(Kind):
    """A quota or a limit: a number of GPUs, or a mapping of `gpu`, `cpu`, `memory` and models (rule 1)."""

    missing_gpu: str
    """What `gpu` left out of the mapping means: the `sum` of the models named, or `unlimited`."""

    def read(self, value: Any, at: Path, problems: Problems) -> Allowance:
        if not isinstance(value, dict):
            return Allowance(gpu=GPUS.read(value, at, problems) or 0)
        found: dict[str, int] = {}
        before = problems.count
        for name, amount in value.items():
            kind = {"cpu": CPU, "memory": BYTES}.get(name, GPUS)
            found[name] = kind.read(amount, (*at, name), problems) or 0
            self._check_name(name, at, problems)
        cpu, memory, gpu = found.pop("cpu", None), found.pop("memory", None), found.pop("gpu", None)
        if gpu is None:
            gpu = min(sum(found.values()), UNLIMITED) if self.missing_gpu == "sum" else UNLIMITED
        return Allowance(gpu, tuple(sorted(found.items())) if problems.count == before else (), cpu, memory)

    def _check_name(self, name: Any, at: Path, problems: Problems) -> None:
        """Any other key is a model, so a slip such as `gpus` would pass as one that nobody has."""
        if not isinstance(name, str) or not name:
            problems.add((*at, name), f"{at[-1]} has the key {shown(name)}, which must be gpu, cpu, memory or a model")
            return
        known = ["cpu", "gpu", "memory"]
        near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.75)
        if name not in known and near:
            problems.add((*at, name), f"{at[-1]} has an unknown key {name}; did you mean {near[0]}?")

    def schema(self, definitions: Definitions) -> Schema:
        gpus = GPUS.schema(definitions)
        mapping: Schema = {
            "type": "object",
            "properties": {"gpu": gpus, "cpu": CPU.schema(definitions), "memory": BYTES.schema(definitions)},
            "additionalProperties": gpus,
        }
        definitions["Allowance"] = {
            "description": "GPUs as a number, or by gpu, cpu, memory and model.",
            "anyOf": [gpus, mapping],
        }
        return {"$ref": "#/$defs/Allowance"}


@dataclass(frozen=True)
class Fraction(Scalar):
    """A part of one GPU, as grains."""

    def check(self, value: Any) -> int:
        if type(value) not in (int, float) or not 0 < value <= 1:
            raise Wrong(f"must be more than 0 and at most 1, not {shown(value)}")
        share = grains_of(value)
        if share < MILLI:
            raise Wrong(f"must be at least 0.001, not {shown(value)}")
        return share

    def schema(self, definitions: Definitions) -> Schema:
        return {"type": "number", "minimum": 0.001, "maximum": 1}


@dataclass(frozen=True)
class MigAsk(Kind):
    """`1g.10gb`, or profiles with counts: `{1g.10gb: 2}`."""

    profile: Text
    count: Whole = Whole(1, 448)

    def read(self, value: Any, at: Path, problems: Problems) -> tuple[tuple[str, int], ...]:
        if not isinstance(value, dict):
            name = self.profile.read(value, at, problems)
            return ((name, 1),) if name else ()
        if not value:
            problems.tell(at, "must not be empty")
        before = problems.count
        pairs = [
            (self.profile.read(name, (*at, name), problems), self.count.read(count, (*at, name), problems))
            for name, count in value.items()
        ]
        return tuple(sorted(pairs)) if problems.count == before else ()

    def schema(self, definitions: Definitions) -> Schema:
        counts = self.count.schema(definitions)
        mapping = {
            "type": "object", "patternProperties": {self.profile.pattern: counts},
            "additionalProperties": False, "minProperties": 1,
        }  # fmt: skip
        return {"anyOf": [self.profile.schema(definitions), mapping]}
