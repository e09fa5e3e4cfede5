"""What must hold on the machine that runs browsers, before a run writes or starts anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webgym.errors import BrowserError
from webgym_workers.browser.find import chromium_version, find_chromium
from webgym_workers.capacity import core_groups, machine
from webgym_workers.frames.display import display_obstacle

if TYPE_CHECKING:
    from webgym.spec import RunManifest

__all__ = ["check_chromium"]


def check_chromium(manifest: RunManifest) -> None:
    """Check that there is a Chromium that can be run, cores for it, and a display where one is required.

    Raises:
        BrowserError: none can be found, or it is none.
        RunError: none of the cores asked for is here.
    """
    spec = manifest.spec
    core_groups(spec.workers.cpu_affinity, machine().cpus)
    chromium_version(find_chromium(spec.browser.executable))
    if spec.observation.frame and spec.browser.frames == "SharedMemory":
        obstacle = display_obstacle()
        if obstacle:
            raise BrowserError(
                f"browser.frames is SharedMemory, but {obstacle}: apt-get install xvfb, or set it to Auto"
            )
