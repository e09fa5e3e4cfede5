"""The program that is started, and the profile folders it is given."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from webgym_workers.browser.profile import Profile


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A temporary folder whose name is short enough for Chromium's sockets."""
    with tempfile.TemporaryDirectory(prefix="wg-", dir="/tmp") as folder:
        yield Path(folder)


def test_the_wrapper_script_is_stepped_over(chromium: Path) -> None:
    with chromium.open("rb") as file:
        assert file.read(2) != b"#!"


def test_profiles_of_a_dead_owner_are_swept(temporary: Path) -> None:
    old = temporary / "webgym-chromium-1-dead"
    old.mkdir()
    (old / "Cookies").write_text("left behind")
    code = """
        import os
        from webgym_workers.browser.profile import Profile
        profile = Profile()
        print(profile.path.parent, profile.path.is_dir())
        profile.remove()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(temporary), "True"]
    assert not old.exists()


def test_a_living_owners_profile_is_left_alone(temporary: Path) -> None:
    mine = Profile()
    code = "from webgym_workers.browser.profile import Profile; Profile().remove()"
    subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(mine.path.parent)}, check=True
    )
    assert mine.path.is_dir()
    mine.remove()
    assert not mine.path.exists()


def test_an_exit_without_stop_leaves_nothing(chromium: Path, temporary: Path) -> None:
    code = """
        import asyncio, sys
        from webgym_workers.browser.chromium import BrowserOptions, ChromiumProcess
        loop = asyncio.new_event_loop()
        browser = loop.run_until_complete(ChromiumProcess.launch(BrowserOptions()))
        print(browser.profile)
        sys.exit(3)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert Path(done.stdout.strip()).parent == temporary
    assert list(temporary.iterdir()) == []


def test_a_long_temporary_folder_is_no_obstacle(chromium: Path, tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 20)
    folder.mkdir()
    code = """
        import asyncio
        from webgym_workers.browser.chromium import BrowserOptions, ChromiumProcess
        async def main():
            await (await ChromiumProcess.launch(BrowserOptions())).stop()
        asyncio.run(main())
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env={**os.environ, "TMPDIR": str(folder)}, check=True
    )
    assert list(folder.iterdir()) == []
