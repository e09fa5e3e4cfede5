"""The last thing that a program complained of, from its log: often the reason that a limit only shows the result of."""

from __future__ import annotations

import json
import os
from calendar import timegm
from collections.abc import Iterable
from pathlib import Path
from time import strptime
from typing import Any

__all__ = ["complaint_of", "last_complaint"]

_TAIL_BYTES = 1 << 18
_LONGEST = 300
_WEIGHT = {"warning": 1, "error": 2, "critical": 2}


def last_complaint(path: Path, since: float) -> str:
    """The last error in a log of JSON lines, else the last warning; empty if there is none.

    Args:
        path: of the log; one that is not there complains of nothing.
        since: Unix time; what is older belongs to an earlier session.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            return complaint_of(file.read().splitlines(), since)
    except OSError:
        return ""


def complaint_of(lines: Iterable[bytes | str], since: float) -> str:
    """:func:`last_complaint` of these lines."""
    found, weight = "", 0
    for line in lines:
        try:
            entry = json.loads(line)
            level, message = _WEIGHT.get(entry["level"], 0), str(entry["message"])
            if level and level >= weight and _time(entry) >= since - 1.0:
                found, weight = message, level
        except (ValueError, KeyError, TypeError):
            continue
    text = " ".join(found.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _time(entry: dict[str, Any]) -> float:
    """``2026-01-31T12:00:00.123Z`` as Unix time, to the second."""
    return float(timegm(strptime(str(entry["time"])[:19], "%Y-%m-%dT%H:%M:%S")))
