"""The CustomResourceDefinition: structural, current, and saying what the models say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from webgym.commands.crds import CRD_FILE, REFERENCE_FILE
from webgym.crd import build_crd, render_crd
from webgym.manifest import load_manifest
from webgym.reference import render_reference
from webgym.spec import RunSpec
from webgym.spec.source import parse

ROOT = Path(__file__).parents[2]
Schema = dict[str, Any]

VALUE_FIELDS = {
    "enum",
    "format",
    "maximum",
    "minimum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maxItems",
    "minItems",
}
VALUE_FIELDS |= {"maxLength", "minLength", "maxProperties", "minProperties", "pattern", "required"}
STRUCTURE = {"type", "description", "default", "properties", "items", "additionalProperties", "anyOf"}
EXTENSIONS = {"int-or-string", "preserve-unknown-fields", "list-type", "list-map-keys", "validations"}
KNOWN = VALUE_FIELDS | STRUCTURE | {f"x-kubernetes-{name}" for name in EXTENSIONS}
INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]


def structural_errors(schema: Schema, path: str = "") -> Iterator[str]:
    """What the API server's rules for structural schemas (apiextensions.k8s.io/v1) forbid in ours."""
    if unknown := schema.keys() - KNOWN:
        yield f"{path}: unknown {sorted(unknown)}"
    int_or_string = schema.get("x-kubernetes-int-or-string", False)
    preserved = schema.get("x-kubernetes-preserve-unknown-fields", False)
    if "type" not in schema and not int_or_string and not preserved:
        yield f"{path}: no type"
    if int_or_string and ("type" in schema or schema.get("anyOf") != INT_OR_STRING):
        yield f"{path}: int-or-string takes no type, and exactly the one anyOf"
    if "anyOf" in schema and not int_or_string:
        yield f"{path}: types inside anyOf"
    if "properties" in schema and "additionalProperties" in schema:
        yield f"{path}: properties and additionalProperties exclude each other"
    if schema.get("type") == "array" and "items" not in schema:
        yield f"{path}: an array without items"
    if schema.get("x-kubernetes-list-type") == "map":
        item = schema["items"]
        for key in schema["x-kubernetes-list-map-keys"]:
            if key not in item.get("required", ()) and "default" not in item["properties"][key]:
                yield f"{path}: map key {key} is neither required nor defaulted"
    if missing := set(schema.get("required", ())) - schema.get("properties", {}).keys():
        yield f"{path}: required but not there: {missing}"
    if (
        path != "metadata"
        and "description" not in schema
        and path
        and not path.endswith(("[]", "{}", ".name"))
    ):
        yield f"{path}: no description"
    if "default" in schema:
        yield from default_errors(schema["default"], schema, path)
    for name, inner in schema.get("properties", {}).items():
        yield from structural_errors(inner, f"{path}.{name}".lstrip("."))
    if "items" in schema:
        yield from structural_errors(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from structural_errors(schema["additionalProperties"], f"{path}{{}}")


def default_errors(value: Any, schema: Schema, path: str) -> Iterator[str]:
    """A default has to be of its type and must not hold what pruning would take away."""
    types = {
        "object": dict,
        "array": list,
        "string": str,
        "boolean": bool,
        "integer": int,
        "number": (int, float),
    }
    kind = schema.get("type")
    if kind is not None and not isinstance(value, types[kind]):
        yield f"{path}: default {value!r} is no {kind}"
    if isinstance(value, bool) and kind in ("integer", "number"):
        yield f"{path}: default {value!r} is no {kind}"
    if isinstance(value, dict):
        for name, inner in value.items():
            if name not in schema.get("properties", {}):
                yield f"{path}: default holds the unknown {name}"
            else:
                yield from default_errors(inner, schema["properties"][name], f"{path}.{name}")


def version(*, cel: bool = True) -> Schema:
    (only,) = build_crd(cel=cel)["spec"]["versions"]
    return dict(only)


def root(*, cel: bool = True) -> Schema:
    return dict(version(cel=cel)["schema"]["openAPIV3Schema"])


@pytest.mark.parametrize("cel", [True, False])
def test_the_schema_is_structural(cel: bool) -> None:
    assert list(structural_errors(root(cel=cel))) == []


def test_the_checker_sees_what_a_server_refuses() -> None:
    wrong = {
        "type": "object",
        "properties": {
            "a": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "."},
            "b": {"type": "integer", "default": "5", "description": "."},
            "c": {"$ref": "#/x", "description": "."},
        },
    }
    errors = list(structural_errors(wrong))
    assert [error.split(":")[0] for error in errors] == ["a", "a", "b", "c", "c"]


def test_without_cel_nothing_of_it_is_left() -> None:
    assert "x-kubernetes-validations" in render_crd()
    assert "x-kubernetes-validations" not in render_crd(cel=False)


def test_seed_and_algorithm_cannot_be_changed() -> None:
    spec = root()["properties"]["spec"]["properties"]
    for field in (spec["seed"], spec["learner"]["properties"]["algorithm"]):
        assert [rule["rule"] for rule in field["x-kubernetes-validations"]] == ["self == oldSelf"]


def test_a_name_longer_than_fifty_is_refused_by_the_schema() -> None:
    assert root()["properties"]["metadata"]["properties"]["name"]["maxLength"] == 50


def test_subresources_columns_and_names() -> None:
    only = version()
    scale = only["subresources"]["scale"]
    assert scale["specReplicasPath"] == ".spec.workers.replicas"
    for path in (scale["specReplicasPath"], scale["statusReplicasPath"], scale["labelSelectorPath"]):
        node = root()
        for part in path.strip(".").split("."):
            node = node["properties"][part]
    assert only["subresources"]["status"] == {}
    assert [column["name"] for column in only["additionalPrinterColumns"]] == [
        *("Succeeded", "Reason", "Workers", "Steps", "Success", "Age"),
    ]
    names = build_crd()["spec"]["names"]
    assert (names["shortNames"], names["categories"]) == (["wgr"], ["webgym"])


def test_both_forms_of_task_get_the_same_bounds_and_defaults() -> None:
    task = root()["properties"]["spec"]["properties"]["task"]
    assert "type" not in task
    assert task["properties"] == task["items"]["properties"]
    assert task["required"] == task["items"]["required"] == ["name"]


def test_a_field_without_a_type_says_in_words_what_may_stand_there() -> None:
    """`kubectl explain` has nothing else to show there."""

    def visit(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
        for name, inner in schema.get("properties", {}).items():
            yield f"{path}.{name}", inner
            yield from visit(inner, f"{path}.{name}")
        yield from visit(schema["items"], f"{path}[]") if "items" in schema else ()

    untyped = {
        path: schema
        for path, schema in visit(root(), "")
        if "type" not in schema and not schema.get("x-kubernetes-int-or-string")
    }
    assert untyped.keys() == {".spec.task"}
    for key in untyped[".spec.task"]["properties"]:
        assert key in untyped[".spec.task"]["description"]
    assert untyped[".spec.task"]["description"].endswith(", or a list of such maps.")


def filled(value: Any, schema: Schema) -> Any:
    """Defaults applied as the API server does."""
    if isinstance(value, dict):
        result = dict(value)
        for name, inner in schema.get("properties", {}).items():
            if name not in result and "default" in inner:
                result[name] = inner["default"]
            if name in result:
                result[name] = filled(result[name], inner)
        return result
    return [filled(inner, schema.get("items", {})) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_server_s_defaults_are_the_models_defaults(path: Path) -> None:
    written = parse(path.read_text(), path.name).data["spec"]
    by_server = filled(written, root()["properties"]["spec"])
    assert RunSpec.model_validate(by_server, by_alias=True, by_name=False) == load_manifest(path).spec
    explicit = load_manifest(path).spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    assert explicit.keys() <= by_server.keys()


@pytest.mark.parametrize(
    ("file", "text"),
    [(CRD_FILE, render_crd()), (REFERENCE_FILE, render_reference())],
    ids=["crd", "reference"],
)
def test_the_files_in_the_tree_are_current(file: Path, text: str) -> None:
    assert (ROOT / file).read_text() == text, "run `webgym crds`"


def test_the_reference_names_every_field() -> None:
    text = render_reference()

    def visit(schema: Schema) -> None:
        for name, inner in schema.get("properties", {}).items():
            assert f"| `{name}` |" in text, name
            visit(inner)
            visit(inner.get("items", {}))

    visit(root()["properties"]["spec"])
    for validation in root()["properties"]["spec"]["x-kubernetes-validations"]:
        assert validation["message"] in text


def test_the_yaml_is_what_was_built() -> None:
    read = parse(render_crd(), "crd").data

    def unwrapped(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: " ".join(inner.split())
                if key == "description" and isinstance(inner, str)
                else unwrapped(inner)
                for key, inner in value.items()
            }
        return [unwrapped(inner) for inner in value] if isinstance(value, list) else value

    assert unwrapped(read) == build_crd()


def test_no_bound_is_one_that_servers_cannot_hold() -> None:
    """Kept as a float and compared as an int64, 2^63 - 1 overflows: Kubernetes 1.20 refused every status."""

    def bounds(node: Any) -> list[float]:
        if isinstance(node, list):
            return [bound for inner in node for bound in bounds(inner)]
        if not isinstance(node, dict):
            return []
        own = [node[end] for end in ("minimum", "maximum") if isinstance(node.get(end), int | float)]
        return own + [bound for inner in node.values() for bound in bounds(inner)]

    found = bounds(build_crd()["spec"]["versions"])
    assert found
    assert max(map(abs, found)) <= 2**53
