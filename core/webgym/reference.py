"""The reference page of the spec, made from the same models as the CustomResourceDefinition."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from webgym.crd import Schema, object_schema
from webgym.spec.base import Rule, SpecModel
from webgym.spec.fields import FieldPath, Shape, format_path
from webgym.spec.run import API_VERSION, KIND, Metadata, RunSpec
from webgym.spec.status import RunStatus

__all__ = ["render_reference"]

_HEAD = f"""\
<!-- Made by `webgym crds` from the models in webgym.spec. Change those, then run it again. -->

# The run: `{KIND}`, `{API_VERSION}`

```yaml
apiVersion: {API_VERSION}
kind: {KIND}
metadata:
  name: click-button
spec:
  task:
    name: miniwob.click-button
  stop:
    seconds: 60
```

The same manifest runs under `webgym run FILE` on one machine and under the operator on a cluster. `webgym validate
FILE` checks it and `webgym validate FILE --resolved` shows it with every default filled in. Only `metadata.name` and
`spec.task` are required.

- `--set path=value` changes one field from the command line: `--set task.name=miniwob.click-link`,
  `--set 'task[0].weight=2'`, `--set 'workers.nodeSelector["kubernetes.io/arch"]=arm64'`. The value is YAML; an empty
  one unsets the field.
- A *quantity* is an amount as Kubernetes writes it: `2Gi`, `500m`, `3`. A fraction needs quotes: `"0.5"`.
- A key whose value is null counts as left out.
- Secrets are given by reference. A manifest that holds a password is refused, since manifests are written out.
- Rules that span fields stand below each table. `webgym validate`, the operator and (Kubernetes 1.25 and later) the
  API server enforce them; those marked with ° the API server cannot check.
"""


def render_reference() -> str:
    """The page as Markdown."""
    parts = [_HEAD]
    for path, model in _sections(Metadata, ("metadata",)):
        parts.append(_section(path, model))
    for path, model in _sections(RunSpec, ("spec",)):
        parts.append(_section(path, model))
    for path, model in _sections(RunStatus, ("status",)):
        parts.append(_section(path, model))
    return "\n".join(parts)


def _sections(model: type[SpecModel], path: FieldPath) -> Iterator[tuple[FieldPath, type[SpecModel]]]:
    """A model and the models inside it, each with the path at which it stands; depth first."""
    yield path, model
    for key, annotation in Shape(model).keys().items():
        shape = Shape(annotation)
        inner = shape.model or (Shape(shape.items).model if shape.items is not None else None)
        if inner is not None:
            yield from _sections(inner, (*path, key))


def _section(path: FieldPath, model: type[SpecModel]) -> str:
    schema = object_schema(model)
    shapes = Shape(model).keys()
    required = set(schema.get("required", ()))
    lines = [f"## `{format_path(path)}`", "", schema["description"], ""]
    lines += ["| field | type | default | |", "|---|---|---|---|"]
    for key, field in schema["properties"].items():
        default = "required" if key in required else _default(field, Shape(shapes[key]))
        cells = (f"`{key}`", _type(field, Shape(shapes[key])), default, field["description"])
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    if model.rules:
        lines += ["", *(_rule(rule) for rule in model.rules)]
    return "\n".join([*lines, ""])


def _rule(rule: Rule) -> str:
    return f"- {rule.message}{'' if rule.cel else ' °'}"


def _default(field: Schema, shape: Shape) -> str:
    if shape.model is not None:
        return f"`{json.dumps(field['default'])}`" if field.get("default") else ""
    return f"`{_literal(field['default'])}`" if "default" in field else ""


def _literal(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _type(field: Schema, shape: Shape) -> str:
    """Type and bounds in words."""
    if shape.model is not None and shape.items is not None:
        return f"object, or list of 1 to {field['maxItems']} objects"
    if "x-kubernetes-int-or-string" in field:
        return "quantity"
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    kind = field.get("type", "any")
    match kind:
        case "integer" | "number":
            return f"{kind}{_range(field)}"
        case "array":
            inner = _type(field["items"], Shape(shape.items))
            return (
                f"list of up to {field['maxItems']}: {inner}" if "maxItems" in field else f"list of {inner}"
            )
        case "object" if shape.values is not None:
            values = field.get("additionalProperties")
            return f"map of text to {_type(values, Shape(shape.values))}" if values else "map"
        case "string":
            return "text"
    return str(kind)


def _range(field: Schema) -> str:
    least, most = field.get("minimum"), field.get("maximum")
    if least is None or most is None:
        return ""
    low = f"above {least:g}" if field.get("exclusiveMinimum") else f"{_number(least)}"
    return f", {low} to {_number(most)}" if not low.startswith("above") else f", {low}, up to {_number(most)}"


def _number(value: float) -> str:
    for power in (31, 63):
        if value == 2**power - 1:
            return f"2^{power} - 1"
    return f"{value:g}" if abs(value) < 1e6 else f"{value:.0f}"
