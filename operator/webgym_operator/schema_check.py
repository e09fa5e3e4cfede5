"""Whether the cluster's CustomResourceDefinition is the one that this operator was made with.

A server prunes fields that it does not know: with an older definition, parts of a spec and of a status would vanish
without a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from webgym.crd import VERSION, build_crd

__all__ = ["missing_fields"]


def missing_fields(installed: Mapping[str, Any]) -> list[str]:
    """Paths of the fields that the installed definition lacks, such as ``spec.workers.autoscaling``."""
    own = _schema(build_crd())
    theirs = _schema(installed)
    if theirs is None:
        return [f"version {VERSION}"]
    assert own is not None
    return list(_missing(own, theirs, ""))


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
