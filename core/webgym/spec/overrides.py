"""``--set path=value``: changing single fields of a manifest from the command line."""

from __future__ import annotations

import re
from typing import Any, Protocol

from webgym.spec.fields import FieldPath, format_path, shape_of, step, suggest_key
from webgym.spec.problems import InvalidManifest, Problem
from webgym.spec.source import Source, parse_value

__all__ = ["apply_override", "parse_path"]


class _Fail(Protocol):
    def __call__(self, message: str, path: FieldPath = ()) -> InvalidManifest: ...


_PART = re.compile(r'(?:^|\.)([A-Za-z_][A-Za-z0-9_-]*)|\[(\d{1,5})\]|\[(?:"([^"]+)"|\'([^\']+)\')\]')


def parse_path(text: str) -> FieldPath:
    """``task[0].params["a.b"]`` as a path from the root of the manifest; the leading ``spec.`` may be left
    out.

    Raises:
        ValueError: the text is no path.

    """
    parts: list[str | int] = []
    end = 0
    while end < len(text):
        match = _PART.match(text, end)
        starts_with_dot = text[end] == "."
        if match is None or (match[1] is not None and starts_with_dot == (end == 0)):
            raise ValueError(f"{text[:60]!r} is no path such as learner.batchSize or task[0].weight")
        name, index, double, single = match.groups()
        parts.append(int(index) if index is not None else name or double or single)
        end = match.end()
    if not parts or not isinstance(parts[0], str):
        raise ValueError("the path is empty; write path=value, such as learner.batchSize=64")
    return tuple(parts) if parts[0] in ("spec", "metadata", "apiVersion", "kind") else ("spec", *parts)


def apply_override(source: Source, option: str) -> None:
    """Set one field of a parsed manifest in place.

    Raises:
        InvalidManifest: the option is no ``path=value``, or the path leads nowhere. The value is not quoted.

    """
    written, equals, value_text = option.partition("=")
    written = written.strip()

    def fail(message: str, path: FieldPath = ()) -> InvalidManifest:
        return InvalidManifest([Problem(f"--set {written}", format_path(path), message)])

    if not equals:
        raise fail("has no value; write path=value, such as learner.batchSize=64")
    try:
        path = parse_path(written)
    except ValueError as error:
        raise fail(str(error)) from error
    value = parse_value(value_text, written)
    if not isinstance(source.data, dict):
        return  # validation says what is wrong with such a document

    path = _bridge_task_forms(source.data, path, fail)
    _check_path(path, fail)
    holder: Any = source.data
    for position, part in enumerate(path):
        above, here = path[:position], path[: position + 1]
        obstacle = _make_room(holder, part)
        if obstacle:
            raise fail(obstacle, above)
        if position == len(path) - 1:
            holder[part] = value
            source.options[here] = written
            return
        if (holder.get(part) if isinstance(holder, dict) else holder[part]) is None:
            holder[part] = [] if isinstance(path[position + 1], int) else {}
            source.options[here] = written
        holder = holder[part]


def _check_path(path: FieldPath, fail: _Fail) -> None:
    """See that the spec has a field of this path, before anything is changed for it."""
    shape = shape_of(())
    for position, part in enumerate(path):
        assert shape is not None
        shape = step(shape, part)
        if shape is None:
            above = path[:position]
            raise fail(_no_such(above, part), above if isinstance(part, int) else path[: position + 1])


def _no_such(above: FieldPath, part: str | int) -> str:
    shape = shape_of(above)
    if isinstance(part, int):
        return "is no list and takes no [index]"
    if shape is None or not shape.keys():
        return f"there is nothing below {format_path(above)}"
    return f"there is no such field; {suggest_key((*above, part))}"


def _make_room(holder: Any, part: str | int) -> str:
    """See that `part` can be assigned to in `holder`: a key of a map, an index of a list or the next one.

    Returns what stands in the way, or nothing.
    """
    if isinstance(part, str):
        return "" if isinstance(holder, dict) else "is no map in this manifest"
    if not isinstance(holder, list):
        return "is no list in this manifest"
    if part > len(holder):
        return f"the list has {len(holder)} entries; the next index is [{len(holder)}]"
    if part == len(holder):
        holder.append(None)
    return ""


def _bridge_task_forms(data: dict[str, Any], path: FieldPath, fail: _Fail) -> FieldPath:
    """Let ``task.name`` reach into a list of one task, and ``task[0].name`` a single task; ``task[1]``
    adds one."""
    spec = data.get("spec")
    if path[:2] != ("spec", "task") or len(path) < 3 or not isinstance(spec, dict):
        return path
    task, part = spec.get("task"), path[2]
    if isinstance(task, list) and isinstance(part, str):
        if len(task) != 1:
            raise fail(
                f"this manifest lists {len(task)} tasks; write task[0].{part}, task[1].{part}, ...", path[:2]
            )
        return (*path[:2], 0, *path[2:])
    if isinstance(task, dict) and isinstance(part, int):
        spec["task"] = [task]
    return path
