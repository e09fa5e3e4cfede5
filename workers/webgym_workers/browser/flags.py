"""Chromium's command line, each group with its reason."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["chromium_flags"]

QUIET = (
    # Nothing that talks to the network, writes outside the profile or asks the user, of its own accord.
    "--disable-background-networking",
    "--disable-breakpad",
    "--disable-client-side-phishing-detection",
    "--disable-component-extensions-with-background-pages",
    "--disable-component-update",
    "--disable-crash-reporter",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-field-trial-config",
    "--disable-infobars",
    "--disable-notifications",
    "--disable-quic",
    "--disable-search-engine-choice-screen",
    "--disable-sync",
    "--metrics-recording-only",
    "--mute-audio",
    "--no-default-browser-check",
    "--no-first-run",
    "--no-pings",
    "--no-startup-window",
    "--password-store=basic",
    "--use-mock-keychain",
)

STEADY = (
    # A page behaves the same whether or not its window is in front. Popups open, so that we can record them.
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-hang-monitor",
    "--disable-ipc-flooding-protection",
    "--disable-popup-blocking",
    "--disable-prompt-on-repost",
    "--disable-renderer-backgrounding",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--allow-pre-commit-input",
)

LEAN = (
    # Software compositing in the GPU process: no GPU is looked for, and no second renderer waits in reserve.
    "--disable-gpu",
    "--renderer-process-limit=1",
    # Of the browser's own tabs and toolbar, not of pages: a load was followed by 250 ms of frames in which nothing was
    # drawn, 24 ms of CPU a page.
    "--animation-duration-scale=0",
)

DISABLED_FEATURES = (
    "AcceptCHFrame",
    "AutofillServerCommunication",
    "BackForwardCache",  # a page brought back from it fires no load event
    "CertificateTransparencyComponentUpdater",
    "DeferRendererTasksAfterInput",  # or the page's own tasks wait for a frame after each click
    "DestroyProfileOnBrowserClose",
    "DialMediaRouteProvider",
    "GlobalMediaControls",
    "HttpsUpgrades",
    "InterestFeedContentSuggestions",
    "LensOverlay",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "PaintHolding",
    "RenderDocument",  # or each page gets a compositor of its own, whose tiles are cleared memory: 27 ms of CPU a page
    "SpareRendererForSitePerProcess",
    "Translate",
    "WebUIOmniboxAimPopup",  # each of these keeps a page of the browser's own ready: 70 MB, 3 ms of CPU a second
    "WebUIOmniboxFullPopup",
    "WebUIOmniboxPopup",
)


DISPLAYED = (
    # Without a window manager a window stays where it is put.
    "--ozone-platform=x11",
    "--window-position=0,0",
    # A picture of 1920x1080 put together in software from 4 tiles instead of 40: a page that changes whole took 27 ms
    # of CPU a step instead of 33; where little changes it made no difference that could be told from noise.
    "--default-tile-width=1024",
    "--default-tile-height=1024",
)


def chromium_flags(
    *,
    headless: bool = True,
    sandbox: bool = True,
    width: int = 800,
    height: int = 600,
    display_scale: float | None = None,
    extra: Sequence[str] = (),
) -> list[str]:
    """The flags that every browser of ours starts with, but for the profile's path.

    Args:
        headless: No window. Frames are drawn at 60 a second where something changes; our own waiting needs
            none of them, and drawing unthrottled costs twice the CPU for a click.
        sandbox: False adds ``--no-sandbox``.
        width: Width of the window, CSS pixels.
        height: Height of the window, CSS pixels.
        display_scale: For a virtual display: its pixels for one CSS pixel. Nothing else tells Chromium.
        extra: Further flags; a later one wins.
    """
    return [
        "--remote-debugging-pipe",
        *QUIET,
        *STEADY,
        *LEAN,
        f"--disable-features={','.join(DISABLED_FEATURES)}",
        f"--window-size={width},{height}",
        # Pages fill the screen (window.py), so it is as large as they are; the one that there is without is 800x600.
        *(["--headless=new", f"--screen-info={{{max(width, 800)}x{max(height, 600)}}}"] if headless else []),
        *([] if display_scale is None else [f"--force-device-scale-factor={display_scale:g}", *DISPLAYED]),
        *([] if sandbox else ["--no-sandbox"]),
        *extra,
    ]
