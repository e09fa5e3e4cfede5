"""From a task's name in a manifest to the task: MiniWoB++ pages, entry points, and ``module:Class``."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from webgym.errors import TaskElsewhereError, TaskError, WebGymError
from webgym.spec import TaskSpec
from webgym.tasks import look_for_tasks_in
from webgym_workers.tasks.fault import describe_fault
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

    The module of ``module:Class`` may lie where Python looks, in the current directory, or in a folder named by
    :func:`webgym.tasks.look_for_tasks_in`.

    Raises:
        TaskError: no such task, parameters that it does not take, or code of its own that raises.
    """
    params = params or {}
    if name.startswith(_MINIWOB):
        if name.removeprefix(_MINIWOB) not in miniwob_names():
            raise TaskError(_unknown(name))
        if not set(params) <= {"skips_waits"} or not isinstance(params.get("skips_waits", True), bool):
            raise TaskError(
                f"task {name!r} takes no params but skips_waits (true or false), but has {params}"
            )
        return MiniWobTask(name.removeprefix(_MINIWOB), **params)
    factory = _load(name)
    with contextlib.suppress(ValueError):  # what is written in C may not say what it takes
        try:
            inspect.signature(factory).bind(**params)
        except TypeError as error:
            raise TaskError(f"task {name!r}: params do not fit: {error}") from None
    try:
        task = factory(**params)
    except WebGymError:
        raise
    except (Exception, SystemExit) as error:
        raise TaskError(f"task {name!r} cannot be made: {describe_fault(error)}") from error
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
        found = _attribute(name, _module(name, module_name), attribute)
    else:
        matching = [e for e in entry_points(group=ENTRY_POINT_GROUP) if e.name == name]
        if not matching:
            raise TaskError(_unknown(name))
        try:
            found = matching[0].load()
        except WebGymError:
            raise
        except (Exception, SystemExit) as error:
            raise TaskError(
                f"task {name!r}: its entry point {matching[0].value} cannot be loaded: {describe_fault(error)}"
            ) from error
    if not callable(found):
        raise TaskError(f"task {name!r} is not a class")
    return found


def _module(name: str, module_name: str) -> ModuleType:
    look_for_tasks_in([Path()])
    try:
        # Python remembers what a folder holds; a file written a moment ago would not be seen.
        importlib.invalidate_caches()
        return importlib.import_module(module_name)
    except WebGymError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise TaskElsewhereError(
                f"task {name!r}: there is no module {error.name!r} in the current directory, beside the manifest, or"
                " on PYTHONPATH"
            ) from None
        raise TaskError(f"task {name!r}: importing {module_name!r} raised {describe_fault(error)}") from error


def _attribute(name: str, module: ModuleType, attribute: str) -> Any:
    found: Any = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            place = getattr(module, "__file__", None) or "a folder"
            raise TaskError(
                f"task {name!r}: module {module.__name__!r} ({place}) has no {attribute!r}"
            ) from None
        except Exception as error:
            raise TaskError(f"task {name!r}: looking up {part!r} raised {describe_fault(error)}") from error
    return found


def _unknown(name: str) -> str:
    # Without the prefix that nearly all names share, which would make any two of them look alike.
    known = {full.removeprefix(_MINIWOB): full for full in task_names()}
    close = difflib.get_close_matches(name.removeprefix(_MINIWOB), known, 1)
    hint = (
        f"did you mean {known[close[0]]!r}?"
        if close
        else "`webgym tasks` lists them; your own is module:Class"
    )
    return f"unknown task {name!r}; {hint}"
