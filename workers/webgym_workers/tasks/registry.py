"""From a task's name in a manifest to the task: MiniWoB++ pages, entry points, and ``module:Class``."""

from __future__ import annotations

import difflib
import importlib
import inspect
from importlib.metadata import entry_points
from typing import Any

from webgym.errors import TaskError
from webgym.spec import TaskSpec
from webgym_workers.tasks.miniwob import MiniWobTask, miniwob_names
from webgym_workers.tasks.task import Task

__all__ = ["ENTRY_POINT_GROUP", "check_task", "create_task", "task_names"]

ENTRY_POINT_GROUP = "webgym.tasks"
"""Distributions register their tasks here: ``name = "module:Class"``."""

_MINIWOB = "miniwob."


def task_names() -> tuple[str, ...]:
    """Every name that a manifest may use without a colon, sorted."""
    registered = [e.name for e in entry_points(group=ENTRY_POINT_GROUP)]
    return tuple(sorted([*registered, *(_MINIWOB + n for n in miniwob_names())]))


def create_task(name: str, params: dict[str, Any] | None = None) -> Task:
    """The task of a manifest's ``task.name`` and ``task.params``.

    Raises:
        TaskError: no such task, an import that fails, or parameters that it does not take.
    """
    params = params or {}
    if name.startswith(_MINIWOB):
        if name.removeprefix(_MINIWOB) not in miniwob_names():
            raise TaskError(_unknown(name))
        if params:
            raise TaskError(f"task {name!r} takes no params, but has {sorted(params)}")
        return MiniWobTask(name.removeprefix(_MINIWOB))
    factory = _load(name)
    try:
        inspect.signature(factory).bind(**params)
    except TypeError as error:
        raise TaskError(f"task {name!r}: params do not fit: {error}") from None
    task = factory(**params)
    if not isinstance(task, Task):
        raise TaskError(f"task {name!r} made a {type(task).__name__}, not a webgym_workers.tasks.Task")
    return task


def check_task(task: TaskSpec) -> None:
    """Check that a manifest's task can be made.

    Raises:
        TaskError: it cannot.
    """
    create_task(task.name, dict(task.params))


def _load(name: str) -> Any:
    if ":" in name:
        module_name, _, attribute = name.partition(":")
        try:
            found: Any = importlib.import_module(module_name)
            for part in attribute.split("."):
                found = getattr(found, part)
        except ImportError as error:
            raise TaskError(
                f"task {name!r}: cannot import {module_name!r} ({error}); is it on PYTHONPATH?"
            ) from None
        except AttributeError:
            raise TaskError(f"task {name!r}: module {module_name!r} has no {attribute!r}") from None
    else:
        matching = [e for e in entry_points(group=ENTRY_POINT_GROUP) if e.name == name]
        if not matching:
            raise TaskError(_unknown(name))
        try:
            found = matching[0].load()
        except (ImportError, AttributeError) as error:
            raise TaskError(f"task {name!r}: its entry point cannot be loaded: {error}") from None
    if not callable(found):
        raise TaskError(f"task {name!r} is not a class")
    return found


def _unknown(name: str) -> str:
    known = task_names()
    close = difflib.get_close_matches(name, known, 1, 0.5) or difflib.get_close_matches(
        _MINIWOB + name, known, 1, 0.5
    )
    hint = f"did you mean {close[0]!r}?" if close else "`webgym tasks` lists them; your own is module:Class"
    return f"unknown task {name!r}; {hint}"
