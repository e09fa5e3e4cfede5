"""How browsers are started, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from webgym_workers.browser.egress import EgressMode

__all__ = ["BrowserOptions", "DisplayMode", "SandboxMode"]

SandboxMode = Literal["Require", "Prefer", "Disabled"]
DisplayMode = Literal["Require", "Prefer", "None"]


@dataclass(frozen=True)
class BrowserOptions:
    """How browsers are started. Mirrors the manifest's ``browser`` part.

    Attributes:
        executable: The program; None looks for one (:func:`~webgym_workers.browser.find.find_chromium`).
        sandbox: ``Require`` fails without Chromium's sandbox, ``Prefer`` goes on without it, ``Disabled``
            never uses it.
        headless: No window; only without a virtual display.
        display: A virtual display (Xvfb) for each browser, from whose memory frames are read: ``Require`` fails
            where there can be none, ``Prefer`` goes on without.
        width: Width of a page, CSS pixels.
        height: Height of a page, CSS pixels.
        device_scale_factor: Device pixels per CSS pixel.
        locale: Language of pages (``en-US``).
        timezone: Time zone of pages (``Europe/Berlin``); None is the machine's.
        action_timeout: Deadline of a command, seconds.
        navigation_timeout: Deadline of a page load, seconds.
        extra_flags: Further command-line flags.
        proxy: Address of the proxy that all traffic goes through (``http://127.0.0.1:3128``).
        proxy_bypass: Servers that are reached past the proxy (``127.0.0.1:8000``).
        egress: What pages may reach besides the tasks' own servers, where the browsers' owner opens a proxy of its own
            (:func:`~webgym_workers.reach.egress_proxy`); with ``proxy`` that is the given proxy's to say.
        allowed_sites: Further host names for ``TaskSites``.
        cpu_affinity: Cores that the browser may run on (Linux); empty is all.
        endpoint: A browser that runs already, elsewhere maybe, instead of one that is started: ``ws://`` or ``wss://``
            of its DevTools websocket, or ``http://host:port`` where it tells that. What says how a browser is started
            does not count then.
    """

    executable: str | None = None
    sandbox: SandboxMode = "Prefer"
    headless: bool = True
    display: DisplayMode = "None"
    width: int = 800
    height: int = 600
    device_scale_factor: float = 1.0
    locale: str | None = None
    timezone: str | None = None
    action_timeout: float = 2.0
    navigation_timeout: float = 15.0
    extra_flags: tuple[str, ...] = ()
    proxy: str | None = None
    proxy_bypass: tuple[str, ...] = ()
    egress: EgressMode = "Public"
    allowed_sites: tuple[str, ...] = ()
    cpu_affinity: tuple[int, ...] = ()
    endpoint: str | None = None
