"""The browsers themselves, and what their pages may reach."""

from __future__ import annotations

import difflib
import zoneinfo
from functools import cache
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from webgym.spec.base import Rule, SpecModel, Text, Whole

__all__ = ["LOCALE", "TIME_ZONE", "Browser"]

LOCALE = r"^[a-z]{2,3}(-[a-z]{3})?(-[A-Za-z]{4})?(-([A-Za-z]{2}|[0-9]{3}))?(-([A-Za-z0-9]{5,8}|[0-9][A-Za-z0-9]{3}))*$"
TIME_ZONE = r"^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}$"

Site = Annotated[
    str,
    Field(
        min_length=1,
        max_length=253,
        pattern=r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    ),
]

_NO_ZONES = ("Factory", "localtime", "posix", "posixrules", "right")
"""What lies in a time zone database besides zones."""


@cache
def _time_zones() -> frozenset[str]:
    """All names that this machine knows; none where it has no time zone database."""
    return frozenset(zoneinfo.available_timezones())


def _time_zone(name: str) -> str:
    try:
        zoneinfo.ZoneInfo(name)
        if name.partition("/")[0] not in _NO_ZONES:
            return name
        known = _time_zones()
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        known = _time_zones()
    # A small image may have no database, while Chromium brings its own: then the name is taken on trust.
    if name == "UTC" or not known:
        return name
    folded = {zone.lower(): zone for zone in sorted(known)}
    close = difflib.get_close_matches(name.lower(), folded, n=1)
    mend = f"did you mean {folded[close[0]]}?" if close else "give an IANA name such as Europe/Vienna"
    raise PydanticCustomError(
        "time_zone", "there is no time zone {name}; {mend}", {"name": repr(name), "mend": mend}
    )


class Browser(SpecModel):
    """Chromium, its window and its limits."""

    executable: Text | None = None
    """Path of the Chromium program. Left out: the first one found (Playwright's, then the system's)."""
    endpoint: (
        Annotated[str, Field(pattern=r"^(wss?|https?)://[^\s/?#@]+(/[^\s?#]*)?$", max_length=2048)] | None
    ) = None
    """A browser that runs already, elsewhere maybe, instead of browsers that are started: ws:// or wss:// of its
    DevTools websocket, or http://host:port of one started with --remote-debugging-port. Without user, password or
    query, since manifests are written out. Left out: each worker starts its own."""
    sandbox: Literal["Require", "Prefer", "Disabled"] = "Prefer"
    """Chromium's own sandbox. Require: no browser starts without it. Prefer: used where the machine
    allows, and reported. Disabled: never, for machines that forbid user namespaces; pages are then less
    contained."""
    headless: bool = True
    """Whether browsers run without a window. False puts one on your desktop, to watch; frames then come by
    screenshot, unless `frames` requires otherwise."""
    frames: Literal["Auto", "SharedMemory", "Screenshot"] = "Auto"
    """How frames are made when `observation.frame` is on. SharedMemory: each browser draws on a virtual
    display (Xvfb) of its own, whose memory is read; no run starts without Xvfb. Screenshot: by command,
    ten times slower. Auto: from shared memory where there is Xvfb, else by screenshot, and the log says so."""
    width: Annotated[int, Field(ge=160, le=7680), Whole] = 1920
    """Width of the page area, in CSS pixels."""
    height: Annotated[int, Field(ge=160, le=4320), Whole] = 1080
    """Height of the page area, in CSS pixels."""
    device_scale_factor: Annotated[float, Field(ge=0.5, le=4)] = 1.0
    """Device pixels per CSS pixel."""
    action_timeout_seconds: Annotated[float, Field(gt=0, le=300)] = 2.0
    """Deadline of one command to a browser, in seconds; beyond it the browser counts as hung."""
    navigation_timeout_seconds: Annotated[float, Field(gt=0, le=600)] = 15.0
    """Deadline of loading a page, in seconds; beyond it the episode ends as a fault of the site."""
    max_age_seconds: Annotated[float, Field(ge=60, le=31_536_000)] | None = 21600.0
    """Age at which a browser is replaced, between two episodes: what it has piled up goes with it. Browsers are spread
    over the last quarter of it, so that they are not all replaced at once. null: never."""
    settle_budget_seconds: Annotated[float, Field(gt=0, le=60)] = 1.0
    """Longest wait for a page to come to rest after an action, in seconds. Pages that never rest cost it
    each time."""
    egress: Literal["Public", "TaskSites", "Offline"] = "Public"
    """What pages may reach besides the task's own server. Public: the internet, but no private address.
    TaskSites: only the sites that the tasks name, and `allowedSites`. Offline: nothing. With `endpoint` it is
    not kept here: whoever runs that browser says what its pages reach."""
    allowed_sites: Annotated[list[Site], Field(max_length=256)] = Field(default_factory=list)
    """Further host names for `egress: TaskSites`; `*.example.com` covers all names below example.com."""
    locale: Annotated[str, Field(pattern=LOCALE, max_length=35)] = "en-US"
    """Language that browsers ask sites for, as a BCP 47 tag."""
    timezone: Annotated[str, Field(pattern=TIME_ZONE, max_length=64), AfterValidator(_time_zone)] = "UTC"
    """Time zone that pages see, by its IANA name, such as Europe/Vienna."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            message="allowedSites counts with egress: TaskSites only; set that, or leave allowedSites out",
            cel="self.egress == 'TaskSites' || !has(self.allowedSites) || self.allowedSites.size() == 0",
            check=lambda self: self.egress == "TaskSites" or not self.allowed_sites,
            field="allowed_sites",
        ),
        Rule(
            message="with endpoint no browser is started: leave executable out, or endpoint",
            cel="!has(self.endpoint) || !has(self.executable)",
            check=lambda self: self.endpoint is None or self.executable is None,
            field="executable",
        ),
        Rule(
            message="frames: SharedMemory needs browsers of this machine; set it to Auto, or leave endpoint out",
            cel="!has(self.endpoint) || self.frames != 'SharedMemory'",
            check=lambda self: self.endpoint is None or self.frames != "SharedMemory",
            field="frames",
        ),
        Rule(
            message="egress is kept by a proxy beside our own browsers: leave egress out (Public), or endpoint",
            cel="!has(self.endpoint) || self.egress == 'Public'",
            check=lambda self: self.endpoint is None or self.egress == "Public",
            field="egress",
        ),
    )
