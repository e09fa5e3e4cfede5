"""The spec's fields by their manifest paths: which exist, what kind each is, and which one a wrong path
meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import JsonValue

from webgym.spec.base import SpecModel
from webgym.spec.run import RunManifest

__all__ = ["FieldPath", "Shape", "format_path", "near", "shape_of", "step", "suggest_key"]

FieldPath = tuple[str | int, ...]
"""Keys and list indices from the root of a manifest: ``("spec", "task", 0, "name")``."""

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class Shape:
    """What may stand at a path: a model, a list, a map, or several of them (the task's two forms)."""

    __slots__ = ("anything", "items", "model", "values")

    def __init__(self, annotation: Any) -> None:
        self.model: type[SpecModel] | None = None
        self.items: Any = None
        """Annotation of the elements, when a list may stand here."""
        self.values: Any = None
        """Annotation of the values, when a map with free keys may stand here."""
        self.anything = False
        """Whether any JSON value may stand here, as inside the parameters of a task."""
        for option in _options(annotation):
            if isinstance(option, type) and issubclass(option, SpecModel):
                self.model = option
            elif option is JsonValue:
                self.anything = True
            elif get_origin(option) is list:
                self.items = get_args(option)[0]
            elif get_origin(option) is dict:
                self.values = get_args(option)[1]

    def keys(self) -> dict[str, Any]:
        """Annotations by manifest key, where a model stands."""
        if self.model is None:
            return {}
        return {field.alias or name: field.annotation for name, field in self.model.model_fields.items()}


def _options(annotation: Any) -> Iterator[Any]:
    """The alternatives of an annotation, without Annotated, Optional and type aliases around them."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _options(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for option in get_args(annotation):
            yield from _options(option)
    elif annotation is not type(None):
        yield annotation


def step(shape: Shape, part: str | int) -> Shape | None:
    """The shape one key or index further down; None where that leads nowhere."""
    if shape.anything:
        return shape
    if isinstance(part, int):
        return None if shape.items is None else Shape(shape.items)
    if shape.model is not None:
        keys = shape.keys()
        return Shape(keys[part]) if part in keys else None
    return None if shape.values is None else Shape(shape.values)


def shape_of(path: FieldPath) -> Shape | None:
    """The shape at a path from the root of a manifest; None where there is nothing."""
    shape: Shape | None = Shape(RunManifest)
    for part in path:
        if shape is None:
            return None
        shape = step(shape, part)
    return shape


def format_path(path: Iterable[str | int]) -> str:
    """``spec.task[0].params["a b"]`` for its path."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_KEY.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f'["{part}"]'
    return text


def _folded(key: str) -> str:
    return re.sub(r"[^a-z0-9]", "", key.lower())


def near(wrong: str, real: Sequence[str]) -> str | None:
    """The name among `real` that `wrong` most likely meant, or None."""
    folded = {_folded(name): name for name in reversed(real)}
    close = difflib.get_close_matches(_folded(wrong), list(folded), n=1, cutoff=0.6)
    return folded[close[0]] if close else None


@cache
def _everywhere() -> dict[str, list[str]]:
    """Full paths of all fields, by their folded last key."""
    found: dict[str, list[str]] = {}

    def visit(shape: Shape, path: FieldPath) -> None:
        for key, annotation in shape.keys().items():
            inner = Shape(annotation)
            found.setdefault(_folded(key), []).append(format_path((*path, key)))
            visit(inner, (*path, key))
            if inner.items is not None and inner.model is None:
                visit(Shape(inner.items), (*path, key, 0))

    visit(Shape(RunManifest), ())
    return found


def suggest_key(path: FieldPath) -> str:
    """What to say about a path whose last key does not exist: the nearest real one, or those there are."""
    wrong = str(path[-1])
    parent = shape_of(path[:-1])
    siblings = list(parent.keys()) if parent is not None else []
    if "redis" in path and "pass" in wrong.lower():
        return "a manifest holds no password: name its source in redis.passwordFrom"
    sibling = near(wrong, siblings)
    if sibling is not None and _folded(sibling) == _folded(wrong):
        return f"did you mean {sibling}?"
    elsewhere = _everywhere().get(_folded(wrong))
    if elsewhere:
        return f"did you mean {' or '.join(elsewhere[:2])}?"
    if sibling is not None:
        return f"did you mean {sibling}?"
    close = difflib.get_close_matches(_folded(wrong), list(_everywhere()), n=1, cutoff=0.8)
    if close:
        return f"did you mean {_everywhere()[close[0]][0]}?"
    return f"known here: {', '.join(siblings)}" if siblings else "nothing can stand here"
