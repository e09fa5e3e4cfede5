"""Virtual displays: started under free numbers, ended with their browsers, and nothing of them left behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from webgym.errors import BrowserError
from webgym_workers.browser.faults import BrowserFault, BrowserGone, CDPTimeout, DisplayGone
from webgym_workers.browser.options import BrowserOptions
from webgym_workers.browser.pool import BrowserPool
from webgym_workers.frames import display as display_module
from webgym_workers.frames.display import Display
from webgym_workers.frames.ring import FrameRing
from webgym_workers.frames.source import open_frames
from webgym_workers.frames.x11 import SOCKETS
from webgym_workers.sharedmem import memory_folder

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(shutil.which("Xvfb") is None, reason="no Xvfb"),
]


def left_over() -> list[Path]:
    return list(memory_folder().glob("webgym-display-*"))


async def test_a_display_shows_in_memory_and_leaves_nothing(tmp_path: Path) -> None:
    display = await Display.start(640, 480, tmp_path / "auth")
    socket = SOCKETS / f"X{display.number}"
    assert display.framebuffer.pixels.shape == (480, 640, 4)
    assert not display.framebuffer.pixels.flags.writeable
    assert socket.exists()
    # Its screen has no name any more, so nobody needs to remove it.
    assert left_over() == []
    pid = display.pid
    await display.stop()
    await display.stop()
    assert not psutil.pid_exists(pid)
    assert not socket.exists()
    assert isinstance(display.gone, DisplayGone)
    # What is mapped stays readable.
    assert not np.any(display.framebuffer.pixels[..., :3])


async def test_many_start_at_once_under_numbers_of_their_own(tmp_path: Path) -> None:
    displays = await asyncio.gather(*[Display.start(320, 240, tmp_path / f"auth{i}") for i in range(6)])
    try:
        assert len({display.number for display in displays}) == 6
        for display in displays:
            await display.sync()
    finally:
        await asyncio.gather(*[display.stop() for display in displays])


async def test_only_who_knows_the_secret_may_connect(tmp_path: Path) -> None:
    display = await Display.start(320, 240, tmp_path / "auth")
    try:
        assert (tmp_path / "auth").stat().st_mode & 0o077 == 0
        with pytest.raises(DisplayGone, match="refuses"):
            await display_module.XConnection.open(display.number, b"\0" * 16, 2.0)
    finally:
        await display.stop()


@pytest.mark.parametrize("what", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_display_that_dies_or_hangs_costs_its_browser_and_no_other(
    chromium: object, pages: str, what: signal.Signals
) -> None:
    async with BrowserPool(BrowserOptions(display="Require"), 2) as pool:
        async with pool.browser(1) as other:
            neighbour = await other.new_page(width=640, height=480)
            await neighbour.navigate(f"{pages}/controls.html")
            start, pid = time.monotonic(), 0

            async def frames_until_the_end() -> None:
                nonlocal start, pid
                async with pool.browser(0) as browser:
                    page = await browser.new_page(width=640, height=480)
                    frames = await open_frames(browser, page, FrameRing((224, 224, 3), 4))
                    await page.navigate(f"{pages}/controls.html")
                    assert browser.process.display is not None
                    pid = browser.process.display.pid
                    os.kill(pid, what)
                    start = time.monotonic()
                    while True:
                        await frames.take((await page.evaluate_settled(frames.mark())).value)

            with pytest.raises(BrowserFault) as caught:
                await frames_until_the_end()
            # Whoever is asked first: the display, or the browser that waits for it.
            assert isinstance(caught.value, DisplayGone | BrowserGone | CDPTimeout)
            # Two deadlines of two seconds each, on a machine that may be busy.
            assert time.monotonic() - start < 10
            assert (await neighbour.evaluate("1 + 1")) == 2
        start = time.monotonic()
        async with pool.browser(0) as browser:
            page = await browser.new_page(width=640, height=480)
            frames = await open_frames(browser, page, FrameRing((224, 224, 3), 4))
            await frames.take((await page.evaluate_settled(frames.mark())).value)
        # Two seconds where nothing else runs.
        assert time.monotonic() - start < 15
        assert not psutil.pid_exists(pid)
        assert pool[1].restarts == {}
    assert left_over() == []


async def test_a_killed_process_leaves_no_display(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from webgym_workers.frames.display import Display\n"
        "async def main():\n"
        "    display = await Display.start(640, 480, Path(sys.argv[1]))\n"
        "    print(display.pid, flush=True)\n    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    program = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", script, str(tmp_path / "auth")], stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    pid = int(await asyncio.to_thread(program.stdout.readline))
    program.kill()
    program.wait()
    deadline = time.monotonic() + 5
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie":
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    assert left_over() == []


async def test_an_unfinished_start_leaves_nothing(tmp_path: Path) -> None:
    before = {p.pid for p in psutil.process_iter() if p.name() == "Xvfb"}
    for delay in (0.0, 0.01, 0.03):
        start = asyncio.ensure_future(Display.start(640, 480, tmp_path / "auth"))
        await asyncio.sleep(delay)
        start.cancel()
        await asyncio.gather(start, return_exceptions=True)
    assert {p.pid for p in psutil.process_iter() if p.name() == "Xvfb"} <= before
    assert left_over() == []


async def test_no_room_is_said_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        display_module.os, "statvfs", lambda path: SimpleNamespace(f_bavail=100, f_frsize=4096)
    )
    with pytest.raises(BrowserError, match=r"needs 8\.7 MiB in .* which has 0\.4 MiB free: give"):
        await Display.start(1920, 1180, tmp_path / "auth")
    with pytest.raises(BrowserError, match="too large"):
        await Display.start(40_000, 100, tmp_path / "auth")
    assert left_over() == []


async def test_a_server_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Xvfb").write_text(
        "#!/bin/sh\necho 'cannot write the framebuffer: No space left' >&2\nexit 1\n"
    )
    (tmp_path / "Xvfb").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(BrowserError, match="cannot start Xvfb: cannot write the framebuffer"):
        await Display.start(640, 480, tmp_path / "auth")
    assert left_over() == []


async def test_without_xvfb_a_display_is_refused_or_done_without(
    chromium: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display_module.shutil, "which", lambda name: None)
    with pytest.raises(BrowserError, match="no Xvfb on this machine: apt-get install xvfb"):
        await Display.start(640, 480, tmp_path / "auth")
    options = BrowserOptions(executable=str(chromium), display="Prefer")
    async with BrowserPool(options, 1) as pool, pool.browser(0) as browser:
        assert browser.process.display is None
        assert browser.process.display_obstacle == "no Xvfb on this machine"
        page = await browser.new_page(width=320, height=240)
        assert (await open_frames(browser, page, FrameRing((224, 224, 3), 2))).way == "screenshot"


async def test_a_page_larger_than_its_display_is_refused_with_the_mend(chromium: object) -> None:
    async with BrowserPool(BrowserOptions(display="Require"), 1) as pool, pool.browser(0) as browser:
        page = await browser.new_page(width=2500, height=900)
        with pytest.raises(BrowserError, match=r"2500x900 does not fit .* set browser\.width"):
            await open_frames(browser, page, FrameRing((224, 224, 3), 2))
