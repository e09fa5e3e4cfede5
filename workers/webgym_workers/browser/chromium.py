"""One Chromium process: started with its debugging pipe on descriptors 3 and 4, ended without a trace.

Nothing of a browser outlives us, however we end. Chromium leaves when its pipe closes; on Linux the kernel
kills it when we die (``PR_SET_PDEATHSIG``), which also ends one that hangs; :meth:`ChromiumProcess.stop`
kills its process group. Profile folders: :mod:`~webgym_workers.browser.profile`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import subprocess
import time
from pathlib import Path

import psutil

from webgym.child_exit import exited
from webgym.errors import BrowserError
from webgym_workers.browser.cdp import CDPClient
from webgym_workers.browser.faults import BrowserFault, BrowserGone
from webgym_workers.browser.find import find_chromium
from webgym_workers.browser.options import BrowserOptions, SandboxMode
from webgym_workers.browser.pipe import open_pipe
from webgym_workers.browser.pipe_end import pipe_end
from webgym_workers.browser.process_tree import process_tree
from webgym_workers.browser.profile import Profile
from webgym_workers.browser.sandbox import sandbox_obstacle
from webgym_workers.browser.starter import STOP_SECONDS, StderrTail, finish, kill, start
from webgym_workers.browser.window import WINDOW_FRAME, WINDOW_GAP, display_room
from webgym_workers.frames.display import Display, display_obstacle
from webgym_workers.last_work import finish_aside

__all__ = ["BrowserOptions", "ChromiumProcess", "SandboxMode"]

log = logging.getLogger(__name__)

LAUNCH_SECONDS = 30.0
"""Deadline of a start; 0.2 s is usual, but fifty browsers on two cores start slowly."""
TREE_SECONDS = 5.0
"""How long a list of a browser's processes is good for."""


class ChromiumProcess:
    """A running Chromium; made by :meth:`launch`.

    Attributes:
        client: The DevTools connection.
        pid: Process id of the browser process, also its process group.
        sandboxed: Whether Chromium's sandbox is on.
        sandbox_obstacle: Why it is not, or None.
        display: Its virtual display, or None.
        display_obstacle: Why it has none although the options prefer one, or None.
        version: Such as ``Chrome/156.0.8078.114``.
        stderr: The last that it wrote there.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        client: CDPClient,
        profile: Profile,
        display: Display | None = None,
    ) -> None:
        self.client = client
        self.pid = process.pid
        self.sandboxed = False
        self.sandbox_obstacle: str | None = None
        self.display = display
        self.display_obstacle: str | None = None
        self.version = ""
        self.stderr = StderrTail()
        self._process = process
        self._profile = profile
        self._tree: list[psutil.Process] = []
        self._tree_until = 0.0

    @classmethod
    async def launch(cls, options: BrowserOptions, *, timeout: float = LAUNCH_SECONDS) -> ChromiumProcess:
        """Start a browser and wait until it answers.

        Raises:
            BrowserError: There is no Chromium, it cannot start here (the message has its own last line on
                that), or ``sandbox`` or ``display`` is ``Require`` and cannot be had.
        """
        loop = asyncio.get_running_loop()
        executable = await loop.run_in_executor(None, find_chromium, options.executable)
        if options.sandbox == "Disabled":
            return await cls._start(executable, options, "browser.sandbox is Disabled", timeout)
        obstacle = _failed_sandbox.get(executable)
        if obstacle is None:
            obstacle = await loop.run_in_executor(None, sandbox_obstacle, executable)
        if obstacle is None:
            try:
                return await cls._start(executable, options, None, timeout)
            except BrowserError as error:
                # The probe saw nothing in the sandbox's way. If Chromium starts without it, Chromium did.
                if not isinstance(error.__cause__, BrowserGone):
                    raise
                obstacle = str(error)
        if options.sandbox == "Require":
            raise BrowserError(
                f"browser.sandbox is Require, but Chromium's sandbox cannot work here: {obstacle}; "
                "run as another user with user namespaces allowed, or set browser.sandbox to Prefer"
            )
        browser = await cls._start(executable, options, obstacle, timeout)
        _failed_sandbox[executable] = obstacle
        return browser

    @classmethod
    async def _start(
        cls, executable: Path, options: BrowserOptions, obstacle: str | None, timeout: float
    ) -> ChromiumProcess:
        profile = Profile()
        display: Display | None = None
        try:
            display, no_display = await _display(options, profile)
            environment = display.environment if display else None
            process, our_read, our_write = start(
                executable, options, profile, sandbox=obstacle is None, display=environment
            )
        except BaseException:
            if display is not None:
                display.close()
            profile.remove()
            raise
        try:
            client = await open_pipe(our_read, our_write)
        except BaseException:
            finish(process, profile, 0.0)
            if display is not None:
                display.close()
            raise
        browser = cls(process, client, profile, display)
        browser.display_obstacle = no_display
        browser.sandboxed, browser.sandbox_obstacle = obstacle is None, obstacle
        try:
            assert process.stderr is not None
            loop, said = asyncio.get_running_loop(), os.dup(process.stderr.fileno())
            process.stderr.close()
            await loop.connect_read_pipe(lambda: browser.stderr, pipe_end(said, "rb", loop))
            answer = await client.browser.call("Browser.getVersion", timeout=timeout)
            browser.version = str(answer.get("product", ""))
            await client.browser.call("Target.setDiscoverTargets", {"discover": True}, timeout=timeout)
        except BrowserFault as error:
            await browser.stop(graceful=False)
            why = browser.stderr.cause() or (
                "it ended at once" if isinstance(error, BrowserGone) else f"no answer in {timeout:g} s"
            )
            raise BrowserError(f"cannot start {executable}: {why}") from error
        except BaseException:
            await asyncio.shield(browser.stop(graceful=False))
            raise
        return browser

    @property
    def alive(self) -> bool:
        """Whether the process runs, the pipe stands, and so does the display it may have."""
        displayed = self.display is None or self.display.gone is None
        return self.client.gone is None and displayed and not self._exited

    @property
    def profile(self) -> Path:
        """The temporary profile folder."""
        return self._profile.path

    def resident_bytes(self) -> int:
        """Memory of its processes, its display too: private pages of each, and the largest shared part once."""
        total, shared = 0, 0
        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                memory = process.memory_info()
                common = int(getattr(memory, "shared", 0))
                total += int(memory.rss) - common
                shared = max(shared, common)
        return total + shared

    @property
    def stopped(self) -> bool:
        """Whether a process of the browser is stopped (SIGSTOP): it answers nothing until somebody lets it go on."""
        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                if process.status() == psutil.STATUS_STOPPED:
                    return True
        return False

    def _processes(self) -> list[psutil.Process]:
        # A browser's processes seldom change.
        now = time.monotonic()
        if now >= self._tree_until:
            self._tree, self._tree_until = process_tree(self.pid), now + TREE_SECONDS
            if self.display is not None:
                with contextlib.suppress(psutil.Error):
                    self._tree.append(psutil.Process(self.display.pid))
        return self._tree

    def kill(self) -> None:
        """SIGKILL to the whole process group, at once; :meth:`stop` is still needed for the rest."""
        kill(self._process)
        if self.display is not None:
            self.display.kill()

    async def stop(self, *, graceful: bool = True) -> None:
        """End the browser, reap it, remove its profile. Safe to call twice; bounded in any state."""
        if graceful and self.alive:
            # The answer may lose the race against the closing pipe; either way it is on its way out.
            with contextlib.suppress(BrowserFault):
                await self.client.browser.call("Browser.close", timeout=STOP_SECONDS)
        self.client.close()
        patience = STOP_SECONDS if graceful else 0.0
        await finish_aside(finish, self._process, self._profile, patience)
        if self.display is not None:
            await self.display.stop()

    @property
    def _exited(self) -> bool:
        return exited(self._process)


async def _display(options: BrowserOptions, profile: Profile) -> tuple[Display | None, str | None]:
    """The virtual display that the options ask for, or None and why there is none although they prefer one."""
    if options.display == "None":
        return None, None
    obstacle = display_obstacle()
    if obstacle and options.display == "Prefer":
        return None, obstacle
    width, height = (
        math.ceil((room + more) * options.device_scale_factor)
        for room, more in zip(display_room(options), (WINDOW_GAP, WINDOW_FRAME), strict=True)
    )
    auth = profile.path / "Xauthority"
    return await Display.start(width, height, auth, cpus=options.cpu_affinity), None


_failed_sandbox: dict[Path, str] = {}
"""Programs whose sandbox was found not to work, and why."""
