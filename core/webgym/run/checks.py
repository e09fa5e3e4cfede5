"""What must hold before a run writes or starts anything: parts register their checks by entry point."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from webgym.errors import UsageError

if TYPE_CHECKING:
    from webgym.spec import RunManifest

__all__ = ["GROUP", "check_run"]

GROUP = "webgym.checks"
"""Entry points of this group are called with the manifest before a run; they raise WebGymError to forbid it.
"""


def check_run(manifest: RunManifest) -> None:
    """Ask every part whether this run can work here: its tasks exist, Chromium is there.

    Raises:
        WebGymError: the first objection.
        UsageError: a part is not installed completely.
    """
    for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name):
        try:
            check = entry.load()
        except ImportError as e:
            raise UsageError(
                f"{e.name or entry.module} is not installed: pip install 'webgym-platform[worker,learner]'"
            ) from e
        check(manifest)
