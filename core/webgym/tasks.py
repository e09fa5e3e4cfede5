"""Which tasks exist is known to the parts that play them; core asks them through an entry point."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from webgym.spec import TaskSpec

__all__ = ["TASK_CHECK_GROUP", "installed_task_check"]

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
