"""Which tasks exist is known to the parts that play them; core asks them through an entry point."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from webgym.spec import TaskSpec

__all__ = ["TASK_CHECK_GROUP", "installed_task_check", "look_for_tasks_in"]

TASK_CHECK_GROUP = "webgym.task_checks"
"""Entry points of this group are called with each :class:`~webgym.spec.TaskSpec` of a manifest; they raise a
:class:`~webgym.errors.WebGymError` for one that cannot be made."""


def installed_task_check() -> Callable[[TaskSpec], None] | None:
    """What the installed parts say about tasks, for :func:`webgym.manifest.load_manifest`.

    None where no part knows any task: where the workers' package or what it needs is not installed, as on a laptop
    that only submits runs, task names are taken on trust.
    """
    checks: list[Callable[[TaskSpec], None]] = []
    for entry in entry_points(group=TASK_CHECK_GROUP):
        try:
            checks.append(entry.load())
        except ImportError:
            continue
    if not checks:
        return None

    def check(task: TaskSpec) -> None:
        for known in checks:
            known(task)

    return check


def look_for_tasks_in(folders: Iterable[Path]) -> None:
    """Let ``module:Class`` find modules in these folders, too, for as long as this process lives.

    They come last on ``sys.path``: a file of a user's own that happens to be called like a library replaces nothing.

    Args:
        folders: absolute, or relative to the current directory; those that do not exist are harmless.
    """
    for folder in folders:
        with contextlib.suppress(FileNotFoundError):  # the current directory itself may be gone
            absolute = os.path.abspath(folder)
            if absolute not in sys.path:
                sys.path.append(absolute)
