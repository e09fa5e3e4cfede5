"""What ``browser.frames``, ``browser.headless`` and ``observation.frame`` come to together."""

from __future__ import annotations

from typing import Any

import pytest

from webgym.errors import BrowserError
from webgym.schema import Schema
from webgym.spec import Browser, RunManifest
from webgym_workers import checks
from webgym_workers.browser.options import BrowserOptions
from webgym_workers.browser.window import display_room
from webgym_workers.env import default_options
from webgym_workers.seat import browser_options


@pytest.mark.parametrize(
    ("spec", "frame", "display"),
    [
        ({}, False, "None"),
        ({}, True, "Prefer"),
        ({"frames": "SharedMemory"}, True, "Require"),
        ({"frames": "SharedMemory"}, False, "None"),
        ({"frames": "Screenshot"}, True, "None"),
        # A window on the desktop is there to be watched.
        ({"headless": False}, True, "None"),
        ({"headless": False, "frames": "SharedMemory"}, True, "Require"),
        # A browser that is elsewhere has its screen there, too.
        ({"endpoint": "ws://elsewhere:9222/devtools/browser/a"}, True, "None"),
    ],
)
def test_which_display_a_browser_gets(spec: dict[str, Any], frame: bool, display: str) -> None:
    assert browser_options(Browser.model_validate(spec), frame=frame).display == display


def test_an_environment_without_options_takes_the_fast_way() -> None:
    assert default_options(Schema()).display == "None"
    assert default_options(Schema(frame=(224, 224, 3))).display == "Prefer"


def test_a_display_has_room_for_usual_pages_and_for_the_options_own() -> None:
    assert display_room(BrowserOptions(width=320, height=3000)) == (1920, 3000)


@pytest.mark.parametrize(
    ("frames", "frame", "refused"),
    [("SharedMemory", True, True), ("SharedMemory", False, False), ("Auto", True, False)],
)
def test_a_run_that_requires_shared_memory_does_not_start_without_xvfb(
    frames: str, frame: bool, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "find_chromium", lambda executable: None)
    monkeypatch.setattr(checks, "chromium_version", lambda program: "1.2.3.4")
    monkeypatch.setattr(checks, "display_obstacle", lambda: "no Xvfb on this machine")
    manifest = RunManifest.model_validate(
        {
            "apiVersion": "webgym.io/v1alpha1",
            "kind": "WebGymRun",
            "metadata": {"name": "a"},
            "spec": {
                "task": {"name": "miniwob.click-test"},
                "stop": {"seconds": 1},
                "observation": {"frame": frame},
                "browser": {"frames": frames},
            },
        }
    )
    if refused:
        with pytest.raises(
            BrowserError, match="no Xvfb on this machine: apt-get install xvfb, or set it to Auto"
        ):
            checks.check_chromium(manifest)
    else:
        checks.check_chromium(manifest)
