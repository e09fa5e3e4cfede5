"""What the checks share: what is wanted of this machine, what it is like, and the browser that several of them use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import TYPE_CHECKING

from webgym.spec import Browser as BrowserSpec
from webgym.spec import Workers
from webgym_workers.capacity import Machine, machine, worker_browsers
from webgym_workers.doctor.host import Host, this_host
from webgym_workers.doctor.limits import TYPICAL, Footprint, Limits, read_limits

if TYPE_CHECKING:
    from webgym.spec import RunManifest
    from webgym_workers.browser.chromium import ChromiumProcess
    from webgym_workers.browser.options import BrowserOptions
    from webgym_workers.browser.page import Page

__all__ = ["Setting", "Wanted"]


@dataclass(frozen=True)
class Wanted:
    """What a run asks of the machine: a manifest's, or the defaults.

    Attributes:
        browser: How browsers are started.
        workers: How many there are.
        mode: The run's, such as ``Asynchronous``; ``Synchronous`` has one browser.
        frame: Whether observations have a frame; None is not known.
        redis_url: The Redis server that it names; None is the embedded one.
        device: Where the learner computes, such as ``auto`` or ``cuda``.
    """

    browser: BrowserSpec = field(default_factory=BrowserSpec)
    workers: Workers = field(default_factory=Workers)
    mode: str = "Asynchronous"
    frame: bool | None = None
    redis_url: str | None = None
    device: str = "auto"

    @classmethod
    def by(cls, manifest: RunManifest) -> Wanted:
        """What a manifest asks for."""
        spec = manifest.spec
        url = str(spec.redis.url) if spec.redis.url else None
        return cls(spec.browser, spec.workers, spec.mode, spec.observation.frame, url, spec.learner.device)

    @property
    def needs_display(self) -> bool:
        """Whether no run starts without a virtual display."""
        return self.frame is True and self.browser.frames == "SharedMemory"

    @property
    def has_display(self) -> bool:
        """Whether browsers get a virtual display where there can be one."""
        return self.frame is not False and self.browser.frames != "Screenshot"


@dataclass
class Setting:
    """The circumstances of an examination; tests put their own facts in.

    Attributes:
        wanted: What is asked of the machine.
        host: How things are mended on it.
        machine: Cores and memory that we may use.
        limits: What else it allows.
        process: The headless browser that checks share, once the first of them has started it.
        displayed: Whether a virtual display was found to work.
        footprint: What one browser takes, once measured; typical numbers before.
    """

    wanted: Wanted = field(default_factory=Wanted)
    host: Host = field(default_factory=this_host)
    machine: Machine = field(default_factory=machine)
    limits: Limits = field(default_factory=read_limits)
    process: ChromiumProcess | None = None
    displayed: bool = False
    footprint: Footprint = TYPICAL

    @property
    def browsers(self) -> int:
        """How many browsers a worker starts here."""
        return worker_browsers(self.wanted.mode, self.wanted.workers, self.machine)

    def options(self, *, scale: float | None = None, display: bool = False) -> BrowserOptions:
        """How to start a browser for a check.

        Args:
            scale: Device pixels per CSS pixel; None is as wanted.
            display: On a virtual display.
        """
        from webgym_workers.seat import browser_options

        options = browser_options(self.wanted.browser)
        return replace(
            options,
            headless=True,
            display="Require" if display else "None",
            device_scale_factor=options.device_scale_factor if scale is None else scale,
            # A machine that cannot have the sandbox is told so by the check of it; the others go on.
            sandbox="Prefer" if options.sandbox == "Require" else options.sandbox,
            # Slower than any command on an idle machine; checks have deadlines of their own.
            action_timeout=max(5.0, options.action_timeout),
        )

    @asynccontextmanager
    async def page(self, width: int = 800, height: int = 600, scale: float = 1.0) -> AsyncIterator[Page]:
        """A blank page of the shared browser.

        Raises:
            BrowserFault: the browser failed meanwhile.
        """
        from webgym_workers.browser.page import Page

        assert self.process is not None  # checks that need a browser come after the one that starts it
        page = await Page.open(
            self.process.client, width=width, height=height, device_scale_factor=scale, timeout=5.0
        )
        try:
            yield page
        finally:
            await page.close()


def page_url(name: str) -> str:
    """The address of a page of ``pages/``: the page itself, so that no file has to be readable by Chromium."""
    from base64 import b64encode

    content = files(__package__).joinpath("pages", name).read_bytes()
    return f"data:text/html;charset=utf-8;base64,{b64encode(content).decode()}"
