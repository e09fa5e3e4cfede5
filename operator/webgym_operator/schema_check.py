"""Whether the cluster's CustomResourceDefinition is the one that this operator was made with.

A server prunes fields that it does not know: with an older definition, parts of a spec and of a status would vanish
without a word. With a newer one it takes what this operator does not know, and fills in defaults that nobody asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from webgym.crd import VERSION, build_crd

__all__ = ["Definition", "missing_fields"]

_INSIDE = frozenset(
    {"description", "default", "properties", "items", "additionalProperties", "required"}
    | {"x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"}
)
"""What a schema says of other things than the value itself, or what no validation of a value depends on."""


class Definition:
    """The cluster's definition beside this operator's own.

    Args:
        installed: the CustomResourceDefinition, as the server has it.
    """

    def __init__(self, installed: Mapping[str, Any]) -> None:
        self._theirs = _schema(installed) or {}

    def differs(self, path: Sequence[str | int]) -> bool:
        """Whether a field is another one there, or is there alone.

        Args:
            path: keys and indices from the root: ``("spec", "workers", "env", 0, "name")``.
        """
        own, theirs = _node(_own_schema(), path), _node(self._theirs, path)
        if own is None or theirs is None:
            return theirs is not None
        return _said(own) != _said(theirs) or _required(_own_schema(), path) != _required(self._theirs, path)

    def without_defaults(self, spec: Any) -> Any:
        """A spec without the fields that this operator does not know and the server filled in by itself."""
        own, theirs = _node(_own_schema(), ("spec",)), _node(self._theirs, ("spec",))
        return spec if own is None or theirs is None else _without_defaults(spec, own, theirs)


def missing_fields(installed: Mapping[str, Any]) -> list[str]:
    """Paths of the fields that the installed definition lacks, such as ``spec.workers.autoscaling``."""
    theirs = _schema(installed)
    if theirs is None:
        return [f"version {VERSION}"]
    return list(_missing(_own_schema(), theirs, ""))


@functools.cache
def _own_schema() -> Mapping[str, Any]:
    own = _schema(build_crd())
    assert own is not None
    return own


def _schema(crd: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for version in crd.get("spec", {}).get("versions") or ():
        if version.get("name") == VERSION and version.get("served"):
            schema: Mapping[str, Any] = version.get("schema", {}).get("openAPIV3Schema", {})
            return schema
    return None


def _missing(own: Mapping[str, Any], theirs: Mapping[str, Any], path: str) -> Iterator[str]:
    for name, inner in (own.get("properties") or {}).items():
        there = (theirs.get("properties") or {}).get(name)
        where = f"{path}.{name}".lstrip(".")
        if there is None:
            if not theirs.get("x-kubernetes-preserve-unknown-fields"):
                yield where
        elif where != "metadata":
            yield from _missing(inner, there, where)
    if "items" in own:
        yield from _missing(own["items"], theirs.get("items") or {}, f"{path}[]")


def _node(schema: Mapping[str, Any], path: Sequence[str | int]) -> Mapping[str, Any] | None:
    """The schema of a field; None where there is none."""
    node = schema
    for part in path:
        if isinstance(part, int):
            inner = node.get("items")
        else:
            inner = (node.get("properties") or {}).get(part, node.get("additionalProperties"))
        if not isinstance(inner, Mapping):
            return None
        node = inner
    return node


def _said(node: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: value for key, value in node.items() if key not in _INSIDE}


def _required(schema: Mapping[str, Any], path: Sequence[str | int]) -> bool:
    return bool(path) and path[-1] in ((_node(schema, path[:-1]) or {}).get("required") or ())


def _without_defaults(value: Any, own: Mapping[str, Any], theirs: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        items, others = own.get("items"), theirs.get("items")
        if not items or not others:
            return value
        return [_without_defaults(inner, items, others) for inner in value]
    if not isinstance(value, Mapping) or "properties" not in own:
        return value
    kept: dict[str, Any] = {}
    for name, inner in value.items():
        mine, there = own["properties"].get(name), (theirs.get("properties") or {}).get(name)
        if mine is None and there is not None and "default" in there and inner == _filled(there):
            continue
        kept[name] = inner if mine is None or there is None else _without_defaults(inner, mine, there)
    return kept


def _filled(schema: Mapping[str, Any]) -> Any:
    """What a server puts where nothing was: the default, with the defaults inside it filled in."""
    default = schema["default"]
    if not isinstance(default, Mapping):
        return default
    inner = {n: _filled(s) for n, s in (schema.get("properties") or {}).items() if "default" in s}
    return {**inner, **default}
