"""The CustomResourceDefinition, made from the models of :mod:`webgym.spec`.

The API server demands a *structural* schema: no references, a type for every value, no types inside ``anyOf``.
Pydantic's JSON schema is rewritten into one here.

``spec.task`` is one task or a list of them, and a structural schema has no type for that. It is written without a
type, marked ``x-kubernetes-preserve-unknown-fields``, and carries both `properties` (which the server applies, with
their defaults, when it is given a map) and `items` (when it is given a list). What the server cannot do there is
refuse unknown keys and other types; the operator validates every run with the models anyway, and says so in a
condition. Servers leave out the type in what `kubectl explain` shows, older ones also what lies beneath; the field's
description says both. Two keys, ``task`` and ``tasks``, would have been typed, but would have made the same manifest
mean different things to people and to ``--set``.
"""

from __future__ import annotations

import textwrap
from typing import Any

from pydantic_core import PydanticUndefined

from webgym.spec.base import INT64_MAX, Rule, SpecModel
from webgym.spec.fields import Shape
from webgym.spec.run import API_VERSION, KIND, MOST_TASKS, Metadata, RunSpec
from webgym.spec.status import RunStatus
from webgym.spec.task import TaskSpec
from webgym.spec.yaml_text import dump_yaml

__all__ = ["CRD_NAME", "PLURAL", "build_crd", "object_schema", "render_crd"]

GROUP, VERSION = API_VERSION.split("/")
PLURAL = "webgymruns"
CRD_NAME = f"{PLURAL}.{GROUP}"

Schema = dict[str, Any]

_SUCCEEDED = '.status.conditions[?(@.type=="Succeeded")]'
_COLUMNS: list[Schema] = [
    {
        "name": "Succeeded",
        "type": "string",
        "jsonPath": f"{_SUCCEEDED}.status",
        "description": "Whether the run has reached its end; Unknown while it goes on.",
    },
    {"name": "Reason", "type": "string", "jsonPath": f"{_SUCCEEDED}.reason", "description": "Why."},
    {
        "name": "Workers",
        "type": "integer",
        "jsonPath": ".status.readyReplicas",
        "description": "Worker pods whose browsers act.",
    },
    {
        "name": "Steps",
        "type": "integer",
        "jsonPath": ".status.steps",
        "description": "Environment steps taken.",
    },
    {
        "name": "Success",
        "type": "number",
        "jsonPath": ".status.success",
        "description": "Success rate, 0 to 1.",
    },
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]

_KEPT = (
    "type",
    "format",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
)


def build_crd(*, cel: bool = True) -> Schema:
    """The CustomResourceDefinition as plain data.

    Args:
        cel: whether to render the rules that span fields (``x-kubernetes-validations``). Servers older than 1.25 do
            not know them, and Helm and kubectl refuse fields that the server does not know.
    """
    name = Metadata.model_json_schema(by_alias=True)["properties"]["name"]
    root: Schema = {
        "type": "object",
        "description": "A run of WebGym: visual web agents trained by reinforcement learning on real browsers.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of this format."},
            "kind": {"type": "string", "description": "Kind of this object."},
            "metadata": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "maxLength": name["maxLength"], "pattern": name["pattern"]}
                },
            },
            "spec": object_schema(RunSpec, cel=cel),
            "status": object_schema(RunStatus, cel=cel),
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": CRD_NAME},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": "webgymrun",
                "shortNames": ["wgr"],
                "categories": ["webgym"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": _COLUMNS,
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.workers.replicas",
                            "statusReplicasPath": ".status.replicas",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                    "schema": {"openAPIV3Schema": root},
                }
            ],
        },
    }


def render_crd(*, cel: bool = True) -> str:
    """The CustomResourceDefinition as YAML."""
    head = "# Made by `webgym crds` from the models in webgym.spec. Change those, then run it again.\n"
    return head + dump_yaml(_wrapped(build_crd(cel=cel)))


def _wrapped(value: Any) -> Any:
    """The same data with long descriptions broken into lines."""
    if isinstance(value, list):
        return [_wrapped(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    return {
        key: "\n".join(textwrap.wrap(inner, 80))
        if key == "description" and isinstance(inner, str)
        else _wrapped(inner)
        for key, inner in value.items()
    }


def object_schema(model: type[SpecModel], *, cel: bool = True) -> Schema:
    """The structural schema of a model."""
    shapes = Shape(model).keys()
    plain = model.model_json_schema(by_alias=True)
    definitions = plain.get("$defs", {})
    properties: dict[str, Schema] = {}
    for name, field in model.model_fields.items():
        key = field.alias or name
        schema = _field_schema(plain["properties"][key], definitions, shapes[key], cel=cel)
        bounds = schema.pop("x-webgym-bounds", None)  # of a quantity, which a server cannot compare
        forms = schema.pop("x-webgym-forms", None)  # where there is no type that could tell
        description = " ".join((field.description or "").split())
        description += (f" From {bounds}." if bounds else "") + (f" {forms}" if forms else "")
        properties[key] = {"description": description, **schema}
        default = _default(field.get_default(call_default_factory=True), schema)
        if default is not None:
            properties[key]["default"] = default
    schema = {"type": "object", "description": " ".join((model.__doc__ or "").split())}
    required = [field.alias or name for name, field in model.model_fields.items() if field.is_required()]
    if required:
        schema["required"] = required
    schema["properties"] = properties
    if cel:
        _add_rules(model, schema)
    return schema


def _add_rules(model: type[SpecModel], schema: Schema) -> None:
    """Add a model's CEL rules, each where its ``self`` is: at the object or at one of its fields."""
    for rule in model.rules:
        if rule.cel is None:
            continue
        target = schema["properties"][rule.field] if rule.on_field else schema
        target.setdefault("x-kubernetes-validations", []).append(_validation(rule))


def _validation(rule: Rule) -> Schema:
    return {"rule": rule.cel, "message": rule.message}


def _default(value: Any, schema: Schema) -> Any:
    """The default as JSON, or None where the server needs none.

    A nested object gets ``{}``, so that the server fills in the defaults inside, which CEL rules rely on.
    """
    if value is PydanticUndefined or value is None or value in ([], {}):
        return None
    if isinstance(value, SpecModel):
        given = value.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)
        inside = any("default" in inner for inner in schema.get("properties", {}).values())
        return given if given or inside else None
    return value if isinstance(value, (bool, int, float, str)) else str(value)


def _field_schema(node: Schema, definitions: Schema, annotation: Any, *, cel: bool) -> Schema:
    """Rewrite one node of pydantic's schema."""
    shape = Shape(annotation)
    if shape.model is TaskSpec:
        return _task_schema(cel=cel)
    if shape.model is not None:
        return _without(object_schema(shape.model, cel=cel), "description")
    if shape.anything:
        return {"x-kubernetes-preserve-unknown-fields": True}
    node = _resolved(node, definitions)
    schema: Schema = {key: node[key] for key in _KEPT if key in node}
    if "const" in node:
        schema["enum"] = [node["const"]]
    schema.update({key: value for key, value in node.items() if key.startswith("x-kubernetes-")})
    if "x-kubernetes-int-or-string" in schema:
        schema.update({key: node[key] for key in ("x-webgym-bounds",) if key in node})
        schema["anyOf"] = node["anyOf"]  # with types in it: the one pattern that is allowed
        return schema
    _add_bounds(node, schema)
    if schema.get("type") == "integer":
        schema["format"] = "int64"
    elif shape.items is not None:
        schema["items"] = _item_schema(node["items"], definitions, shape.items, cel=cel)
        schema.setdefault("x-kubernetes-list-type", "atomic")
    elif shape.values is not None:
        values = Shape(shape.values)
        if values.anything:
            schema["x-kubernetes-preserve-unknown-fields"] = True
        else:
            # A pattern for the keys is lost: a structural schema has no place for it, so the operator checks it.
            by_pattern: list[Schema] = list(node.get("patternProperties", {}).values())
            inner = by_pattern[0] if by_pattern else node["additionalProperties"]
            schema["additionalProperties"] = _field_schema(inner, definitions, shape.values, cel=cel)
    return schema


def _item_schema(node: Schema, definitions: Schema, annotation: Any, *, cel: bool) -> Schema:
    model = Shape(annotation).model
    return object_schema(model, cel=cel) if model else _field_schema(node, definitions, annotation, cel=cel)


def _task_schema(*, cel: bool) -> Schema:
    """One task or a list; see the head of this module."""
    task = object_schema(TaskSpec, cel=cel)
    keys = " and ".join(", ".join(task["properties"]).rsplit(", ", 1))
    return {
        "x-kubernetes-preserve-unknown-fields": True,
        "required": task["required"],
        "properties": task["properties"],
        "minItems": 1,
        "maxItems": MOST_TASKS,
        "items": task,
        "x-webgym-forms": f"A map with {keys}, or a list of such maps.",
    }


def _resolved(node: Schema, definitions: Schema) -> Schema:
    """The node without ``$ref`` and without the ``null`` of an optional field; null is absence to the server."""
    while True:
        if "$ref" in node:
            target = definitions[node["$ref"].removeprefix("#/$defs/")]
            node = {**target, **_without(node, "$ref")}
            continue
        options = [option for option in node.get("anyOf", ()) if option.get("type") != "null"]
        if len(options) == 1:
            node = {**options[0], **_without(node, "anyOf")}
            continue
        return node


def _add_bounds(node: Schema, schema: Schema) -> None:
    """Numeric bounds in the style of OpenAPI 3.0, where an excluded end is a flag beside the bound."""
    for end in ("minimum", "maximum"):
        exclusive = f"exclusive{end.capitalize()}"
        if exclusive in node:
            schema[end], schema[exclusive] = node[exclusive], True
        elif end in node and abs(node[end]) < INT64_MAX:
            # Servers keep a bound as a float and compare by int64: this one overflows, and nothing is below it.
            schema[end] = node[end]


def _without(schema: Schema, *keys: str) -> Schema:
    return {key: value for key, value in schema.items() if key not in keys}
