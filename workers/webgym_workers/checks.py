"""What must hold on the machine that runs browsers, before a run writes or starts anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webgym_workers.browser.find import find_chromium

if TYPE_CHECKING:
    from webgym.spec import RunManifest

__all__ = ["check_chromium"]


def check_chromium(manifest: RunManifest) -> None:
    """Check that there is a Chromium.

    Raises:
        BrowserError: none can be found.
    """
    find_chromium(manifest.spec.browser.executable)
