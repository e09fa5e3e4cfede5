"""One thing that was looked at before a run is submitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding", "bad", "good", "unknown", "warn"]


@dataclass(frozen=True)
class Finding:
    """What was found, and what to do about it."""

    subject: str
    """What was looked at, in a word or two."""
    level: Literal["ok", "warning", "unknown", "bad"]
    """bad: the run cannot work as things are. warning: it works later, slower or in part. unknown: the caller may not
    look."""
    text: str
    mend: str = ""


def good(subject: str, text: str) -> Finding:
    """As it should be."""
    return Finding(subject, "ok", text)


def warn(subject: str, text: str, mend: str = "") -> Finding:
    """Worth knowing; the run works all the same."""
    return Finding(subject, "warning", text, mend)


def unknown(subject: str, text: str, mend: str = "") -> Finding:
    """Could not be looked at."""
    return Finding(subject, "unknown", text, mend)


def bad(subject: str, text: str, mend: str = "") -> Finding:
    """The run cannot work."""
    return Finding(subject, "bad", text, mend)
