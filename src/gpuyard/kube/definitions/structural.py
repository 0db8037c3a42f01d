"""JSON Schema as an API server takes it for kinds of our own ("structural"), and the definition around it.

Called for every kind of ours. A structural schema has no references, and alternatives only between a whole number and
text; what a reader accepts beyond that (plain fractions where a unit could stand) cannot be written in a cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

GROUP = "gpuyard.dev"
VERSION = "v1"
Schema = dict[str, Any]
NUMBERS = ("integer", "number")
CONDITIONS: Schema = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
    "items": {
        "type": "object",
        "required": ["type", "status"],
        "properties": {
            "type": {"type": "string", "maxLength": 316},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": {"type": "string", "maxLength": 1024},
            "message": {"type": "string", "maxLength": 32768},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
        },
    },
}


class NotStructural(ValueError):
    """A schema that no API server would take."""


def structural(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    """The same without references; `NotStructural` where that cannot be said."""
    if "$ref" in schema:
        inner = structural(definitions[schema["$ref"].rsplit("/", 1)[1]], definitions)
        return inner | {key: schema[key] for key in ("description",) if key in schema}
    said = {key: schema[key] for key in ("description",) if key in schema}
    if "anyOf" in schema:
        return said | _either([structural(each, definitions) for each in schema["anyOf"]])
    if "const" in schema:
        return said | {"type": "string", "enum": [schema["const"]]}
    if "enum" in schema:
        return said | {"type": "string", "enum": list(schema["enum"])}
    return said | _plain(schema, definitions)


def _plain(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    kept = {key: schema[key] for key in KEPT if key in schema}
    if schema.get("type") == "array":
        return kept | {"items": structural(schema["items"], definitions)}
    if schema.get("type") == "object":
        parts = {name: structural(each, definitions) for name, each in schema.get("properties", {}).items()}
        if isinstance(schema.get("additionalProperties"), dict):
            return kept | {"additionalProperties": structural(schema["additionalProperties"], definitions)}
        return kept | {"properties": parts} | ({"required": schema["required"]} if schema.get("required") else {})
    if "type" not in schema:
        raise NotStructural(f"a value of any kind: {schema}")
    return kept


KEPT = (
    "type", "minimum", "maximum", "minLength", "maxLength", "pattern", "maxItems", "minItems", "maxProperties",
)  # fmt: skip


def _either(choices: list[Schema]) -> Schema:
    """A number or text is the one choice there is; null is what nobody writes."""
    choices = [each for each in choices if each.get("type") != "null"]
    if len(choices) == 1:
        return choices[0]
    shapes = [shape for each in choices for shape in each.get("anyOf", [each])]
    if any(shape.get("type") not in (*NUMBERS, "string") for shape in shapes):
        raise NotStructural(f"one of several kinds: {choices}")
    texts = [shape for shape in shapes if shape["type"] == "string"]
    patterns = [shape["pattern"] for shape in texts if "pattern" in shape]
    patterns += [f"^{word}$" for shape in texts for word in shape.get("enum", ())]
    bound = {"pattern": "|".join(f"({each})" for each in patterns)} if patterns else {}
    least = min((shape["minimum"] for shape in shapes if "minimum" in shape), default=None)
    return {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        **({} if least is None else {"minimum": least}),
        **bound,
    }


# --- the definition around it ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KindNames:
    """What a kind is called."""

    kind: str
    plural: str
    short: str
    doc: str

    @property
    def path(self) -> str:
        """Where all of them are."""
        return f"/apis/{GROUP}/{VERSION}/{self.plural}"


@dataclass(frozen=True, slots=True)
class KindShape:
    """What it holds, and what of it `kubectl get` shows: (title, type, JSON path)."""

    spec: Schema
    status: Schema
    columns: tuple[tuple[str, str, str], ...] = ()
    rules: tuple[tuple[str, str], ...] = ()
    """CEL over the whole object, each with what is said where it does not hold."""


def definition(names: KindNames, shape: KindShape) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind without namespace."""
    whole: Schema = {
        "type": "object",
        "description": names.doc,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": shape.spec,
            "status": shape.status,
        },
        **rules(shape.rules),
    }
    columns = [{"name": name, "type": kind, "jsonPath": path} for name, kind, path in shape.columns]
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": whole},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            *columns,
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
    }
    called = {
        "kind": names.kind,
        "plural": names.plural,
        "singular": names.kind.lower(),
        "listKind": f"{names.kind}List",
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {**called, "shortNames": [names.short], "categories": ["gpuyard"]},
            "versions": [version],
        },
    }


def rules(told: Sequence[tuple[str, str]]) -> Schema:
    """Validations in CEL, as a part of a schema."""
    return {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in told]} if told else {}
