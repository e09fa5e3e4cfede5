"""What must hold on the machine that runs browsers, before a run writes or starts anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webgym_workers.browser.find import find_chromium
from webgym_workers.tasks.registry import check_task

if TYPE_CHECKING:
    from webgym.spec import RunManifest

__all__ = ["check_run"]


def check_run(manifest: RunManifest) -> None:
    """Check that the manifest's tasks exist and that there is a Chromium.

    Raises:
        TaskError: a task does not exist or does not take its params.
        BrowserError: no Chromium can be found.
    """
    for task in manifest.spec.tasks:
        check_task(task.name, dict(task.params))
    find_chromium(manifest.spec.browser.executable)
